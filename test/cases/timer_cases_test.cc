// wrap: epoll_wait epoll_pwait2
// Cases of timers: what went wrong elsewhere and must not here.

#include <malloc.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

extern "C" {
int __real_epoll_wait(int fd, epoll_event* events, int room, int timeout);
int __wrap_epoll_wait(int fd, epoll_event* events, int room, int timeout);
int __real_epoll_pwait2(int fd, epoll_event* events, int room,
                        const timespec* timeout, const sigset_t* mask);
int __wrap_epoll_pwait2(int fd, epoll_event* events, int room,
                        const timespec* timeout, const sigset_t* mask);
}

namespace sluice::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kTcp[] = "tcp://127.0.0.1:0";

thread_local int waits_of_this_thread = 0;

// With one reactor the loop that serves is the main one as well.
class TimerCases : public ::testing::TestWithParam<int> {
 protected:
  struct EchoHandler : LambdaHandler {
    EchoHandler() { on_traffic = EchoTraffic; }
  };
  TimerCases() : server_(handler_, {kTcp}, MakeOptions()) {}
  static Options MakeOptions() { return TestOptions(GetParam()); }

  Reactor& loop() { return server_.engine().reactor(0); }

  // Runs `function` on the loop, which then stands until `time` has passed: all
  // that `function` made due by then is due in one and the same turn.
  template <typename Function>
  void RunAndStand(milliseconds time, Function function) {
    RunOn(loop(), [time, function = std::move(function)]() mutable {
      function();
      std::this_thread::sleep_for(time);
    });
  }

  EchoHandler handler_;
  TestServer server_;
};

TEST_P(TimerCases, B65_ATimerCancelsOneThatIsDueInTheSameTurn) {
  Event over;
  bool second_ran = false;
  bool cancelled = false;
  bool again = true;
  bool first_after_it_ran = true;
  TimerId first;
  TimerId second;
  RunAndStand(milliseconds(20), [&] {
    first = loop().RunAfter(milliseconds(1), [&] {
      cancelled = loop().Cancel(second);
      again = loop().Cancel(second);
    });
    second = loop().RunAfter(milliseconds(2), [&] { second_ran = true; });
    loop().RunAfter(milliseconds(3), [&] {
      first_after_it_ran = loop().Cancel(first);
      over.Set();
    });
  });
  ASSERT_TRUE(over.Wait());
  TurnOver(loop());
  EXPECT_TRUE(cancelled);
  EXPECT_FALSE(again);
  EXPECT_FALSE(second_ran);
  EXPECT_FALSE(first_after_it_ran) << "it had run and cannot be cancelled";
  EXPECT_EQ(server_.stats().timers, 0u);
}

TEST_P(TimerCases, B66_RepeatingTimerCancelsItself) {
  constexpr int kTimers = 10'000;
  struct Repeating {
    int runs = 0;
    int cancelled = 0;
    TimerId id;
  };
  std::vector<Repeating> all(kTimers);
  std::atomic<int> over{0};
  // What the closures hold must go as well.
  auto held = std::make_shared<int>(0);
  RunOn(loop(), [&] {
    for (Repeating& one : all) {
      one.id = loop().RunEvery(milliseconds(1), [&one, &over, held, this] {
        if (++one.runs < 3) return;
        one.cancelled += loop().Cancel(one.id);
        ++over;
      });
    }
  });
  ASSERT_TRUE(WaitUntil([&] { return over >= kTimers; })) << over;
  std::this_thread::sleep_for(milliseconds(20));  // for a fourth run
  TurnOver(loop());
  EXPECT_EQ(over, kTimers);
  EXPECT_EQ(server_.stats().timers, 0u);
  RunOn(loop(), [&] {
    EXPECT_EQ(held.use_count(), 1);
    for (const Repeating& one : all) {
      ASSERT_EQ(one.runs, 3);
      ASSERT_EQ(one.cancelled, 1);
      ASSERT_FALSE(loop().Cancel(one.id));
    }
  });
}

TEST_P(TimerCases, B68_ATimerThatReAddsItselfStarvesNobody) {
  std::function<void()> again;
  std::atomic<uint64_t> runs{0};
  RunOn(loop(), [&] {
    again = [&] {
      ++runs;
      loop().RunAfter(milliseconds(0), again);
    };
    again();
  });
  ASSERT_TRUE(WaitUntil([&] { return runs > 100; }));
  // To a loop that never leaves its timers nothing of this would get through.
  Client client = Client::Connect(server_.address());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Echo("ping"));
  TurnOver(loop());
  EXPECT_EQ(server_.stats().timers, 1u);
  server_.Stop();
  EXPECT_TRUE(server_.WaitForRun().ok());
}

