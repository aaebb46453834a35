// The bound of the queue, and what is counted.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

TEST(Queue, AFullQueueRefusesAndNamesItsLength) {
  auto pool = MakePool(PoolOptions(2, 3));
  WorkerBlock block(*pool, 2);
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pool->Submit([&] { ++ran; }).ok());
  }
  auto captured = std::make_shared<int>(1);
  for (int i = 0; i < 4; ++i) {
    const absl::Status s = pool->Submit([&ran, captured] { ran += 100; });
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(s.ToString(), HasSubstr("3 jobs wait"));
  }
  EXPECT_EQ(captured.use_count(), 1) << "what was refused is destroyed";
  WorkerPoolStats s = pool->stats();
  EXPECT_EQ(s.queued, 3u);
  EXPECT_EQ(s.running, 2u);
  EXPECT_EQ(s.submitted, 5u);
  EXPECT_EQ(s.rejected, 4u);
  EXPECT_EQ(s.done, 0u);
  block.Release();
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(ran, 3);
  s = pool->stats();
  EXPECT_EQ(s.done, 5u);
  EXPECT_EQ(s.rejected, 4u);
  ExpectBalanced(s);
}

// Each place is free again as soon as its job has begun.
TEST(Queue, APlaceIsFreeWhenItsJobBegins) {
  auto pool = MakePool(PoolOptions(1, 1));
  auto first = std::make_unique<WorkerBlock>(*pool);
  for (int round = 0; round < 200; ++round) {
    // One runs, so this one waits; then it runs, so the next one may wait.
    Event begun;
    auto release = std::make_shared<Event>();
    ASSERT_TRUE(pool->Submit([&begun, release] {
                      begun.Set();
                      EXPECT_TRUE(release->Wait());
                    })
                    .ok());
    ASSERT_EQ(pool->Submit([] {}).code(), absl::StatusCode::kResourceExhausted);
    first->Release();
    ASSERT_TRUE(begun.Wait());
    EXPECT_EQ(pool->stats().queued, 0u);
    first.reset();
    std::atomic<bool> behind{false};
    ASSERT_TRUE(pool->Submit([&] { behind = true; }).ok());
    ASSERT_EQ(pool->Submit([] {}).code(), absl::StatusCode::kResourceExhausted);
    release->Set();
    ASSERT_TRUE(WaitUntil([&] { return behind.load(); }));
    ASSERT_TRUE(WaitUntil([&] { return pool->stats().running == 0; }));
    first = std::make_unique<WorkerBlock>(*pool);
  }
  EXPECT_EQ(pool->stats().rejected, 400u);
}

// Also the jobs that wait for one of their connection.
TEST(Queue, JobsInOrderCountOnceEach) {
  ConnectedServer side(1);
  WorkerPoolOptions options = PoolOptions(2, 4);
  options.order = JobOrder::kPerConnection;
  auto pool = MakePool(options);
  Event release;
  std::atomic<int> told{0};
  const auto submit = [&] {
    return pool->Submit(
        side.ref(), [&] { EXPECT_TRUE(release.Wait()); },
        [&](Connection&, absl::Status) { ++told; });
  };
  ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(WaitUntil([&] { return pool->stats().running == 1; }));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(submit().ok());
  EXPECT_EQ(submit().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->stats().queued, 4u);
  EXPECT_EQ(pool->stats().running, 1u);
  release.Set();
  ASSERT_TRUE(WaitUntil([&] { return told == 5; }));
  ASSERT_TRUE(pool->Shutdown().ok());
  ExpectBalanced(pool->stats());
  EXPECT_EQ(pool->stats().done, 5u);
}

// Never more than the queue holds, however many submit at once, and all that
// was accepted runs once.
TEST(Queue, TheBoundHoldsUnderLoad) {
  constexpr int kThreads = 4;
  constexpr int kTasks = kSanitized ? 5'000 : 50'000;
  constexpr size_t kQueue = 37;
  auto pool = MakePool(PoolOptions(3, kQueue));
  std::atomic<uint64_t> ran{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> over{false};
  std::thread watch([&] {
    while (!over) {
      const WorkerPoolStats s = pool->stats();
      EXPECT_LE(s.running, 3u);
      EXPECT_LE(s.queued, kQueue);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) {
        const absl::Status s = pool->Submit([&] { ++ran; });
        if (s.ok()) {
          ++accepted;
        } else {
          ASSERT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
          ++refused;
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  watch.join();
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(accepted + refused, uint64_t{kThreads} * kTasks);
  EXPECT_EQ(ran, accepted);
  EXPECT_EQ(pool->stats().submitted, accepted);
  EXPECT_EQ(pool->stats().rejected, refused);
  ExpectBalanced(pool->stats());
}

}  // namespace
}  // namespace sluice::test
