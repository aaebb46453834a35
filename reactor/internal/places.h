// Internal: connections counted against a bound.
#ifndef SLUICE_REACTOR_INTERNAL_PLACES_H_
#define SLUICE_REACTOR_INTERNAL_PLACES_H_

#include <atomic>
#include <cstddef>

namespace sluice::internal {

// Thread: any. Everything is sequentially consistent: whoever is refused, says
// Want, and is refused again, is told by TakeWanted of the one who gives the
// next place back.
class Places {
 public:
  explicit Places(size_t most) : most_(most) {}  // 0: no bound

  bool TryTake() {
    size_t taken = taken_.load();
    while (most_ == 0 || taken < most_) {
      if (taken_.compare_exchange_weak(taken, taken + 1)) return true;
    }
    return false;
  }
  // Whether there is room or not.
  void Take() { taken_.fetch_add(1); }
  // How many are taken now.
  size_t GiveBack() { return taken_.fetch_sub(1) - 1; }

  bool bounded() const { return most_ != 0; }
  bool full() const { return most_ != 0 && taken_.load() >= most_; }
  size_t taken() const { return taken_.load(); }

  void Want() { wanted_.store(true); }
  bool TakeWanted() { return wanted_.load() && wanted_.exchange(false); }

 private:
  const size_t most_;
  std::atomic<size_t> taken_{0};
  std::atomic<bool> wanted_{false};
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_PLACES_H_
