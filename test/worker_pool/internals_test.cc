// The parts a pool is made of.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"
#include "worker_pool/internal/batch.h"
#include "worker_pool/internal/job_queue.h"
#include "worker_pool/internal/pace.h"
#include "worker_pool/internal/strands.h"
#include "worker_pool/job_box.h"

namespace sluice::internal {
namespace {

// --- JobBox

TEST(JobBoxTest, WhatLiesInside) {
  int x = 0;
  int* p = &x;
  const auto one = [&x] { ++x; };
  const auto two = [&x, p] { x = *p + 1; };
  const auto three = [&x, p, y = 5L] { x = *p + static_cast<int>(y); };
  const auto owner = [s = std::string()] {};
  EXPECT_TRUE(JobBox::kFits<decltype(one)>);
  EXPECT_TRUE(JobBox::kFits<decltype(two)>);
  EXPECT_FALSE(JobBox::kFits<decltype(three)>) << "too large";
  EXPECT_FALSE(JobBox::kFits<decltype(owner)>) << "must be destroyed";
}

TEST(JobBoxTest, MovesAndRuns) {
  int runs = 0;
  JobBox empty;
  EXPECT_FALSE(empty);
  JobBox inside([&runs] { ++runs; });
  EXPECT_TRUE(inside);
  EXPECT_EQ(inside.job(), nullptr);
  inside.set_queued_at(77);
  JobBox moved(std::move(inside));
  EXPECT_FALSE(inside);
  EXPECT_EQ(moved.queued_at(), 77);
  moved.Run();
  EXPECT_EQ(runs, 1);

  auto captured = std::make_shared<int>(5);
  const auto work = [captured, &runs] { runs += *captured; };
  JobBox outside(
      std::make_unique<PlainJob<std::decay_t<decltype(work)>>>(work));
  EXPECT_NE(outside.job(), nullptr);
  uint64_t words[JobBox::kWords];
  outside.ReleaseTo(words);
  EXPECT_FALSE(outside);
  JobBox back = JobBox::FromWords(words);
  back.Run();
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(captured.use_count(), 3);
  back = JobBox();
  EXPECT_EQ(captured.use_count(), 2) << "destroyed with its box";
}

// --- JobQueue

TEST(JobQueueTest, FirstInFirstOutOverManyChunks) {
  JobQueue queue;
  int next_in = 0;
  int next_out = 0;
  int last = -1;
  // Longer and shorter, so that it wraps round chunks at every phase.
  for (const int burst : {1, 126, 127, 128, 1, 1000, 5, 381, 2}) {
    for (int i = 0; i < burst; ++i) {
      JobBox box([number = next_in++, &last] { last = number; });
      queue.Push(box);
      EXPECT_FALSE(box);
    }
    const int left = burst % 3;
    while (queue.size() > static_cast<size_t>(left)) {
      queue.Pop().Run();
      ASSERT_EQ(last, next_out++);
    }
  }
  while (!queue.empty()) {
    queue.Pop().Run();
    ASSERT_EQ(last, next_out++);
  }
  EXPECT_EQ(next_out, next_in);
}

TEST(JobQueueTest, WhatIsLeftIsDestroyed) {
  auto captured = std::make_shared<int>(5);
  {
    JobQueue queue;
    for (int i = 0; i < 300; ++i) {
      const auto work = [captured] {};
      JobBox box(
          std::make_unique<PlainJob<std::decay_t<decltype(work)>>>(work));
      queue.Push(box);
      if (i % 3 == 0) (void)queue.Pop();
    }
  }
  EXPECT_EQ(captured.use_count(), 1);
}

// --- Batch

void Fill(Batch& batch, uint32_t size, std::atomic<uint64_t>* runs,
          uint64_t first) {
  for (uint32_t i = 0; i < size; ++i) {
    JobBox box([runs, number = first + i] { *runs += number; });
    uint64_t words[JobBox::kWords];
    box.ReleaseTo(words);
    batch.Put(i, words);
  }
  batch.Publish(size);
}

TEST(BatchTest, OldestFirst) {
  Batch batch;
  EXPECT_TRUE(batch.empty());
  EXPECT_FALSE(batch.Take());
  for (int round = 0; round < 3; ++round) {
    std::atomic<uint64_t> runs{0};
    Fill(batch, Batch::kCapacity, &runs, 1);
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= Batch::kCapacity; ++i) {
      EXPECT_FALSE(batch.empty());
      batch.Take().Run();
      sum += i;
      ASSERT_EQ(runs, sum);
    }
    EXPECT_TRUE(batch.empty());
    EXPECT_FALSE(batch.Take());
  }
}

// Owner and thieves: each job of each fill is taken once.
TEST(BatchTest, ThievesTakeNothingTwice) {
  constexpr int kFills = test::kSanitized ? 5'000 : 100'000;
  Batch batch;
  std::atomic<uint64_t> runs{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> thieves;
  for (int i = 0; i < 2; ++i) {
    thieves.emplace_back([&] {
      while (!over) {
        if (JobBox box = batch.Take()) {
          box.Run();
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  uint64_t expected = 0;
  uint64_t next = 1;
  for (int fill = 0; fill < kFills; ++fill) {
    const uint32_t size = 1 + static_cast<uint32_t>(fill) % Batch::kCapacity;
    Fill(batch, size, &runs, next);
    for (uint32_t i = 0; i < size; ++i) expected += next++;
    while (JobBox box = batch.Take()) box.Run();
  }
  over = true;
  for (std::thread& thief : thieves) thief.join();
  EXPECT_EQ(runs, expected);
}

// --- Pace

TEST(PaceTest, ManyOfTheShortOneOfTheLong) {
  Pace pace;
  EXPECT_EQ(pace.limit(), 1u);
  // Slowly up.
  pace.Ran(1, 50);
  EXPECT_EQ(pace.limit(), 2u);
  for (int i = 0; i < 10; ++i) pace.Ran(pace.limit(), pace.limit() * 50);
  EXPECT_EQ(pace.limit(), Batch::kCapacity);
  // At once down.
  pace.Ran(1, 50'000'000);
  EXPECT_EQ(pace.limit(), 1u);
  pace.Ran(0, 1);
  EXPECT_EQ(pace.limit(), 1u) << "nothing was learned";
  for (int i = 0; i < 10; ++i) pace.Ran(1, 2'500);
  EXPECT_EQ(pace.limit(), 4u);
  pace.Ran(5, 0);
  EXPECT_EQ(pace.limit(), 8u) << "a clock that stands still";
}

// --- Strands

std::unique_ptr<ConnectionJob> JobOf(const ConnectionRef& ref, int number,
                                     std::vector<int>* ran) {
  const auto work = [number, ran] { ran->push_back(number); };
  const auto done = [](Connection&, absl::Status) {};
  return std::make_unique<
      ResultJob<std::decay_t<decltype(work)>, std::decay_t<decltype(done)>>>(
      ref, work, done);
}

TEST(StrandsTest, OneAtATime) {
  test::ConnectedServer side(2);
  Strands strands;
  std::vector<int> ran;
  auto first = JobOf(side.ref(0), 0, &ran);
  ASSERT_TRUE(strands.Begin(first));
  for (int i = 1; i < 5; ++i) {
    auto job = JobOf(side.ref(0), i, &ran);
    EXPECT_FALSE(strands.Begin(job));
    EXPECT_EQ(job, nullptr);
  }
  auto other = JobOf(side.ref(1), 100, &ran);
  EXPECT_TRUE(strands.Begin(other));
  EXPECT_EQ(strands.End(side.ref(1)), nullptr);
  for (int i = 1; i < 5; ++i) {
    std::unique_ptr<ConnectionJob> next = strands.End(side.ref(0));
    ASSERT_NE(next, nullptr);
    next->Run();
    EXPECT_EQ(ran.back(), i);
    if (i == 2) {
      auto job = JobOf(side.ref(0), 5, &ran);
      EXPECT_FALSE(strands.Begin(job));
    }
  }
  std::unique_ptr<ConnectionJob> last = strands.End(side.ref(0));
  ASSERT_NE(last, nullptr);
  last->Run();
  EXPECT_EQ(ran.back(), 5);
  EXPECT_EQ(strands.End(side.ref(0)), nullptr);
  // And from the beginning.
  auto again = JobOf(side.ref(0), 6, &ran);
  EXPECT_TRUE(strands.Begin(again));
  EXPECT_EQ(strands.End(side.ref(0)), nullptr);
}

}  // namespace
}  // namespace sluice::internal
