// Many jobs, few jobs, and jobs of very different length: each runs once, and
// none waits beside a worker that sleeps.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/process_info.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

TEST(Load, EveryJobRunsOnce) {
  constexpr int kThreads = 4;
  constexpr size_t kJobs = kSanitized ? 10'000 : 200'000;  // a thread
  auto pool = MakePool(PoolOptions(3, kThreads * kJobs));
  std::vector<std::vector<std::atomic<uint8_t>>> runs(kThreads);
  for (auto& one : runs) one = std::vector<std::atomic<uint8_t>>(kJobs);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kJobs; ++i) {
        std::atomic<uint8_t>* mark = &runs[t][i];
        ASSERT_TRUE(pool->Submit([mark] { ++*mark; }).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(pool->Shutdown().ok());
  for (const auto& one : runs) {
    for (const auto& mark : one) ASSERT_EQ(mark, 1);
  }
  EXPECT_EQ(pool->stats().done, kThreads * kJobs);
  ExpectBalanced(pool->stats());
}

// With one worker the order is exact, also while it takes batches.
TEST(Load, OneWorkerKeepsTheOrder) {
  constexpr int kJobs = kSanitized ? 20'000 : 300'000;
  auto pool = MakePool(PoolOptions(1, kJobs));
  int next = 0;  // the worker's
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_TRUE(pool->Submit([&next, i] {
                      if (next == i) ++next;
                    })
                    .ok());
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(next, kJobs);
}

// A lost wake-up hangs this one: after each answer everybody goes to sleep,
// sooner or later.
TEST(Load, NoWakeUpIsLost) {
  constexpr int kRounds = kSanitized ? 500 : 5'000;
  auto pool = MakePool(PoolOptions(3));
  for (int i = 0; i < kRounds; ++i) {
    std::atomic<int> done{0};
    const int jobs = 1 + i % 3;
    for (int j = 0; j < jobs; ++j) {
      ASSERT_TRUE(pool->Submit([&done] { ++done; }).ok());
    }
    ASSERT_TRUE(WaitUntil([&] { return done == jobs; })) << "round " << i;
    if (i % 50 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

// The same for a connection's line, where each job calls the next one.
TEST(Load, NoWakeUpIsLostInALine) {
  constexpr int kRounds = kSanitized ? 500 : 5'000;
  ConnectedServer side(2);
  WorkerPoolOptions options = PoolOptions(3);
  options.order = JobOrder::kPerConnection;
  auto pool = MakePool(options);
  for (int i = 0; i < kRounds; ++i) {
    std::atomic<int> told{0};
    const int jobs = 1 + i % 5;
    for (int j = 0; j < jobs; ++j) {
      ASSERT_TRUE(pool->Submit(
                          side.ref(static_cast<size_t>(j % 2 * i % 2)), [] {},
                          [&told](Connection&, absl::Status) { ++told; })
                      .ok());
    }
    ASSERT_TRUE(WaitUntil([&] { return told == jobs; })) << "round " << i;
    if (i % 50 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

// As many jobs as workers run at the same time, whatever was there before.
TEST(Load, AllWorkersWorkAtTheSameTime) {
  constexpr int kWorkers = 8;
  auto pool = MakePool(PoolOptions(kWorkers, 100'000));
  for (int round = 0; round < 20; ++round) {
    // Short jobs, so that workers take many at a time.
    for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(pool->Submit([] {}).ok());
    std::atomic<int> standing{0};
    for (int i = 0; i < kWorkers; ++i) {
      ASSERT_TRUE(pool->Submit([&standing] {
                        ++standing;
                        EXPECT_TRUE(WaitUntil(
                            [&standing] { return standing >= kWorkers; }));
                      })
                      .ok());
    }
    ASSERT_TRUE(WaitUntil([&] { return standing == kWorkers; }));
    ASSERT_TRUE(WaitUntil([&] { return pool->stats().running == 0; }));
  }
}

// A job that blocks among many short ones holds back only itself: what its
// worker had taken with it is run by the others.
TEST(Load, ABlockedJobHoldsNobodyBack) {
  constexpr int kShort = 10'000;
  auto pool = MakePool(PoolOptions(2, 1'000'000));
  for (int round = 0; round < 20; ++round) {
    Event release;
    std::atomic<int> ran{0};
    const auto submit_short = [&] {
      for (int i = 0; i < kShort; ++i) {
        ASSERT_TRUE(pool->Submit([&ran] { ++ran; }).ok());
      }
    };
    submit_short();
    ASSERT_TRUE(pool->Submit([&release] { EXPECT_TRUE(release.Wait()); }).ok());
    submit_short();
    ASSERT_TRUE(WaitUntil([&] { return ran == 2 * kShort; }))
        << "stuck behind the blocked one: " << 2 * kShort - ran;
    EXPECT_EQ(pool->stats().queued, 0u);
    release.Set();
    ASSERT_TRUE(WaitUntil([&] { return pool->stats().running == 0; }));
  }
}

// The same while the queue never gets empty: the old ones are not left behind
// by the new ones.
TEST(Load, TheOldestAreNotLeftBehind) {
  auto pool = MakePool(PoolOptions(2, 1'000'000));
  std::atomic<int> early{0};
  std::atomic<bool> over{false};
  // So that workers take batches.
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(pool->Submit([] {}).ok());
  Event release;
  ASSERT_TRUE(pool->Submit([&release] { EXPECT_TRUE(release.Wait()); }).ok());
  constexpr int kEarly = 1'000;
  for (int i = 0; i < kEarly; ++i) {
    ASSERT_TRUE(pool->Submit([&early] { ++early; }).ok());
  }
  std::thread flood([&] {
    while (!over) {
      if (!pool->Submit([] {}).ok()) std::this_thread::yield();
    }
  });
  EXPECT_TRUE(WaitUntil([&] { return early == kEarly; }));
  over = true;
  flood.join();
  release.Set();
}

// Idle workers sleep.
TEST(Load, AnIdlePoolUsesNoCpu) {
  auto pool = MakePool(PoolOptions(8));
  std::atomic<int> done{0};
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool->Submit([&] { ++done; }).ok());
  ASSERT_TRUE(WaitUntil([&] { return done == 100; }));
  // However late they get there on a loaded machine: a quiet stretch comes.
  EXPECT_TRUE(WaitUntil([] {
    const auto before = ProcessCpuTime();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return ProcessCpuTime() - before < std::chrono::milliseconds(10);
  }));
}

}  // namespace
}  // namespace sluice::test
