#include "reactor/internal/timer_queue.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace sluice::internal {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_TEST_OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_TEST_OWN_MALLOC 1
#endif
#endif

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kHour = 3600 * 1000 * kMs;

void RunDue(TimerQueue& queue, int64_t now) {
  queue.RunDue(now, [](TimerTask& task) { task(); });
}

TEST(TimerQueue, RunsInOrderOfDeadlinesThenOfAdding) {
  TimerQueue queue;
  std::vector<int> ran;
  const auto add = [&](int64_t deadline, int mark) {
    queue.Add(deadline, 0, [&ran, mark] { ran.push_back(mark); });
  };
  add(30, 5);
  add(10, 1);
  add(20, 2);
  add(20, 3);
  add(20, 4);
  add(31, 6);
  EXPECT_EQ(queue.NextDeadline(), 10);
  RunDue(queue, 9);
  EXPECT_TRUE(ran.empty());
  RunDue(queue, 30);
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue.NextDeadline(), 31);
  RunDue(queue, 31);
  EXPECT_EQ(ran.size(), 6u);
  EXPECT_EQ(queue.NextDeadline(), TimerQueue::kNever);
}

TEST(TimerQueue, B65_ATimerCancelsAnotherThatIsDue) {
  TimerQueue queue;
  TimerId second;
  bool cancelled = false;
  int second_runs = 0;
  queue.Add(10, 0, [&] { cancelled = queue.Cancel(second); });
  second = queue.Add(10, 0, [&] { ++second_runs; });
  RunDue(queue, 10);
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(second_runs, 0);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_FALSE(queue.Cancel(second));

  // The same with one that repeats and comes first in line of the next pass.
  second = queue.Add(20, 5, [&] { ++second_runs; });
  queue.Add(19, 0, [&] { cancelled = queue.Cancel(second); });
  RunDue(queue, 100);
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(second_runs, 0);
  EXPECT_EQ(queue.NextDeadline(), TimerQueue::kNever);
}

TEST(TimerQueue, B66_ARepeatingTimerCancelsItself) {
  TimerQueue queue;
  const auto alive = std::make_shared<int>(0);
  for (int round = 0; round < 10'000; ++round) {
    TimerId id;
    int runs = 0;
    id = queue.Add(1, 1, [&, alive] {
      if (++runs == 3) {
        EXPECT_TRUE(queue.Cancel(id));
        EXPECT_FALSE(queue.Cancel(id));
        EXPECT_EQ(queue.size(), 0u);
        // The closure that is running is still there.
        EXPECT_EQ(alive.use_count(), 2);
      }
    });
    for (int64_t now = 1; now <= 6; ++now) RunDue(queue, now);
    ASSERT_EQ(runs, 3);
    ASSERT_EQ(queue.size(), 0u);
    ASSERT_EQ(queue.NextDeadline(), TimerQueue::kNever);
    ASSERT_EQ(alive.use_count(), 1);
  }
}

TEST(TimerQueue, B68_ATimerAddedByATimerWaitsForTheNextPass) {
  TimerQueue queue;
  int runs = 0;
  struct Again {
    TimerQueue* queue;
    int* runs;
    void operator()() {
      ++*runs;
      queue->Add(0, 0, Again{queue, runs});   // long due
      queue->Add(10, 0, Again{queue, runs});  // due just now
      queue->Cancel(TimerId{static_cast<uint64_t>(*runs) * 2 + 1});
    }
  };
  queue.Add(10, 0, Again{&queue, &runs});
  for (int pass = 1; pass <= 1000; ++pass) {
    RunDue(queue, 10);
    ASSERT_EQ(runs, pass);
    ASSERT_EQ(queue.size(), 1u);
    ASSERT_LE(queue.NextDeadline(), 10);
  }
}

TEST(TimerQueue, AddingManyInAPassCostsNoMoreThanTheirNumber) {
  TimerQueue queue;
  constexpr int kTimers = 2000;
  int runs = 0;
  for (int i = 0; i < kTimers; ++i) {
    queue.Add(10 + i, 0, [&, i] {
      ++runs;
      queue.Add(i % 2 == 0 ? 0 : 10 + kTimers, 0, [&] { ++runs; });
    });
  }
  RunDue(queue, 10 + kTimers);
  EXPECT_EQ(runs, kTimers);
  RunDue(queue, 10 + kTimers);
  EXPECT_EQ(runs, 2 * kTimers);
  EXPECT_EQ(queue.size(), 0u);
}

// A loop that wakes at the next deadline; each run takes `run_time`.
std::vector<int64_t> StartsOf(int64_t period, int64_t run_time, int64_t until) {
  TimerQueue queue;
  int64_t now = 0;
  std::vector<int64_t> starts;
  queue.Add(period, period, [&] {
    starts.push_back(now);
    now += run_time;
  });
  while (now < until) {
    now = std::max(now, queue.NextDeadline());
    RunDue(queue, now);
  }
  return starts;
}

