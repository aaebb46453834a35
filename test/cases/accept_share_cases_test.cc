// Cases of accepting: the most connections there may be, and who gets them.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Beside the other bounds: none, and one that is at work with the second
// client.
constexpr double kAcceptRates[] = {0, 20};

class AcceptLimits : public ::testing::TestWithParam<MatrixParam> {
 protected:
  ListenerSpec Listen(double accept_rate) const {
    ListenOptions options;
    options.accept_rate = accept_rate;
    options.accept_burst = accept_rate > 0 ? 1 : 0;
    return ListenerSpec(GetParam().Listen(), options);
  }
};

TEST_P(AcceptLimits, B11_TheNextIsServedWhenOneHasGone) {
  for (const double accept_rate : kAcceptRates) {
    LifeHandler handler;
    handler.on_traffic = EchoTraffic;
    Options options = GetParam().MakeOptions();
    options.max_connections = 2;
    options.when_full = WhenFull::kWait;
    TestServer server(handler, {Listen(accept_rate)}, options);
    Client first = Client::Connect(server.address());
    Client second = Client::Connect(server.address());
    EXPECT_TRUE(first.Echo("1"));
    EXPECT_TRUE(second.Echo("2"));
    Client third = Client::Connect(server.address());
    EXPECT_TRUE(third.SendAll("3"));
    EXPECT_FALSE(third.Readable(milliseconds(50)));
    EXPECT_EQ(handler.opened, 2);
    first.Close();
    EXPECT_EQ(third.ReadExactly(1), "3");
    EXPECT_EQ(handler.opened, 3);
    EXPECT_EQ(server.stats().rejected, 0u);
    EXPECT_LE(server.stats().connections, 2u);
  }
}

TEST_P(AcceptLimits, B11_TheOneTooManyIsRejectedAndALaterOneServed) {
  for (const double accept_rate : kAcceptRates) {
    LifeHandler handler;
    handler.on_traffic = EchoTraffic;
    Options options = GetParam().MakeOptions();
    options.max_connections = 2;
    options.when_full = WhenFull::kReject;
    TestServer server(handler, {Listen(accept_rate)}, options);
    Client first = Client::Connect(server.address());
    Client second = Client::Connect(server.address());
    EXPECT_TRUE(first.Echo("1"));
    EXPECT_TRUE(second.Echo("2"));
    Client third = Client::Connect(server.address());
    int error = 0;
    EXPECT_EQ(third.ReadToEnd(&error), "");
    EXPECT_EQ(server.stats().rejected, 1u);
    EXPECT_EQ(handler.opened, 2);
    first.Close();
    ASSERT_TRUE(WaitUntil([&] { return server.stats().connections == 1; }));
    Client fourth = Client::Connect(server.address());
    EXPECT_TRUE(fourth.Echo("4"));
    EXPECT_EQ(handler.opened, 3);
  }
}

// Also when reactors look into their queues at the same time.
TEST_P(AcceptLimits, B11_NobodyIsRejectedWhileThereIsRoom) {
  LifeHandler handler;
  handler.on_traffic = EchoTraffic;
  Options options = GetParam().MakeOptions();
  options.max_connections = 2;
  options.when_full = WhenFull::kReject;
  TestServer server(handler, {GetParam().Listen()}, options);
  for (int round = 0; round < 30; ++round) {
    Client first = Client::Connect(server.address());
    Client second = Client::Connect(server.address());
    ASSERT_TRUE(first.Echo("1")) << "round " << round;
    ASSERT_TRUE(second.Echo("2")) << "round " << round;
    first.Close();
    second.Close();
    ASSERT_TRUE(server.WaitForNoConnections());
  }
  EXPECT_EQ(server.stats().rejected, 0u);
}

TEST_P(AcceptLimits, B89_TheCountNeverGoesWrong) {
  LifeHandler handler;
  handler.on_traffic = EchoTraffic;
  Options options = GetParam().MakeOptions();
  options.max_connections = 1;
  options.when_full = WhenFull::kReject;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client first = Client::Connect(server.address());
  EXPECT_TRUE(first.Echo("1"));
  for (int i = 0; i < 5; ++i) {
    Client rejected = Client::Connect(server.address());
    int error = 0;
    EXPECT_EQ(rejected.ReadToEnd(&error), "");
    EXPECT_EQ(server.stats().connections, 1u);
  }
  EXPECT_EQ(server.stats().rejected, 5u);
  EXPECT_EQ(handler.closed, 0);
  EXPECT_TRUE(first.Echo("still here"));
  first.Close();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().opened, 1u);
  EXPECT_EQ(server.stats().closed, 1u);
  size_t connections = 0;
  for (int i = 0; i < server.engine().reactors(); ++i) {
    connections += server.engine().reactor(i).connections();
  }
  EXPECT_EQ(connections, 0u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

std::vector<MatrixParam> LimitCombinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.family != Family::kTcp6 && param.reactors != 2 &&
        param.trigger == Trigger::kLevel) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, AcceptLimits,
                         ::testing::ValuesIn(LimitCombinations()), MatrixName);

// --- B91: everybody gets a share

std::vector<size_t> SharesOf40(const std::string& listen, Options options) {
  LambdaHandler handler;
  TestServer server(handler, {listen}, std::move(options));
  std::vector<Client> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(Client::Connect(server.address()));
  }
  EXPECT_TRUE(WaitUntil([&] { return handler.opened == 40; }));
  std::vector<size_t> shares;
  for (int i = 0; i < server.engine().reactors(); ++i) {
    shares.push_back(server.engine().reactor(i).connections());
  }
  return shares;
}

TEST(AcceptShareCases, B91_ABurstIsSharedByThePolicy) {
  const std::vector<size_t> even = {10, 10, 10, 10};
  for (const FdTables tables : FdTableChoices()) {
    for (const Family family : {Family::kTcp4, Family::kUnix}) {
      Options options = TestOptions(4);
      options.fd_tables = tables;
      options.load_balancing = LoadBalancing::kRoundRobin;
      EXPECT_EQ(SharesOf40(ListenAddress(family), options), even);
      options.load_balancing = LoadBalancing::kLeastConnections;
      EXPECT_EQ(SharesOf40(ListenAddress(family), options), even);
    }
    Options options = TestOptions(4);
    options.fd_tables = tables;
    // A Unix peer has no source address, and no SO_REUSEPORT.
    options.load_balancing = LoadBalancing::kSourceAddressHash;
    EXPECT_EQ(SharesOf40(UniqueUnixAddress(), options), even);
    // The same host always meets the same reactor.
    std::vector<size_t> shares = SharesOf40("tcp://127.0.0.1:0", options);
    std::sort(shares.begin(), shares.end());
    EXPECT_EQ(shares, (std::vector<size_t>{0, 0, 0, 40}));
    options.load_balancing = LoadBalancing::kRoundRobin;
    options.accept_mode = AcceptMode::kReusePort;
    EXPECT_EQ(SharesOf40(UniqueUnixAddress(), options), even);
  }
}

}  // namespace
}  // namespace sluice::test
