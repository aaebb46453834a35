// Cases of other frameworks' pools.

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_cases.h"
#include "test/support/process_info.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

// Both workers stand in a job at the same time, so both are alive.
void ExpectAllWorkersAlive(WorkerPool& pool) {
  WorkerBlock block(pool, pool.threads());
  EXPECT_EQ(pool.stats().running, static_cast<size_t>(pool.threads()));
}

TEST(PoolCases, B81_JobsThatThrowEndNothing) {
  WorkerPoolOptions options = PoolOptions(2);
  std::atomic<int> lines{0};
  options.log = [&](LogLevel, std::string_view) { ++lines; };
  auto pool = MakePool(options);
  std::atomic<int> normal{0};
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(pool->Submit([i] {
                      if (i % 2 == 0) throw std::runtime_error("thrown");
                      throw 42;
                    })
                    .ok());
  }
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(pool->Submit([&normal] { ++normal; }).ok());
  }
  EXPECT_TRUE(WaitUntil([&] { return normal == 10; }));
  ExpectAllWorkersAlive(*pool);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(pool->Shutdown().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(pool->stats().exceptions, 10u);
  EXPECT_EQ(pool->stats().done, 22u);
  EXPECT_GE(lines, 1);
}

// The same with a connection: each error is told to its done.
TEST(PoolCases, B81_JobsOfConnectionsThatThrow) {
  ConnectedServer side(1);
  auto pool = MakePool(PoolOptions(2));
  std::atomic<int> errors{0};
  std::atomic<int> results{0};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pool->Submit(
                        side.ref(),
                        [i]() -> int {
                          if (i >= 10) return i;
                          if (i % 2 == 0) throw std::runtime_error("thrown");
                          throw 42;
                        },
                        [&](Connection&, absl::StatusOr<int> r) {
                          if (r.ok()) {
                            ++results;
                          } else {
                            EXPECT_EQ(r.status().code(),
                                      absl::StatusCode::kInternal);
                            ++errors;
                          }
                        })
                    .ok());
  }
  EXPECT_TRUE(WaitUntil([&] { return errors == 10 && results == 10; }));
  ExpectAllWorkersAlive(*pool);
  EXPECT_TRUE(pool->Shutdown().ok());
}

// The job waits for something its own loop does; that loop submits meanwhile.
TEST(PoolCases, B84_SubmitOnALoopNeverBlocks) {
  auto pool = MakePool(PoolOptions(1, 1));
  LifeHandler handler;
  Event first_runs;
  Event loop_did_it;
  std::atomic<int> told{0};
  std::vector<absl::Status> answers;  // the loop's
  Event answered;
  handler.on_traffic = [&](Connection& c) {
    const std::string_view what = c.Next();
    if (what == "first") {
      EXPECT_TRUE(
          pool->Submit(
                  c.ref(),
                  [&, ref = c.ref()] {
                    first_runs.Set();
                    // Its loop must come to this.
                    EXPECT_TRUE(
                        ref.Post([&](Connection&) { loop_did_it.Set(); }).ok());
                    EXPECT_TRUE(loop_did_it.Wait());
                  },
                  [&](Connection&, absl::Status s) {
                    EXPECT_TRUE(s.ok());
                    ++told;
                  })
              .ok());
      return Action::kNone;
    }
    EXPECT_TRUE(first_runs.IsSet());
    for (int i = 0; i < 3; ++i) {
      answers.push_back(pool->Submit(
          c.ref(), [] {}, [&](Connection&, absl::Status) { ++told; }));
    }
    answered.Set();
    return Action::kNone;
  };
  TestServer server(handler, {UniqueUnixAddress()}, TestOptions(1));
  Client client = Client::Connect(server.address());
  {
    // The post lies behind the traffic: the job waits while the loop submits.
    ASSERT_TRUE(client.SendAll("first"));
    ASSERT_TRUE(first_runs.Wait());
    ASSERT_TRUE(client.SendAll("then"));
    ASSERT_TRUE(answered.Wait());
  }
  EXPECT_TRUE(WaitUntil([&] { return told >= 2; }));
  EXPECT_TRUE(server.StopAndDestroy().ok());
  ASSERT_TRUE(pool->Shutdown().ok());
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_TRUE(answers[0].ok());
  handler.ExpectOrderlyEnd();
}