TEST(TimerQueue, B69_TheTasksTimeDoesNotAddUp) {
  const std::vector<int64_t> starts = StartsOf(50 * kMs, 20 * kMs, 1000 * kMs);
  ASSERT_EQ(starts.size(), 20u);
  for (size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(starts[i], static_cast<int64_t>(i + 1) * 50 * kMs);
  }
}

TEST(TimerQueue, B69_ATaskLongerThanThePeriodIsNotCaughtUpWith) {
  const std::vector<int64_t> starts = StartsOf(50 * kMs, 120 * kMs, 1000 * kMs);
  ASSERT_GE(starts.size(), 7u);
  for (size_t i = 1; i < starts.size(); ++i) {
    const int64_t idle = starts[i] - starts[i - 1] - 120 * kMs;
    EXPECT_GE(idle, 0);
    EXPECT_LT(idle, 50 * kMs) << "a full wait more";
  }
}

TEST(TimerQueue, B69_ALateRunSkipsTheMissedOnesAndKeepsToTheGrid) {
  TimerQueue queue;
  int runs = 0;
  queue.Add(50, 50, [&] { ++runs; });
  RunDue(queue, 60);  // late by less than a period
  EXPECT_EQ(queue.NextDeadline(), 100);
  RunDue(queue, 100);
  EXPECT_EQ(queue.NextDeadline(), 150);
  RunDue(queue, 200);  // late by exactly one
  EXPECT_EQ(queue.NextDeadline(), 250);
  RunDue(queue, 1'000'000'013);  // late by millions
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(queue.NextDeadline(), 1'000'000'050);
}

TEST(TimerQueue, B72_CancelledAndFinishedTimersLeaveNothing) {
  TimerQueue queue;
  const auto alive = std::make_shared<int>(0);
  const auto in_use = [] { return static_cast<int64_t>(mallinfo2().uordblks); };
  [[maybe_unused]] const int64_t before = in_use();

  std::vector<TimerId> ids;
  ids.reserve(200'000);
  for (int i = 0; i < 200'000; ++i) {
    ids.push_back(queue.Add(kHour + i, 0, [alive] {}));
  }
  EXPECT_EQ(queue.size(), 200'000u);
  [[maybe_unused]] const int64_t full = in_use();
  for (const TimerId id : ids) ASSERT_TRUE(queue.Cancel(id));
  std::vector<TimerId>().swap(ids);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.NextDeadline(), TimerQueue::kNever);
  EXPECT_EQ(alive.use_count(), 1);

  int runs = 0;
  for (int i = 0; i < 100'000; ++i) {
    queue.Add(i, 0, [alive, &runs] { ++runs; });
  }
  RunDue(queue, 100'000);
  EXPECT_EQ(runs, 100'000);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(alive.use_count(), 1);
#ifndef SLUICE_TEST_OWN_MALLOC
  EXPECT_GT(full - before, 5'000'000);  // the measure works
  EXPECT_LT(in_use() - before, 100'000);
#endif
}

TEST(TimerQueue, AOneShotIsOverWhenItsTaskBegins) {
  TimerQueue queue;
  TimerId id;
  bool cancelled = true;
  id = queue.Add(1, 0, [&] {
    EXPECT_EQ(queue.size(), 0u);
    cancelled = queue.Cancel(id);
  });
  RunDue(queue, 1);
  EXPECT_FALSE(cancelled);
}

TEST(TimerQueue, IdsAreNeverReused) {
  TimerQueue queue;
  TimerId last;
  for (int i = 0; i < 1000; ++i) {
    const TimerId id = queue.Add(1, i % 2, [] {});
    EXPECT_GT(id, last);
    last = id;
    if (i % 3 == 0) {
      EXPECT_TRUE(queue.Cancel(id));
    }
    if (i % 100 == 0) RunDue(queue, 10);
  }
  EXPECT_FALSE(queue.Cancel(TimerId{}));
  EXPECT_FALSE(queue.Cancel(TimerId{last.value + 1}));
}

TEST(TimerQueue, AnExceptionLeavesTheQueueWhole) {
  TimerQueue queue;
  int repeats = 0;
  int after = 0;
  const auto alive = std::make_shared<int>(0);
  const TimerId repeating = queue.Add(10, 10, [&, alive] {
    ++repeats;
    throw std::runtime_error("repeating");
  });
  queue.Add(11, 0, [&, alive] { throw std::runtime_error("once"); });
  queue.Add(12, 0, [&] { ++after; });

  EXPECT_THROW(RunDue(queue, 15), std::runtime_error);
  EXPECT_EQ(repeats, 1);
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_THROW(RunDue(queue, 15), std::runtime_error);  // the one-shot
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(alive.use_count(), 2);
  RunDue(queue, 15);
  EXPECT_EQ(after, 1);
  EXPECT_EQ(queue.NextDeadline(), 20);
  EXPECT_THROW(RunDue(queue, 20), std::runtime_error);
  EXPECT_EQ(repeats, 2);
  EXPECT_TRUE(queue.Cancel(repeating));
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(TimerQueue, ATaskThatIsNotRunIsStillArmed) {
  TimerQueue queue;
  int runs = 0;
  queue.Add(10, 10, [&] { ++runs; });
  queue.RunDue(10, [](TimerTask&) {});
  RunDue(queue, 20);
  EXPECT_EQ(runs, 1);
}

TEST(TimerQueue, AClosureMayUseTheQueueWhenItIsDestroyed) {
  TimerQueue queue;
  int destroyed = 0;
  struct AtEnd {
    TimerQueue* queue;
    TimerId other;
    int* destroyed;
    ~AtEnd() {
      ++*destroyed;
      queue->Cancel(other);
      queue->Cancel(queue->Add(1, 0, [] {}));
    }
  };
  for (const bool run : {false, true}) {
    const TimerId other = queue.Add(kHour, 0, [] {});
    auto at_end = std::make_unique<AtEnd>(AtEnd{&queue, other, &destroyed});
    destroyed = 0;
    const TimerId id = queue.Add(5, 0, [p = std::move(at_end)] {});
    if (run) {
      RunDue(queue, 5);
    } else {
      EXPECT_TRUE(queue.Cancel(id));
    }
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(queue.size(), 0u);
  }
}

TEST(TimerQueue, TheEndsOfTimeDoNotOverflow) {
  TimerQueue queue;
  int runs = 0;
  queue.Add(TimerQueue::kNever, 0, [&] { runs += 1000; });
  queue.Add(INT64_MIN, INT64_MAX, [&] { ++runs; });
  queue.Add(TimerQueue::kNever - 1, 10, [&] { ++runs; });
  RunDue(queue, INT64_MIN);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(queue.NextDeadline(), -1);
  RunDue(queue, TimerQueue::kNever - 1);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(queue.NextDeadline(), TimerQueue::kNever);
  RunDue(queue, TimerQueue::kNever);
  EXPECT_EQ(runs, 3);
}

// Random steps beside a plain map from id to {deadline, period}.
TEST(TimerQueue, AgreesWithAPlainModel) {
  std::mt19937 random(11);
  const auto below = [&](int n) {
    return std::uniform_int_distribution<int>(0, n - 1)(random);
  };
  TimerQueue queue;
  std::map<uint64_t, std::pair<int64_t, int64_t>> model;
  uint64_t newest = 0;
  int64_t now = 0;
  uint64_t runs = 0;

  const auto cancel_random = [&] {
    if (newest == 0) return;
    const uint64_t id =
        newest - static_cast<uint64_t>(below(300)) % newest;  // 1 ... newest
    EXPECT_EQ(queue.Cancel(TimerId{id}), model.erase(id) == 1);
  };
  std::function<void(uint64_t)> ran;
  const auto add = [&] {
    const int64_t deadline = now + below(40) - 10;
    const int64_t period = below(2) == 0 ? 0 : 1 + below(30);
    const uint64_t id = newest + 1;
    EXPECT_EQ(queue.Add(deadline, period, [&ran, id] { ran(id); }).value, id);
    model[id] = {deadline, period};
    newest = id;
  };
  uint64_t newest_at_start = 0;
  std::pair<int64_t, uint64_t> previous;
  ran = [&](uint64_t id) {
    ++runs;
    const auto it = model.find(id);
    ASSERT_NE(it, model.end());
    const auto [deadline, period] = it->second;
    EXPECT_LE(deadline, now);
    EXPECT_LE(id, newest_at_start);
    EXPECT_LT(previous, (std::pair{deadline, id}));
    previous = {deadline, id};
    if (period == 0) {
      model.erase(it);
    } else {
      while (it->second.first <= now) it->second.first += period;
    }
    if (below(3) == 0 && model.size() < 100) add();
    if (below(3) == 0) cancel_random();
  };
  for (int step = 0; step < 20'000; ++step) {
    if (below(3) == 0 && model.size() < 100) add();
    if (below(4) == 0) cancel_random();
    now += below(10) == 0 ? below(200) : below(3);
    newest_at_start = newest;
    previous = {INT64_MIN, 0};
    RunDue(queue, now);
    ASSERT_EQ(queue.size(), model.size());
    int64_t first = TimerQueue::kNever;
    for (const auto& [id, timer] : model) {
      first = std::min(first, timer.first);
      if (id <= newest_at_start) {
        ASSERT_GT(timer.first, now) << "not run";
      }
    }
    ASSERT_EQ(queue.NextDeadline(), first);
  }
  EXPECT_GT(runs, 5000u);
}

}  // namespace
}  // namespace sluice::internal
