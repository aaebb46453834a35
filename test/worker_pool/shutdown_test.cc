// How a pool ends, before its engine and after it.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/loop_block.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

struct Ways {
  JobOrder order;
  AtShutdown policy;
};

std::string WaysName(const ::testing::TestParamInfo<Ways>& info) {
  return std::string(info.param.order == JobOrder::kUnordered ? "Unordered"
                                                              : "InOrder") +
         (info.param.policy == AtShutdown::kFinish ? "Finish" : "Cancel");
}

class ShutdownTest : public ::testing::TestWithParam<Ways> {
 protected:
  static WorkerPoolOptions Options(int threads, size_t queue) {
    WorkerPoolOptions options = PoolOptions(threads, queue);
    options.order = GetParam().order;
    options.at_shutdown = GetParam().policy;
    return options;
  }
  static bool finishes() { return GetParam().policy == AtShutdown::kFinish; }
};

// The queue is full to its last place, the workers are all busy.
TEST_P(ShutdownTest, AFullQueue) {
  constexpr size_t kQueue = 2'000;
  constexpr size_t kConnections = 10;
  ConnectedServer side(kConnections, 2);
  auto pool = MakePool(Options(2, kQueue));
  auto captured = std::make_shared<int>(1);
  std::atomic<size_t> ran{0};
  std::atomic<size_t> told{0};
  std::atomic<size_t> told_cancelled{0};
  std::vector<std::atomic<int>> last(kConnections);
  for (auto& l : last) l = -1;
  {
    WorkerBlock block(*pool, 2);
    for (size_t i = 0; i < kQueue; ++i) {
      if (i % 4 == 0) {
        ASSERT_TRUE(pool->Submit([&ran, captured] { ++ran; }).ok());
        continue;
      }
      const size_t c = i % kConnections;
      const int number = static_cast<int>(i);
      ASSERT_TRUE(
          pool->Submit(
                  side.ref(c), [&ran, captured] { ++ran; },
                  [&, c, number, captured](Connection&, absl::Status s) {
                    ++told;
                    if (absl::IsCancelled(s)) {
                      ++told_cancelled;
                    } else {
                      EXPECT_TRUE(s.ok()) << s.ToString();
                    }
                    const int before = last[c].exchange(number);
                    if (GetParam().order == JobOrder::kPerConnection) {
                      EXPECT_GT(number, before);
                    }
                  })
              .ok());
    }
    ASSERT_EQ(pool->Submit([] {}).code(), absl::StatusCode::kResourceExhausted);
    pool->BeginShutdown();
    EXPECT_EQ(pool->Submit([] {}).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(pool->Submit(
                      side.ref(), [] {}, [](Connection&, absl::Status) {})
                  .code(),
              absl::StatusCode::kUnavailable);
    if (!finishes()) {
      // Those who wait hear it although both workers are held up.
      EXPECT_TRUE(WaitUntil([&] { return told == kQueue - kQueue / 4; }));
      EXPECT_EQ(pool->stats().queued, 0u);
      EXPECT_EQ(pool->stats().running, 2u);
    }
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_TRUE(WaitUntil([&] { return told == kQueue - kQueue / 4; }));
  for (int i = 0; i < 2; ++i) TurnOver(side.loop(i));
  EXPECT_EQ(captured.use_count(), 1);
  const WorkerPoolStats s = pool->stats();
  EXPECT_EQ(s.refused, 2u);
  EXPECT_EQ(s.rejected, 1u);
  EXPECT_EQ(s.submitted, kQueue + 2);
  EXPECT_EQ(s.cancelled, finishes() ? 0u : kQueue);
  EXPECT_EQ(ran, finishes() ? kQueue : 0u);
  EXPECT_EQ(told_cancelled, finishes() ? 0u : told.load());
  EXPECT_EQ(s.dropped, 0u);
  ExpectBalanced(s);
}

// Jobs that wait for one of their connection that runs.
TEST_P(ShutdownTest, ALineBehindARunningJob) {
  ConnectedServer side(1);
  auto pool = MakePool(Options(2, 100));
  Event begun;
  Event release;
  std::vector<int> told;  // the loop's
  std::vector<int> cancelled;
  std::atomic<int> count{0};
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(),
                        [&, i] {
                          if (i == 0) begun.Set();
                          EXPECT_TRUE(release.Wait());
                        },
                        [&, i](Connection&, absl::Status s) {
                          told.push_back(i);
                          if (absl::IsCancelled(s)) cancelled.push_back(i);
                          ++count;
                        })
                    .ok());
    // The first one runs before the others are there.
    if (!begun.Wait()) FAIL();
  }
  pool->BeginShutdown();
  release.Set();
  ASSERT_TRUE(pool->Shutdown().ok());
  ASSERT_TRUE(WaitUntil([&] { return count == 10; }));
  if (GetParam().order == JobOrder::kPerConnection) {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(told[static_cast<size_t>(i)], i);
    EXPECT_EQ(cancelled.size(), finishes() ? 0u : 9u);
  }
  ExpectBalanced(pool->stats());
  EXPECT_EQ(pool->stats().cancelled, cancelled.size());
}