// As above, but the job certainly still runs while the loop submits.
TEST(PoolCases, B84_TheExtraOnesGetQueueFull) {
  auto pool = MakePool(PoolOptions(1, 1));
  LifeHandler handler;
  Event runs;
  Event loop_did_it;
  std::atomic<int> told{0};
  std::vector<absl::Status> answers;  // the loop's
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    const auto done = [&](Connection&, absl::Status s) {
      EXPECT_TRUE(s.ok());
      ++told;
    };
    EXPECT_TRUE(pool->Submit(
                        c.ref(),
                        [&] {
                          runs.Set();
                          EXPECT_TRUE(loop_did_it.Wait());
                        },
                        done)
                    .ok());
    EXPECT_TRUE(runs.Wait());
    for (int i = 0; i < 3; ++i) {
      answers.push_back(pool->Submit(
          c.ref(), [] {}, done));
    }
    // Only after this callback does the loop do what the job waits for.
    EXPECT_TRUE(c.ref().Post([&](Connection&) { loop_did_it.Set(); }).ok());
    return Action::kNone;
  };
  TestServer server(handler, {UniqueUnixAddress()}, TestOptions(1));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll("x"));
  EXPECT_TRUE(WaitUntil([&] { return told == 2; }));
  EXPECT_TRUE(server.StopAndDestroy().ok());
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_TRUE(answers[0].ok());
  EXPECT_EQ(answers[1].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(answers[2].code(), absl::StatusCode::kResourceExhausted);
  handler.ExpectOrderlyEnd();
}

// --- B27

class PoolLoopCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(PoolLoopCases, B27_ShortConnectionsAnsweredByThePool) {
  constexpr int kClients = 4;
  constexpr int kConnections = kSanitized ? 250 : 1250;  // each
  const size_t fds = CountOpenFds();
  LifeHandler handler;
  std::atomic<int> late{0};
  {
    auto pool = MakePool(PoolOptions(2));
    handler.on_traffic = [&](Connection& c) {
      const absl::Status s = pool->Submit(
          c.ref(),
          [ref = c.ref(), request = std::string(c.Next())] {
            // The client goes the moment it has this.
            (void)ref.Write(request);
            return request;
          },
          [&](Connection& connection, absl::StatusOr<std::string> request) {
            // And may be gone by now.
            (void)connection.Write(*request);
            ++late;
          });
      EXPECT_TRUE(s.ok()) << s.ToString();
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        for (int j = 0; j < kConnections; ++j) {
          Client client = Client::Connect(server.address());
          ASSERT_TRUE(client.Echo("request")) << "connection " << j;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(server.stats().opened, server.stats().closed);
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    ASSERT_TRUE(pool->Shutdown().ok());
    // Each result was told or counted.
    const WorkerPoolStats s = pool->stats();
    EXPECT_EQ(s.done, uint64_t{kClients} * kConnections);
    EXPECT_EQ(static_cast<uint64_t>(late) + s.dropped, s.done);
  }
  EXPECT_EQ(handler.opened, kClients * kConnections);
  handler.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds) << DescribeOpenFds();
}

// Stop, called by a job of the pool.
TEST_P(PoolLoopCases, B74_StopFromAWorker) {
  auto pool = MakePool(PoolOptions(2));
  LifeHandler handler;
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(Client::Connect(server.address()));
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == 10; }));
  Event returned;
  ASSERT_TRUE(pool->Submit([&] {
                    server.engine().Stop();
                    returned.Set();
                  })
                  .ok());
  EXPECT_TRUE(returned.Wait());
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_EQ(handler.closed, 10);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

std::vector<MatrixParam> UnixCombinations() {
  std::vector<MatrixParam> all = LoopCombinations();
  for (MatrixParam& param : all) param.family = Family::kUnix;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loops, PoolLoopCases,
                         ::testing::ValuesIn(UnixCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
