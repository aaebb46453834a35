// Internal: waiting for something another thread does, with a way out.
#ifndef SLUICE_TEST_SUPPORT_WAIT_H_
#define SLUICE_TEST_SUPPORT_WAIT_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace sluice::test {

// Long enough for a loaded machine under a sanitizer: only a hang reaches it.
inline constexpr std::chrono::seconds kPatience{60};

// True as soon as `predicate()` is; false once `timeout` has passed.
template <typename Predicate>
[[nodiscard]] bool WaitUntil(Predicate predicate,
                             std::chrono::nanoseconds timeout = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int round = 0; !predicate(); ++round) {
    if (std::chrono::steady_clock::now() >= deadline) return predicate();
    if (round < 64) {
      std::this_thread::yield();
    } else {
      // Let the loops have the CPU while we look on.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

// Something that happens once. Thread: any.
class Event {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    condition_.notify_all();
  }
  bool IsSet() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return set_;
  }
  // False if it has not happened within `timeout`.
  [[nodiscard]] bool Wait(std::chrono::nanoseconds timeout = kPatience) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return condition_.wait_for(lock, timeout, [this] { return set_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable condition_;
  bool set_ = false;
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_WAIT_H_
