// JobOrder::kPerConnection.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

WorkerPoolOptions InOrder(int threads, size_t queue = 1'000'000) {
  WorkerPoolOptions options = PoolOptions(threads, queue);
  options.order = JobOrder::kPerConnection;
  return options;
}

// What one connection's jobs see.
struct Line {
  std::atomic<int> inside{0};
  int worked = 0;  // guarded by the order itself: TSan sees if it is not
  int told = 0;    // its loop's
};

// 1,000 connections, jobs from several threads, each connection's from one.
TEST(Order, OneAtATimeInOrderOnAThousandConnections) {
  constexpr size_t kConnections = kSanitized ? 200 : 1'000;
  constexpr int kJobs = 50;  // each
  constexpr size_t kThreads = 4;
  ConnectedServer side(static_cast<int>(kConnections), 2);
  ASSERT_EQ(side.refs().size(), kConnections);
  auto pool = MakePool(InOrder(4));
  std::vector<Line> lines(kConnections);
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobs; ++i) {
        for (size_t c = t; c < kConnections; c += kThreads) {
          Line& line = lines[c];
          const absl::Status s = pool->Submit(
              side.ref(c),
              [&line, i] {
                EXPECT_EQ(line.inside++, 0) << "two at a time";
                EXPECT_EQ(line.worked++, i) << "out of order";
                --line.inside;
                return i;
              },
              [&line, &told](Connection&, absl::StatusOr<int> n) {
                EXPECT_EQ(line.told++, n.value()) << "told out of order";
                ++told;
              });
          ASSERT_TRUE(s.ok()) << s.ToString();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(WaitUntil(
      [&] { return told == static_cast<int>(kConnections) * kJobs; }));
  ASSERT_TRUE(pool->Shutdown().ok());
  for (const Line& line : lines) EXPECT_EQ(line.worked, kJobs);
  EXPECT_EQ(pool->stats().dropped, 0u);
  ExpectBalanced(pool->stats());
}

// One connection from many threads: whatever the order is, it is one at a time,
// and each thread's own jobs keep theirs.
TEST(Order, OneConnectionFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kJobs = kSanitized ? 2'000 : 20'000;
  ConnectedServer side(1);
  auto pool = MakePool(InOrder(4));
  std::vector<int> worked(kThreads, 0);  // guarded by the order itself
  std::vector<int> told(kThreads, 0);
  std::atomic<int> all{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobs; ++i) {
        ASSERT_TRUE(pool->Submit(
                            side.ref(),
                            [&worked, t, i] { EXPECT_EQ(worked[t]++, i); },
                            [&, t, i](Connection&, absl::Status) {
                              EXPECT_EQ(told[t]++, i);
                              ++all;
                            })
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(WaitUntil([&] { return all == kThreads * kJobs; }));
}

// A connection with a thousand jobs behind one that blocks holds one worker.
TEST(Order, WaitingJobsHoldNoWorker) {
  ConnectedServer side(2);
  auto pool = MakePool(InOrder(2));
  Event release;
  Event other_told;
  std::atomic<int> slow{0};
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(0), [&] { EXPECT_TRUE(release.Wait()); },
                        [&](Connection&, absl::Status) { ++slow; })
                    .ok());
  }
  ASSERT_TRUE(pool->Submit(
                      side.ref(1), [] {},
                      [&](Connection&, absl::Status) { other_told.Set(); })
                  .ok());
  Event plain_ran;
  ASSERT_TRUE(pool->Submit([&] { plain_ran.Set(); }).ok());
  EXPECT_TRUE(other_told.Wait());
  EXPECT_TRUE(plain_ran.Wait());
  // The plain one may still be on its way out.
  EXPECT_TRUE(WaitUntil([&] { return pool->stats().running == 1; }));
  EXPECT_EQ(pool->stats().queued, 999u);
  release.Set();
  EXPECT_TRUE(WaitUntil([&] { return slow == 1000; }));
}

// With one worker: A has 100 jobs queued before B has its one. B waits for at
// most the one of A that runs and the one of A that is next.
TEST(Order, ConnectionsTakeTurns) {
  ConnectedServer side(2);
  auto pool = MakePool(InOrder(1));
  std::vector<char> ran;  // the only worker's
  {
    WorkerBlock block(*pool);
    const auto submit = [&](size_t connection, char name) {
      ASSERT_TRUE(pool->Submit(
                          side.ref(connection),
                          [&ran, name] { ran.push_back(name); },
                          [](Connection&, absl::Status) {})
                      .ok());
    };
    for (int i = 0; i < 100; ++i) submit(0, 'a');
    for (int i = 0; i < 3; ++i) submit(1, 'b');
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  ASSERT_EQ(ran.size(), 103u);
  EXPECT_EQ(std::string(ran.begin(), ran.begin() + 7), "abababa");
}

TEST(Order, AfterAnExceptionTheNextOneRuns) {
  ConnectedServer side(1);
  auto pool = MakePool(InOrder(2));
  std::vector<int> told;  // the loop's
  std::atomic<int> count{0};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(),
                        [i] {
                          if (i % 2 == 0) throw i;
                        },
                        [&, i](Connection&, absl::Status s) {
                          EXPECT_EQ(s.ok(), i % 2 != 0);
                          told.push_back(i);
                          ++count;
                        })
                    .ok());
  }
  ASSERT_TRUE(WaitUntil([&] { return count == 20; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(told[static_cast<size_t>(i)], i);
}

// Work may matter for itself; the line goes on without a connection.
TEST(Order, TheConnectionGoesWhileJobsWait) {
  ConnectedServer side(1);
  auto pool = MakePool(InOrder(2));
  Event release;
  std::atomic<int> ran{0};
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(),
                        [&] {
                          EXPECT_TRUE(release.Wait());
                          ++ran;
                        },
                        [](Connection&, absl::Status) { ADD_FAILURE(); })
                    .ok());
  }
  side.CloseClients();
  release.Set();
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(ran, 50);
  EXPECT_EQ(pool->stats().dropped, 50u);
}

// Unordered jobs of one connection do run at the same time.
TEST(Order, UnorderedJobsRunTogether) {
  ConnectedServer side(1);
  auto pool = MakePool(PoolOptions(3));
  std::atomic<int> inside{0};
  std::atomic<int> told{0};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(),
                        [&] {
                          ++inside;
                          EXPECT_TRUE(WaitUntil([&] { return inside == 3; }));
                        },
                        [&](Connection&, absl::Status) { ++told; })
                    .ok());
  }
  EXPECT_TRUE(WaitUntil([&] { return told == 3; }));
}

}  // namespace
}  // namespace sluice::test
