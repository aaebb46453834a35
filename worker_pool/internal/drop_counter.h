// Internal: results that reached nobody.
#ifndef SLUICE_WORKER_POOL_INTERNAL_DROP_COUNTER_H_
#define SLUICE_WORKER_POOL_INTERNAL_DROP_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace sluice::internal {

// Shared by the pool and the results under way: a loop may find that a
// connection is gone when the pool no longer exists. Counts its owners itself:
// a std::shared_ptr would make every job 8 bytes larger.
// Thread: any. Lifetime: made with one owner, ends with its last Unref.
class DropCounter {
 public:
  DropCounter() = default;
  DropCounter(const DropCounter&) = delete;
  DropCounter& operator=(const DropCounter&) = delete;

  void Ref() { owners_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void Add() { drops_.fetch_add(1, std::memory_order_release); }
  uint64_t drops() const { return drops_.load(std::memory_order_acquire); }

 private:
  ~DropCounter() = default;

  std::atomic<uint64_t> owners_{1};
  std::atomic<uint64_t> drops_{0};
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_DROP_COUNTER_H_
