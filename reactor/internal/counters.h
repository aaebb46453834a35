// Internal: counters that one loop writes and any thread reads.
#ifndef SLUICE_REACTOR_INTERNAL_COUNTERS_H_
#define SLUICE_REACTOR_INTERNAL_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "reactor/close.h"

namespace sluice::internal {

// Written by one thread: a load and a store, no locked instruction.
class Counter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n,
                 std::memory_order_relaxed);
  }
  void Set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// See EngineStats for what each means. On cache lines of its own: the sums are
// read by other threads.
struct alignas(64) Counters {
  Counter opened;
  Counter closed;
  Counter accepted;
  Counter rejected;
  Counter rejected_per_source;
  Counter dials_failed;
  Counter bytes_in;
  Counter bytes_out;
  Counter accept_errors;
  Counter accept_fd_limit;
  Counter accept_shed;
  Counter handler_exceptions;
  Counter posts_dropped;
  Counter stale_events;
  Counter rate_paused;
  Counter readers_paused;
  std::array<Counter, kCloseReasons> closed_by_reason;
  Counter turns;
  Counter timers;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_COUNTERS_H_
