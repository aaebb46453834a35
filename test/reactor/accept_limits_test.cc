// ListenOptions::max_connections, alone and beside Options::max_connections.

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
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

using std::chrono::milliseconds;

// How many are open now, and at most ever were.
struct OpenCount {
  std::atomic<size_t> now{0};
  std::atomic<size_t> most{0};

  void Add() {
    const size_t after = ++now;
    size_t before = most;
    while (after > before && !most.compare_exchange_weak(before, after)) {
    }
  }
};

class ListenerLimits : public ::testing::TestWithParam<MatrixParam> {
 protected:
  static constexpr size_t kMost = 3;

  ListenerLimits() {
    handler_.on_open = [this](Connection& c) {
      total_.Add();
      counts_[static_cast<size_t>(c.listener())].Add();
      return Action::kNone;
    };
    handler_.on_traffic = EchoTraffic;
    handler_.on_close = [this](Connection& c, const CloseInfo&) {
      --counts_[static_cast<size_t>(c.listener())].now;
      --total_.now;
    };
  }

  // A listener of at most `most` connections; 0: no bound of its own.
  static ListenerSpec Spec(size_t most, WhenFull when_full) {
    ListenOptions options;
    options.max_connections = most;
    options.when_full = when_full;
    return ListenerSpec(GetParam().Listen(), options);
  }
  static std::vector<Client> Fill(const Address& address, size_t count) {
    std::vector<Client> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(Client::Connect(address));
      EXPECT_TRUE(clients.back().Echo("x")) << i;
    }
    return clients;
  }

  LifeHandler handler_;
  OpenCount total_;
  std::array<OpenCount, 3> counts_;
};

// Sends a byte; true if it comes back, false if the connection ends instead.
bool Served(Client& client) {
  char byte = 'x';
  return send(client.fd(), &byte, 1, MSG_NOSIGNAL) == 1 &&
         client.Readable(kPatience) && recv(client.fd(), &byte, 1, 0) == 1;
}

TEST_P(ListenerLimits, TheOthersWaitAndAllAreServedInTheEnd) {
  TestServer server(handler_,
                    {Spec(kMost, WhenFull::kWait), Spec(0, WhenFull::kReject)},
                    GetParam().MakeOptions());
  constexpr size_t kClients = 20;
  std::vector<Client> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(Client::Connect(server.address(0)));
    ASSERT_TRUE(clients.back().SendAll("x"));
  }
  ASSERT_TRUE(WaitUntil([&] { return counts_[0].now == kMost; }));
  // The other listener goes on meanwhile.
  for (int i = 0; i < 20; ++i) {
    Client other = Client::Connect(server.address(1));
    EXPECT_TRUE(other.Echo("y"));
  }
  EXPECT_EQ(counts_[0].now, kMost);
  std::set<size_t> served;
  ASSERT_TRUE(WaitUntil([&] {
    for (size_t i = 0; i < kClients; ++i) {
      if (!clients[i].connected() || !clients[i].Readable(milliseconds(0))) {
        continue;
      }
      EXPECT_EQ(clients[i].ReadExactly(1), "x");
      clients[i].Close();
      served.insert(i);
    }
    return served.size() == kClients;
  })) << served.size()
      << " were served";
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(counts_[0].most, kMost);
  EXPECT_EQ(server.stats().rejected, 0u);
  EXPECT_EQ(handler_.opened, static_cast<int>(kClients) + 20);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(ListenerLimits, WaitingCostsNoTurns) {
  TestServer server(handler_,
                    {Spec(kMost, WhenFull::kWait), Spec(0, WhenFull::kWait)},
                    GetParam().MakeOptions());
  std::vector<Client> clients;
  for (size_t i = 0; i < 3 * kMost; ++i) {
    clients.push_back(Client::Connect(server.address(0)));
  }
  ASSERT_TRUE(WaitUntil([&] { return counts_[0].now == kMost; }));
  for (int i = 0; i < server.engine().reactors(); ++i) {
    TurnOver(server.engine().reactor(i));
  }
  std::this_thread::sleep_for(milliseconds(50));
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LE(server.stats().turns - turns,
            4u * static_cast<uint64_t>(server.engine().reactors() + 1));
}