// --- B69

struct Run {
  Clock::time_point begin;
  Clock::time_point end;
};

constexpr milliseconds kPeriod{50};

// Runs a timer of kPeriod for `time`; task(i) is run number i, from 0.
struct Record {
  Clock::time_point set;  // just before RunEvery
  std::vector<Run> runs;
};
Record RunPeriodic(Reactor& loop, milliseconds time,
                   const std::function<void(size_t)>& task) {
  Record record;
  TimerId timer;
  RunOn(loop, [&] {
    record.set = Clock::now();
    timer = loop.RunEvery(kPeriod, [&] {
      const Clock::time_point begin = Clock::now();
      if (begin - record.set > time) return;
      task(record.runs.size());
      record.runs.push_back({begin, Clock::now()});
    });
  });
  std::this_thread::sleep_for(time);
  RunOn(loop, [&] { EXPECT_TRUE(loop.Cancel(timer)); });
  return record;
}

// Run i is never before the i-th point of the grid, however late the others.
void ExpectNeverEarly(const Record& record) {
  for (size_t i = 0; i < record.runs.size(); ++i) {
    EXPECT_GE(record.runs[i].begin - record.set,
              kPeriod * static_cast<int>(i + 1))
        << "run " << i;
  }
}

// A busy machine may make runs late and so fewer; then we try again. What must
// never be is checked each time.
constexpr int kAttempts = 20;

TEST_P(TimerCases, B69_TheTasksTimeDoesNotAddUp) {
  size_t most = 0;
  for (int attempt = 0; attempt < kAttempts && most < 19; ++attempt) {
    const Record record = RunPeriodic(loop(), milliseconds(1000), [](size_t) {
      std::this_thread::sleep_for(milliseconds(20));
    });
    ExpectNeverEarly(record);
    most = std::max(most, record.runs.size());
  }
  // 14 if every run began 50 ms after the end of the one before.
  EXPECT_GE(most, 19u);
  EXPECT_LE(most, 20u);
}

TEST_P(TimerCases, B69_ATaskLongerThanThePeriodIsNotCaughtUpWith) {
  bool prompt = false;
  for (int attempt = 0; attempt < kAttempts && !prompt; ++attempt) {
    const Record record = RunPeriodic(loop(), milliseconds(1000), [](size_t) {
      std::this_thread::sleep_for(milliseconds(120));
    });
    ExpectNeverEarly(record);
    for (size_t i = 1; i < record.runs.size(); ++i) {
      const auto pause = record.runs[i].begin - record.runs[i - 1].end;
      if (pause < kPeriod) prompt = true;
    }
  }
  EXPECT_TRUE(prompt) << "after each long run a whole period was waited for";
}

TEST_P(TimerCases, B69_AfterALongStandThereIsNoBurst) {
  const Record record = RunPeriodic(loop(), milliseconds(1500), [](size_t run) {
    if (run == 0) std::this_thread::sleep_for(milliseconds(700));
  });
  ExpectNeverEarly(record);
  ASSERT_GE(record.runs.size(), 1u);
  const Clock::time_point end = record.runs[0].end;
  for (size_t i = 1; i < record.runs.size(); ++i) {
    // One that was missed may come at once, the next at a point of the grid
    // after it; from there on each takes a period.
    EXPECT_GE(record.runs[i].begin - end, kPeriod * (static_cast<int>(i) - 2))
        << "run " << i;
  }
}

// --- B71

struct Waited {
  int waits = 0;
  Clock::duration time{};
};

// What the loop does until a timer of `delay` runs.
Waited WaitsOf(Reactor& loop, std::chrono::nanoseconds delay) {
  Waited waited;
  Event ran;
  RunOn(loop, [&] {
    const int before = waits_of_this_thread;
    const Clock::time_point set = Clock::now();
    loop.RunAfter(delay, [&, before, set] {
      waited = {waits_of_this_thread - before, Clock::now() - set};
      ran.Set();
    });
  });
  EXPECT_TRUE(ran.Wait());
  return waited;
}