// Submissions from many threads while it shuts down: each was refused, or ran
// once, or was cancelled once.
TEST_P(ShutdownTest, SubmitMeanwhile) {
  constexpr int kRounds = kSanitized ? 20 : 100;
  constexpr int kThreads = 4;
  ConnectedServer side(4);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    auto pool =
        MakePool(Options(1 + round % 4, static_cast<size_t>(1 + round * 10)));
    std::atomic<uint64_t> accepted{0};
    std::atomic<uint64_t> refused{0};
    std::atomic<uint64_t> full{0};
    std::atomic<uint64_t> worked{0};
    std::atomic<uint64_t> told{0};
    std::atomic<uint64_t> expected{0};
    std::atomic<int> started{0};
    std::vector<int> last(kThreads, -1);  // the loop's
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ++started;
        const auto own = static_cast<size_t>(t);
        for (int i = 0;; ++i) {
          absl::Status s;
          if (i % 2 == 0) {
            s = pool->Submit([&] { ++worked; });
          } else {
            s = pool->Submit(
                side.ref(own), [&] { ++worked; },
                [&, own, i](Connection&, absl::Status) {
                  if (GetParam().order == JobOrder::kPerConnection) {
                    EXPECT_GT(i, last[own]);
                  }
                  last[own] = i;
                  ++told;
                });
            if (s.ok()) ++expected;
          }
          if (s.ok()) {
            ++accepted;
          } else if (absl::IsUnavailable(s)) {
            ++refused;
            return;
          } else {
            EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
            ++full;
            std::this_thread::yield();
          }
        }
      });
    }
    while (started < kThreads) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 7)));
    ASSERT_TRUE(pool->Shutdown().ok());
    for (std::thread& thread : threads) thread.join();
    const WorkerPoolStats s = pool->stats();
    ExpectBalanced(s);
    EXPECT_EQ(s.submitted, accepted);
    EXPECT_EQ(s.refused, refused);
    EXPECT_EQ(s.rejected, full);
    EXPECT_EQ(worked, s.done);
    if (finishes()) {
      EXPECT_EQ(s.cancelled, 0u);
    }
    EXPECT_TRUE(WaitUntil([&] { return told == expected; }));
    EXPECT_EQ(s.dropped, 0u);
  }
}

TEST_P(ShutdownTest, TheDestructorShutsDown) {
  auto captured = std::make_shared<int>(1);
  std::atomic<int> ran{0};
  {
    auto pool = MakePool(Options(2, 100));
    for (int i = 0; i < 100; ++i) {
      (void)pool->Submit([&ran, captured] { ++ran; });
    }
  }
  EXPECT_EQ(captured.use_count(), 1);
  if (finishes()) {
    EXPECT_EQ(ran, 100);
  }
}

// The pool is gone when its results arrive.
TEST_P(ShutdownTest, ThePoolEndsBeforeTheEngine) {
  constexpr size_t kJobs = 50;
  ConnectedServer side(2);
  std::atomic<size_t> told{0};
  auto captured = std::make_shared<int>(1);
  {
    auto pool = MakePool(Options(2, 1000));
    LoopBlock block(side.loop());
    for (size_t i = 0; i < kJobs; ++i) {
      ASSERT_TRUE(pool->Submit(
                          side.ref(i % 2), [] { return 1; },
                          [&told, captured](Connection&, absl::StatusOr<int>) {
                            ++told;
                          })
                      .ok());
    }
    // This one's results are dropped by the loop, after the pool.
    ASSERT_TRUE(side.ref(1).Close(CloseMode::kNow).ok());
    pool.reset();
  }
  EXPECT_TRUE(WaitUntil([&] { return captured.use_count() == 1; }));
  EXPECT_GE(told, kJobs / 2);
}