TEST_P(ListenerLimits, TheOthersAreRejected) {
  TestServer server(handler_,
                    {Spec(kMost, WhenFull::kReject), Spec(0, WhenFull::kWait)},
                    GetParam().MakeOptions());
  for (uint64_t round = 1; round <= 3; ++round) {
    std::vector<Client> clients = Fill(server.address(0), kMost);
    for (size_t i = 0; i < 2 * kMost; ++i) {
      Client rejected = Client::Connect(server.address(0));
      int error = 0;
      EXPECT_EQ(rejected.ReadToEnd(&error), "");
    }
    std::vector<Client> others = Fill(server.address(1), 2 * kMost);
    for (Client& client : clients) EXPECT_TRUE(client.Echo("still here"));
    EXPECT_EQ(server.stats().connections, 3 * kMost);
    clients.clear();
    others.clear();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(server.stats().rejected, round * 2 * kMost);
    EXPECT_EQ(server.stats().rejected_per_source, 0u);
    EXPECT_EQ(server.stats().opened, round * 3 * kMost);
  }
  EXPECT_EQ(counts_[0].most, kMost);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(ListenerLimits, B89_TheCountNeverGoesWrong) {
  TestServer server(handler_, {Spec(1, WhenFull::kReject)},
                    GetParam().MakeOptions());
  std::vector<Client> first = Fill(server.address(), 1);
  for (uint64_t i = 1; i <= 5; ++i) {
    Client rejected = Client::Connect(server.address());
    int error = 0;
    EXPECT_EQ(rejected.ReadToEnd(&error), "");
    EXPECT_EQ(server.stats().rejected, i);
    EXPECT_EQ(server.stats().connections, 1u);
  }
  EXPECT_EQ(handler_.closed, 0);
  first.clear();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().opened, 1u);
  EXPECT_EQ(server.stats().closed, 1u);
  // And there is room for one again, and for no more.
  std::vector<Client> second = Fill(server.address(), 1);
  Client rejected = Client::Connect(server.address());
  EXPECT_FALSE(Served(rejected));
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(ListenerLimits, NobodyIsRejectedWhileThereIsRoom) {
  Options options = GetParam().MakeOptions();
  options.max_connections = 4;
  options.when_full = WhenFull::kReject;
  TestServer server(handler_,
                    {Spec(2, WhenFull::kReject), Spec(2, WhenFull::kReject)},
                    options);
  for (int round = 0; round < 20; ++round) {
    std::vector<Client> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(
          Client::Connect(server.address(static_cast<size_t>(i % 2))));
      ASSERT_TRUE(clients.back().SendAll("x"));
    }
    for (Client& client : clients) EXPECT_EQ(client.ReadExactly(1), "x");
    clients.clear();
    ASSERT_TRUE(server.WaitForNoConnections());
  }
  EXPECT_EQ(server.stats().rejected, 0u);
}

// Who is rejected by one listener's bound takes no place of the engine's away
// from another listener, not even for a moment.
TEST_P(ListenerLimits, TheRejectedTakeNoPlaceFromOthers) {
  Options options = GetParam().MakeOptions();
  options.max_connections = 5;
  options.when_full = WhenFull::kReject;
  TestServer server(handler_,
                    {Spec(1, WhenFull::kReject), Spec(0, WhenFull::kWait)},
                    options);
  std::vector<Client> one = Fill(server.address(0), 1);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> rejected{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000 && !over; ++i) {
        Client client = Client::Connect(server.address(0));
        EXPECT_FALSE(Served(client));
        ++rejected;
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    std::vector<Client> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(Client::Connect(server.address(1)));
      EXPECT_TRUE(Served(clients.back())) << "round " << round;
    }
    // No port stays behind in TIME_WAIT: other tests want some.
    for (Client& client : clients) client.CloseWithReset();
    ASSERT_TRUE(WaitUntil([&] { return server.stats().connections == 1; }));
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.stats().rejected, rejected);
  EXPECT_EQ(counts_[0].most, 1u);
}

