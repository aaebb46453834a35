// ListenOptions::accept_rate and accept_burst.

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// One in a thousand seconds: nothing refills while a test runs.
constexpr double kHardlyEver = 0.001;

class AcceptRate : public ::testing::TestWithParam<MatrixParam> {
 protected:
  AcceptRate() { handler_.on_traffic = EchoTraffic; }

  static ListenerSpec Spec(double rate, double burst) {
    ListenOptions options;
    options.accept_rate = rate;
    options.accept_burst = burst;
    return ListenerSpec(GetParam().Listen(), options);
  }
  static std::vector<Client> Connect(const Address& address, int count) {
    std::vector<Client> clients;
    for (int i = 0; i < count; ++i) {
      clients.push_back(Client::Connect(address));
      EXPECT_TRUE(clients.back().SendAll("x"));
    }
    return clients;
  }
  // Those that were answered; the others wait.
  static int Answered(const std::vector<Client>& clients) {
    int count = 0;
    for (const Client& client : clients) {
      if (client.Readable(milliseconds(0))) ++count;
    }
    return count;
  }

  LifeHandler handler_;
};

TEST_P(AcceptRate, TheBurstComesInAndTheOthersWaitQuietly) {
  constexpr int kBurst = 5;
  TestServer server(
      handler_, {Spec(kHardlyEver, kBurst), ListenerSpec(GetParam().Listen())},
      GetParam().MakeOptions());
  std::vector<Client> clients = Connect(server.address(0), 2 * kBurst);
  ASSERT_TRUE(WaitUntil([&] { return Answered(clients) == kBurst; }));
  for (int i = 0; i < server.engine().reactors(); ++i) {
    TurnOver(server.engine().reactor(i));
  }
  std::this_thread::sleep_for(milliseconds(50));
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LE(server.stats().turns - turns,
            4u * static_cast<uint64_t>(server.engine().reactors() + 1));
  // Neither those who are in nor the other listener are held up.
  for (int i = 0; i < 10; ++i) {
    Client other = Client::Connect(server.address(1));
    EXPECT_TRUE(other.Echo("y"));
  }
  EXPECT_EQ(Answered(clients), kBurst);
  EXPECT_EQ(server.stats().accepted, uint64_t{kBurst} + 10);
  EXPECT_EQ(server.stats().rejected, 0u);
  // Who goes makes no room: it is a rate.
  for (Client& client : clients) {
    if (client.Readable(milliseconds(0))) client.Close();
  }
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().accepted, uint64_t{kBurst} + 10);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

// Acceptors that look into an empty queue use no token up, and none is lost
// when several of them want the last ones.
TEST_P(AcceptRate, NoTokenIsLostInAStorm) {
  constexpr int kBurst = 12;
  for (int round = 0; round < 5; ++round) {
    TestServer server(handler_, {Spec(kHardlyEver, kBurst)},
                      GetParam().MakeOptions());
    const Address address = server.address();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kBurst / 4; ++i) {
          Client client = Client::Connect(address);
          EXPECT_TRUE(client.Echo("x"));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    Client late = Client::Connect(address);
    ASSERT_TRUE(late.SendAll("x"));
    EXPECT_FALSE(late.Readable(milliseconds(20)));
    EXPECT_EQ(server.stats().accepted, uint64_t{kBurst});
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler_.over = false;
  }
}

TEST_P(AcceptRate, AllComeInTheEndAndNeverFaster) {
  constexpr double kRate = 100;
  constexpr int kBurst = 2;
  constexpr int kClients = 20;
  std::atomic<int> opened{0};
  std::atomic<Clock::time_point> start{Clock::time_point()};
  handler_.on_open = [&](Connection&) {
    const int count = ++opened;
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start.load()).count();
    EXPECT_LE(count, kBurst + kRate * seconds + 0.001);
    return Action::kNone;
  };
  TestServer server(handler_, {Spec(kRate, kBurst)}, GetParam().MakeOptions());
  start = Clock::now();
  std::vector<Client> clients = Connect(server.address(), kClients);
  for (Client& client : clients) EXPECT_EQ(client.ReadExactly(1), "x");
  EXPECT_EQ(opened, kClients);
  EXPECT_EQ(server.stats().rejected, 0u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
}

