// Internal: RunAfter and RunEvery.
#ifndef SLUICE_REACTOR_INTERNAL_TIMER_QUEUE_H_
#define SLUICE_REACTOR_INTERNAL_TIMER_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "reactor/reactor.h"

namespace sluice::internal {

// Timers ordered by deadline, in nanoseconds of CLOCK_MONOTONIC. Both trees
// give memory back as soon as a timer is cancelled.
// Thread: one.
class TimerQueue {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // At `deadline` (kNever: not at all), then, if period > 0, every period after
  // it (see Reactor::RunEvery for how runs that come late are skipped). Ids are
  // not used again.
  TimerId Add(int64_t deadline, int64_t period, TimerTask task);

  // True if it will not run again because of this call. A timer that runs once
  // is over when its task begins; one that repeats may cancel itself, and its
  // task is destroyed after it has returned.
  bool Cancel(TimerId id);

  // Runs what is due at `now` and was there before the call, in the order of
  // the deadlines, equal ones in the order of Add. Tasks may Add and Cancel,
  // themselves too; not RunDue. `run` is called with each task in turn, so that
  // the caller can guard it; it must call it at most once. What it throws ends
  // the call: the rest is still due, a timer that repeats has its next
  // deadline.
  void RunDue(int64_t now, absl::FunctionRef<void(TimerTask&)> run);

  int64_t NextDeadline() const {
    return order_.empty() ? kNever : order_.begin()->first;
  }
  size_t size() const { return timers_.size(); }

 private:
  struct Timer {
    int64_t deadline;
    int64_t period;
    TimerTask task;
  };
  uint64_t last_id_ = 0;
  absl::btree_map<uint64_t, Timer> timers_;
  absl::btree_set<std::pair<int64_t, uint64_t>> order_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_TIMER_QUEUE_H_
