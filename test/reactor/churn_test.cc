// ctest: RUN_SERIAL TRUE
// 100,000 connections opened and closed, five times: nothing grows.

#include <malloc.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr int kRounds = 5;
constexpr int kConnections = kSanitized ? 4000 : 100'000;  // a round
constexpr int kWave = kSanitized ? 500 : 2000;             // open at once
constexpr size_t kMayGrow = size_t{4} << 20;

class Churn : public ::testing::TestWithParam<MatrixParam> {};

// Opens a wave, lets some talk, and closes it.
void RunWave(const TestServer& server, LambdaHandler& handler, int opened) {
  std::vector<Client> clients;
  clients.reserve(kWave);
  for (int i = 0; i < kWave; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().connected()) << "connection " << opened + i;
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == opened + kWave; }))
      << handler.opened - opened << " of " << kWave << " opened";
  for (size_t i = 0; i < clients.size(); i += 10) {
    ASSERT_TRUE(clients[i].Echo("ping"));
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    // TCP: RST, or the ports would all be in TIME_WAIT soon.
    if (server.address().is_ip()) {
      clients[i].CloseWithReset();
    } else {
      clients[i].Close();
    }
  }
  ASSERT_TRUE(server.WaitForNoConnections());
}

TEST_P(Churn, NothingGrows) {
  const size_t fds_before = CountOpenFds();
  LambdaHandler handler;
  handler.on_open = [](Connection& c) {
    c.Emplace<uint64_t>(7u);
    c.SetIdleTimeout(std::chrono::minutes(5));
    return Action::kNone;
  };
  handler.on_traffic = EchoTraffic;
  int opened = 0;
  {
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    size_t fds_at_rest = 0;
    std::vector<size_t> rss;
    std::vector<size_t> cached;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kConnections; i += kWave) {
        RunWave(server, handler, opened);
        if (HasFatalFailure()) return;
        opened += kWave;
      }
      const EngineStats stats = server.stats();
      EXPECT_EQ(stats.opened, static_cast<uint64_t>(opened));
      EXPECT_EQ(stats.closed, stats.opened);
      EXPECT_EQ(stats.connections, 0u);
      EXPECT_TRUE(
          WaitUntil([&] { return server.stats().buffers_outstanding == 0; }));
      EXPECT_EQ(stats.timers, 0u);
      if (round == 0) fds_at_rest = CountOpenFds();
      EXPECT_EQ(CountOpenFds(), fds_at_rest) << DescribeOpenFds();
      malloc_trim(0);  // what the test itself has freed
      rss.push_back(RssBytes());
      cached.push_back(server.stats().buffers_cached);
    }
    EXPECT_LE(cached.back(), std::max(cached.front(), size_t{1} << 20));
    // Sanitizers keep freed memory on purpose.
    if (!kSanitized) {
      EXPECT_LT(rss.back(), rss.front() + kMayGrow)
          << "from " << rss.front() << " after the first round, by " << rss[1]
          << ", " << rss[2] << ", " << rss[3];
    }
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  EXPECT_EQ(handler.opened, opened);
  EXPECT_EQ(handler.closed, opened);
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

INSTANTIATE_TEST_SUITE_P(
    Some, Churn,
    ::testing::Values(MatrixParam{Family::kTcp4, 2, AcceptMode::kHandOff,
                                  Trigger::kLevel, FdTables::kShared},
                      MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff,
                                  Trigger::kEdge, FdTableChoices().back()}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