// Resting for tokens at a high rate is not one wake-up for each of them.
TEST_P(AcceptRate, AHighRateComesInGroups) {
  constexpr int kClients = 300;
  TestServer server(handler_, {Spec(2000, 50)}, GetParam().MakeOptions());
  const uint64_t before = server.stats().turns;
  std::vector<Client> clients = Connect(server.address(), kClients);
  for (Client& client : clients) EXPECT_EQ(client.ReadExactly(1), "x");
  EXPECT_EQ(server.stats().accepted, uint64_t{kClients});
  // Each connection's own event may be a turn; more would be tokens'.
  EXPECT_LE(server.stats().turns - before, 6u * kClients);
  // No port stays behind in TIME_WAIT: other tests want some.
  for (Client& client : clients) client.CloseWithReset();
}

// The rate and the bounds together: what a bound rejects counts for the rate,
// what it makes wait does not.
TEST_P(AcceptRate, BesideABound) {
  for (const WhenFull policy : {WhenFull::kWait, WhenFull::kReject}) {
    ListenerSpec spec = Spec(kHardlyEver, 4);
    spec.options.max_connections = 2;
    spec.options.when_full = policy;
    TestServer server(handler_, {spec}, GetParam().MakeOptions());
    std::vector<Client> clients = Connect(server.address(), 2);
    for (Client& client : clients) EXPECT_EQ(client.ReadExactly(1), "x");
    Client third = Client::Connect(server.address());
    if (policy == WhenFull::kWait) {
      EXPECT_TRUE(third.SendAll("x"));
      EXPECT_FALSE(third.Readable(milliseconds(20)));
      clients[0].Close();
      EXPECT_EQ(third.ReadExactly(1), "x");
    } else {
      int error = 0;
      EXPECT_EQ(third.ReadToEnd(&error), "");
      clients[0].Close();
      ASSERT_TRUE(WaitUntil([&] { return server.stats().connections == 1; }));
    }
    clients[1].Close();
    ASSERT_TRUE(WaitUntil([&] {
      return server.stats().connections ==
             (policy == WhenFull::kWait ? 1u : 0u);
    }));
    // Three tokens are gone. The last one is there, and no more.
    std::vector<Client> last = Connect(server.address(), 1);
    EXPECT_EQ(last[0].ReadExactly(1), "x");
    last[0].Close();
    std::vector<Client> late = Connect(server.address(), 1);
    EXPECT_FALSE(late[0].Readable(milliseconds(20)));
    EXPECT_EQ(server.stats().accepted, 4u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler_.over = false;
  }
}

// A listener that waits for a token ends all the same, and so does its timer.
TEST_P(AcceptRate, WhoWaitsCanBeClosed) {
  TestServer server(handler_, {Spec(kHardlyEver, 1)}, GetParam().MakeOptions());
  Client in = Client::Connect(server.address());
  EXPECT_TRUE(in.Echo("x"));
  Client waiting = Client::Connect(server.address());
  ASSERT_TRUE(WaitUntil([&] { return server.stats().timers > 0; }));
  server.engine().CloseListener(0);
  int error = 0;
  EXPECT_EQ(waiting.ReadToEnd(&error), "");
  EXPECT_TRUE(WaitUntil([&] { return server.stats().timers == 0; }));
  EXPECT_TRUE(in.Echo("still here"));
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

// B89: the count, and who is told what.
TEST_P(AcceptRate, B89_TheCountNeverGoesWrong) {
  TestServer server(handler_, {Spec(kHardlyEver, 1)}, GetParam().MakeOptions());
  Client first = Client::Connect(server.address());
  EXPECT_TRUE(first.Echo("x"));
  std::vector<Client> waiting = Connect(server.address(), 5);
  EXPECT_FALSE(waiting[0].Readable(milliseconds(20)));
  EXPECT_EQ(server.stats().connections, 1u);
  EXPECT_EQ(handler_.closed, 0);
  first.Close();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().opened, 1u);
  EXPECT_EQ(server.stats().closed, 1u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

std::vector<MatrixParam> AcceptCombinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.reactors != 2 && param.family != Family::kTcp6 &&
        param.trigger == Trigger::kLevel) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, AcceptRate,
                         ::testing::ValuesIn(AcceptCombinations()), MatrixName);

TEST(AcceptRateOptions, BadValuesAreToldByCreate) {
  LambdaHandler handler;
  ListenerSpec spec("tcp://127.0.0.1:0");
  spec.options.accept_rate = -5;
  const auto engine = Engine::Create(handler, {spec}, TestOptions(1));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.status().message(),
            "listen on tcp://127.0.0.1:0: accept_rate is -5: must be 0, or "
            "0.001 to 1e+09");
}

}  // namespace
}  // namespace sluice::test