// Every pair of policies, from many threads: both bounds hold and no place of
// either is lost.
TEST_P(ListenerLimits, BothBoundsHoldInAStorm) {
  constexpr WhenFull kPolicies[] = {WhenFull::kWait, WhenFull::kReject};
  for (const WhenFull engine_policy : kPolicies) {
    for (const WhenFull own_policy : kPolicies) {
      SCOPED_TRACE(testing::Message()
                   << "engine " << static_cast<int>(engine_policy)
                   << ", listener " << static_cast<int>(own_policy));
      Options options = GetParam().MakeOptions();
      options.max_connections = 5;
      options.when_full = engine_policy;
      TestServer server(handler_,
                        {Spec(kMost, own_policy), Spec(4, own_policy),
                         Spec(0, WhenFull::kWait)},
                        options);
      const bool all_wait =
          engine_policy == WhenFull::kWait && own_policy == WhenFull::kWait;
      std::vector<std::thread> threads;
      for (size_t t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < 15; ++i) {
            Client client = Client::Connect(server.address((t + i) % 3));
            if (!Served(client)) {
              EXPECT_FALSE(all_wait);
            }
            if ((t + i) % 4 != 0) client.CloseWithReset();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(server.WaitForNoConnections());
      if (all_wait) {
        EXPECT_EQ(server.stats().rejected, 0u);
      }
      EXPECT_EQ(server.stats().accepted,
                server.stats().opened + server.stats().rejected);
      // As many as ever fit, of the first, of the second and of both.
      for (const auto& [a, b] : {std::pair<size_t, size_t>{3, 2}, {1, 4}}) {
        std::vector<Client> first = Fill(server.address(0), a);
        std::vector<Client> second = Fill(server.address(1), b);
        EXPECT_EQ(server.stats().connections, 5u);
        first.clear();
        second.clear();
        ASSERT_TRUE(server.WaitForNoConnections());
      }
      EXPECT_TRUE(server.StopAndDestroy().ok());
      EXPECT_LE(total_.most, 5u);
      EXPECT_LE(counts_[0].most, kMost);
      EXPECT_LE(counts_[1].most, 4u);
      EXPECT_EQ(total_.now, 0u);
      handler_.over = false;
    }
  }
}

// after_accept says no: the place goes to the next one, every time.
TEST_P(ListenerLimits, ARefusedOneGivesItsPlaceBack) {
  for (const WhenFull policy : {WhenFull::kWait, WhenFull::kReject}) {
    std::atomic<int> refusals{0};
    ListenerSpec spec = Spec(1, policy);
    spec.options.socket.after_accept = [&](int) {
      return ++refusals <= 10 ? absl::UnavailableError("not now")
                              : absl::OkStatus();
    };
    Options options = GetParam().MakeOptions();
    options.max_connections = 1;
    options.when_full = policy;
    TestServer server(handler_, {spec}, options);
    for (uint64_t i = 1; i <= 10; ++i) {
      Client refused = Client::Connect(server.address());
      EXPECT_FALSE(Served(refused));
      ASSERT_TRUE(server.WaitForNoConnections());
      EXPECT_EQ(server.stats().rejected, i);
    }
    std::vector<Client> one = Fill(server.address(), 1);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler_.over = false;
  }
}

// A listener that waits for a place ends all the same.
TEST_P(ListenerLimits, WhoWaitsCanBeClosed) {
  TestServer server(handler_, {Spec(1, WhenFull::kWait)},
                    GetParam().MakeOptions());
  std::vector<Client> in = Fill(server.address(), 1);
  Client waiting = Client::Connect(server.address());
  server.engine().CloseListener(0);
  // The kernel ends what waits in a queue that is closed.
  int error = 0;
  EXPECT_EQ(waiting.ReadToEnd(&error), "");
  EXPECT_TRUE(in[0].Echo("still here"));
  in.clear();
  EXPECT_TRUE(server.WaitForNoConnections());
  server.engine().Drain(std::chrono::hours(1));
  EXPECT_TRUE(server.WaitForRun().ok());
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

INSTANTIATE_TEST_SUITE_P(Some, ListenerLimits,
                         ::testing::ValuesIn(AcceptCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
