#include "reactor/internal/timer_queue.h"

#include <utility>

namespace sluice::internal {
namespace {

// The first point of the grid `deadline` + n * period after `now`; the grid's
// point at `deadline` has come.
int64_t NextOnGrid(int64_t deadline, int64_t period, int64_t now) {
  // Unsigned, because the difference of two int64_t may not fit in one.
  const uint64_t late =
      static_cast<uint64_t>(now) - static_cast<uint64_t>(deadline);
  const int64_t into_period =
      static_cast<int64_t>(late % static_cast<uint64_t>(period));
  int64_t next;
  if (__builtin_add_overflow(now, period - into_period, &next)) {
    return TimerQueue::kNever;
  }
  return next;
}

}  // namespace

TimerId TimerQueue::Add(int64_t deadline, int64_t period, TimerTask task) {
  const uint64_t id = ++last_id_;
  timers_.emplace(id, Timer{deadline, period, std::move(task)});
  order_.emplace(deadline, id);
  return TimerId{id};
}

bool TimerQueue::Cancel(TimerId id) {
  const auto it = timers_.find(id.value);
  if (it == timers_.end()) return false;
  // Outlives the erasing: what the closure's destructor does may come back
  // here.
  TimerTask task = std::move(it->second.task);
  order_.erase({it->second.deadline, id.value});
  timers_.erase(it);
  return true;
}

void TimerQueue::RunDue(int64_t now, absl::FunctionRef<void(TimerTask&)> run) {
  // Puts the task of a timer back, if that still exists, however run ends. The
  // task is out of the tree meanwhile: Add and Cancel move and destroy what is
  // in it.
  struct PutBack {
    TimerQueue* queue;
    uint64_t id;
    TimerTask task;
    ~PutBack() {
      const auto it = queue->timers_.find(id);
      if (it != queue->timers_.end()) it->second.task = std::move(task);
    }
  };

  const uint64_t last_before = last_id_;
  std::pair<int64_t, uint64_t> at{INT64_MIN, 0};
  for (;;) {
    const auto next = order_.upper_bound(at);
    if (next == order_.end() || next->first > now || next->first == kNever) {
      return;
    }
    at = *next;
    const uint64_t id = at.second;
    if (id > last_before) continue;  // added in this pass

    const auto it = timers_.find(id);
    PutBack running{this, id, std::move(it->second.task)};
    order_.erase(next);
    if (it->second.period > 0) {
      const int64_t deadline = NextOnGrid(at.first, it->second.period, now);
      it->second.deadline = deadline;
      order_.emplace(deadline, id);
    } else {
      timers_.erase(it);
    }
    run(running.task);
  }
}

}  // namespace sluice::internal