TEST_P(TimerCases, B71_ShortTimersAreNeverEarlyAndDoNotSpin) {
  TurnOver(loop());
  for (const microseconds delay :
       {microseconds(900), microseconds(10'500), microseconds(1),
        microseconds(50), microseconds(1'001), microseconds(99'999)}) {
    for (int i = 0; i < 20; ++i) {
      const uint64_t turns_before = server_.stats().turns;
      const Waited waited = WaitsOf(loop(), delay);
      EXPECT_GE(waited.time, delay);
      EXPECT_GE(waited.waits, 1) << "epoll waits are not counted";
      EXPECT_LE(waited.waits, 3) << delay.count() << " us";
      // One for the task that sets it beside those of the timer.
      EXPECT_LE(server_.stats().turns - turns_before, 5u);
    }
  }
}

TEST_P(TimerCases, B71_AThirtyDayTimerNeitherFiresNorSpins) {
  std::atomic<bool> fired{false};
  TimerId timer;
  int waits = 0;
  RunOn(loop(), [&] {
    timer = loop().RunAfter(std::chrono::hours(24 * 30), [&] { fired = true; });
    waits = waits_of_this_thread;
  });
  EXPECT_EQ(server_.stats().timers, 1u);
  const uint64_t turns = server_.stats().turns;
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LE(server_.stats().turns - turns, 3u);
  RunOn(loop(), [&] { EXPECT_LE(waits_of_this_thread - waits, 3); });
  // A shorter one is not held back by it.
  EXPECT_LE(WaitsOf(loop(), milliseconds(5)).waits, 3);
  RunOn(loop(), [&] { EXPECT_TRUE(loop().Cancel(timer)); });
  EXPECT_FALSE(fired);
}

// 292 years: what many write for "never".
TEST_P(TimerCases, B71_TheLongestTimeNeitherFiresNorOverflows) {
  std::atomic<int> fired{0};
  RunOn(loop(), [&] {
    loop().RunAfter(std::chrono::nanoseconds::max(), [&] { ++fired; });
    loop().RunEvery(std::chrono::nanoseconds::max(), [&] { ++fired; });
    loop().RunAfter(std::chrono::nanoseconds::min(), [] {});
  });
  ASSERT_TRUE(WaitUntil([&] { return server_.stats().timers <= 2; }));
  const uint64_t turns = server_.stats().turns;
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LE(server_.stats().turns - turns, 3u);
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(server_.stats().timers, 2u);
}

// --- B72

// Bytes that malloc has given out.
size_t AllocatedBytes() { return mallinfo2().uordblks; }

TEST_P(TimerCases, B72_CancelledAndFinishedTimersLeaveNothing) {
  constexpr int kCancelled = 200'000;
  constexpr int kOneShot = 100'000;
  constexpr size_t kNear = size_t{1} << 20;
  TurnOver(loop());
  const size_t before = AllocatedBytes();
  RunOn(loop(), [&] {
    {
      std::vector<TimerId> timers;
      timers.reserve(kCancelled);
      for (int i = 0; i < kCancelled; ++i) {
        timers.push_back(loop().RunAfter(std::chrono::hours(1), [] {}));
      }
      ASSERT_EQ(server_.stats().timers, size_t{kCancelled});
      if (!kSanitized) {
        EXPECT_GT(AllocatedBytes(), before + kNear);
      }
      for (const TimerId timer : timers) ASSERT_TRUE(loop().Cancel(timer));
    }
    EXPECT_EQ(server_.stats().timers, 0u);
    if (!kSanitized) {
      EXPECT_LT(AllocatedBytes(), before + kNear);
    }
  });
  std::atomic<int> ran{0};
  RunOn(loop(), [&] {
    for (int i = 0; i < kOneShot; ++i) {
      loop().RunAfter(microseconds(i % 1000), [&] { ++ran; });
    }
  });
  ASSERT_TRUE(WaitUntil([&] { return ran >= kOneShot; })) << ran;
  TurnOver(loop());
  EXPECT_EQ(ran, kOneShot);
  EXPECT_EQ(server_.stats().timers, 0u);
  if (!kSanitized) {
    EXPECT_LT(AllocatedBytes(), before + kNear);
  }
}

INSTANTIATE_TEST_SUITE_P(Reactors, TimerCases, ::testing::Values(1, 2));

}  // namespace
}  // namespace sluice::test

int __wrap_epoll_wait(int fd, epoll_event* events, int room, int timeout) {
  ++sluice::test::waits_of_this_thread;
  return __real_epoll_wait(fd, events, room, timeout);
}

int __wrap_epoll_pwait2(int fd, epoll_event* events, int room,
                        const timespec* timeout, const sigset_t* mask) {
  ++sluice::test::waits_of_this_thread;
  return __real_epoll_pwait2(fd, events, room, timeout, mask);
}