// The engine is gone when jobs end: their results are dropped and counted.
TEST_P(ShutdownTest, TheEngineEndsBeforeThePool) {
  constexpr int kJobs = 50;
  auto pool = MakePool(Options(2, 1000));
  auto captured = std::make_shared<int>(1);
  std::atomic<int> told{0};
  auto side = std::make_unique<ConnectedServer>(2);
  const std::vector<ConnectionRef> refs = side->refs();
  {
    WorkerBlock block(*pool, 2);
    for (size_t i = 0; i < kJobs; ++i) {
      ASSERT_TRUE(
          pool->Submit(
                  refs[i % 2], [] {},
                  [&told, captured](Connection&, absl::Status) { ++told; })
              .ok());
    }
    side.reset();
  }
  // A ticket is good for ever.
  const absl::Status late = pool->Submit(
      refs[0], [] {}, [&told, captured](Connection&, absl::Status) { ++told; });
  EXPECT_TRUE(late.ok()) << late.ToString();
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(told, 0);
  EXPECT_EQ(pool->stats().dropped, uint64_t{kJobs + 1});
  EXPECT_EQ(captured.use_count(), 1);
  ExpectBalanced(pool->stats());
}

// On a worker it only begins.
TEST_P(ShutdownTest, FromAWorker) {
  auto pool = MakePool(Options(2, 100));
  absl::Status from_worker;
  ASSERT_TRUE(pool->Submit([&] { from_worker = pool->Shutdown(); }).ok());
  ASSERT_TRUE(WaitUntil([&] { return pool->stats().done == 1; }));
  EXPECT_EQ(pool->Submit([] {}).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(from_worker.code(), absl::StatusCode::kFailedPrecondition);
}

// It holds the loop up, and what it posts to that loop comes later.
TEST_P(ShutdownTest, FromALoop) {
  constexpr int kJobs = 200;
  ConnectedServer side(1);
  auto pool = MakePool(Options(2, kJobs));
  std::atomic<int> told{0};
  RunOn(side.loop(), [&] {
    for (int i = 0; i < kJobs; ++i) {
      ASSERT_TRUE(pool->Submit(
                          side.ref(), [] {},
                          [&told](Connection&, absl::Status) { ++told; })
                      .ok());
    }
    EXPECT_TRUE(pool->Shutdown().ok());
    ExpectBalanced(pool->stats());
    EXPECT_EQ(told, 0) << "inside of Shutdown";
  });
  EXPECT_TRUE(WaitUntil([&] { return told == kJobs; }));
  EXPECT_EQ(pool->stats().dropped, 0u);
}

TEST_P(ShutdownTest, FromManyThreadsAndAgain) {
  auto pool = MakePool(Options(3, 1000));
  std::atomic<int> ran{0};
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(pool->Submit([&] { ++ran; }).ok());
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(pool->Shutdown().ok());
      ExpectBalanced(pool->stats());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(pool->stats().done + pool->stats().cancelled, 500u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ShutdownTest,
    ::testing::Values(Ways{JobOrder::kUnordered, AtShutdown::kFinish},
                      Ways{JobOrder::kUnordered, AtShutdown::kCancel},
                      Ways{JobOrder::kPerConnection, AtShutdown::kFinish},
                      Ways{JobOrder::kPerConnection, AtShutdown::kCancel}),
    WaysName);

TEST(Shutdown, AnImpatientSecondCallCancels) {
  auto pool = MakePool(PoolOptions(1, 100));
  std::atomic<int> ran{0};
  {
    WorkerBlock block(*pool);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(pool->Submit([&] { ++ran; }).ok());
    }
    pool->BeginShutdown(AtShutdown::kFinish);
    EXPECT_EQ(pool->stats().queued, 100u);
    pool->BeginShutdown(AtShutdown::kCancel);
    EXPECT_EQ(pool->stats().queued, 0u);
    // And not back again.
    pool->BeginShutdown(AtShutdown::kFinish);
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(pool->stats().cancelled, 100u);
}

// Work whose destructor calls a function.
template <typename Function>
class AtDestruction {
 public:
  explicit AtDestruction(Function function) : function_(std::move(function)) {}
  AtDestruction(AtDestruction&& other) noexcept
      : function_(other.function_),
        armed_(std::exchange(other.armed_, false)) {}
  ~AtDestruction() {
    if (armed_) function_();
  }
  void operator()() {}

 private:
  Function function_;
  bool armed_ = true;
};

// What is destroyed by a cancelling shutdown shuts down as well, on the thread
// that cancels.
TEST(Shutdown, FromADestructorOfCancelledWork) {
  auto pool = MakePool(PoolOptions(1, 100));
  std::atomic<int> refused{0};
  {
    WorkerBlock block(*pool);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(pool->Submit(AtDestruction([&pool, &refused] {
                        // Waiting, it would wait for itself.
                        if (absl::IsFailedPrecondition(
                                pool->Shutdown(AtShutdown::kCancel))) {
                          ++refused;
                        }
                      }))
                      .ok());
    }
    pool->BeginShutdown(AtShutdown::kCancel);
    EXPECT_EQ(refused, 10);
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(pool->stats().cancelled, 10u);
}

// One thread cancels and is held up by it; another one's Shutdown, with all
// workers idle, waits for that job too.
TEST(Shutdown, WaitsForTheThreadThatCancels) {
  auto pool = MakePool(PoolOptions(1));
  Event cancelling;
  Event go_on;
  std::thread canceller;
  {
    WorkerBlock block(*pool);
    ASSERT_TRUE(pool->Submit(AtDestruction([&] {
                      cancelling.Set();
                      EXPECT_TRUE(go_on.Wait());
                    }))
                    .ok());
    canceller = std::thread([&] { pool->BeginShutdown(AtShutdown::kCancel); });
    EXPECT_TRUE(cancelling.Wait());
  }
  Event returned;
  std::thread other([&] {
    EXPECT_TRUE(pool->Shutdown().ok());
    ExpectBalanced(pool->stats());
    returned.Set();
  });
  EXPECT_FALSE(returned.Wait(std::chrono::milliseconds(50)));
  go_on.Set();
  other.join();
  canceller.join();
}

// Some want the queue finished, some cancelled, all at once.
TEST(Shutdown, FinishAndCancelAtTheSameTime) {
  constexpr int kRounds = kSanitized ? 30 : 300;
  ConnectedServer side(3);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    constexpr size_t kJobs = 300;
    WorkerPoolOptions options = PoolOptions(1 + round % 3, kJobs);
    if (round % 2 == 0) options.order = JobOrder::kPerConnection;
    auto pool = MakePool(options);
    auto captured = std::make_shared<int>(1);
    std::atomic<size_t> told{0};
    for (size_t i = 0; i < kJobs; ++i) {
      ASSERT_TRUE(pool->Submit(
                          side.ref(i % 3), [captured] {},
                          [&told](Connection&, absl::Status) { ++told; })
                      .ok());
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        EXPECT_TRUE(pool->Shutdown(t % 2 == 0 ? AtShutdown::kFinish
                                              : AtShutdown::kCancel)
                        .ok());
        ExpectBalanced(pool->stats());
        EXPECT_EQ(captured.use_count(), 1) << "a job is not over";
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool->stats().submitted, kJobs);
    EXPECT_TRUE(WaitUntil([&] { return told == kJobs; }));
    EXPECT_EQ(pool->stats().dropped, 0u);
  }
}

TEST(Shutdown, AnIdlePool) {
  for (const int threads : {1, 2, 16}) {
    auto pool = MakePool(PoolOptions(threads));
    if (threads == 16) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(pool->Shutdown().ok());
    EXPECT_EQ(pool->stats().submitted, 0u);
  }
}

TEST(ShutdownDeathTest, DestroyedByItsOwnJob) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        std::shared_ptr<WorkerPool> pool = MakePool(PoolOptions(1));
        auto handed = std::make_shared<Event>();
        (void)pool->Submit([pool, handed]() mutable {
          (void)handed->Wait();
          pool.reset();
        });
        pool.reset();
        handed->Set();
        std::this_thread::sleep_for(kPatience);
      },
      "destroyed by one of its own jobs");
}

}  // namespace
}  // namespace sluice::test
