// Internal: the jobs a worker has taken out of the queue and not yet begun.
#ifndef SLUICE_WORKER_POOL_INTERNAL_BATCH_H_
#define SLUICE_WORKER_POOL_INTERNAL_BATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "reactor/internal/check.h"
#include "worker_pool/job_box.h"

namespace sluice::internal {

// A few jobs that belong to one worker and that any thread may take, oldest
// first: when the owner is held up by one of them, the others are not.
//
//   state   | fill number: 48 bits | taken: 8 | size: 8 |
//
// A take reads a slot and then claims it with one compare-and-swap. The fill
// number makes that of a thief fail who read the slot while it was filled
// again.
class Batch {
 public:
  static constexpr uint32_t kCapacity = 64;

  Batch() = default;
  ~Batch() {
    while (JobBox box = Take()) {
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // [owner] The next jobs, once all those before were taken: Put each, then
  // Publish how many.
  void Put(uint32_t index, const uint64_t (&words)[JobBox::kWords]) {
    for (size_t i = 0; i < JobBox::kWords; ++i) {
      slots_[index].words[i].store(words[i], std::memory_order_relaxed);
    }
  }
  void Publish(uint32_t size) {
    SLUICE_CHECK(size <= kCapacity && empty(), "a batch was not finished");
    const uint64_t fill = (state_.load(std::memory_order_relaxed) >> 16) + 1;
    state_.store((fill << 16) | size, std::memory_order_release);
  }

  // [any] Empty if none is left.
  JobBox Take() {
    uint64_t state = state_.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t taken = (state >> 8) & 0xff;
      if (taken == (state & 0xff)) return JobBox();
      uint64_t words[JobBox::kWords];
      for (size_t i = 0; i < JobBox::kWords; ++i) {
        words[i] = slots_[taken].words[i].load(std::memory_order_relaxed);
      }
      // Release: the slot was read before its owner can fill it again.
      if (state_.compare_exchange_weak(state, state + 0x100,
                                       std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        return JobBox::FromWords(words);
      }
    }
  }

  // [any]
  bool empty() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return ((state >> 8) & 0xff) == (state & 0xff);
  }

 private:
  struct Slot {
    std::atomic<uint64_t> words[JobBox::kWords];
  };
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) Slot slots_[kCapacity] = {};
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_BATCH_H_
