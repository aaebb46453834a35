// A connection on which nothing comes or goes ends: never early, and soon.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A busy machine may keep us from being active in time; then we try again.
constexpr int kAttempts = 20;

// Notes when connections end, and why.
class ClosingHandler : public LambdaHandler {
 public:
  ClosingHandler() {
    on_close = [this](Connection&, const CloseInfo& info) {
      closed_at = Clock::now();
      reason = info.reason;
    };
  }
  std::atomic<Clock::time_point> closed_at{Clock::time_point()};
  std::atomic<CloseReason> reason{CloseReason::kNone};
};

class IdleTimeout : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithTimeout(milliseconds timeout) {
    Options options = GetParam().MakeOptions();
    options.limits.idle_timeout = timeout;
    return options;
  }
};

TEST_P(IdleTimeout, ByOptionNeverEarlyAndSoon) {
  constexpr milliseconds kTimeout{150};
  Clock::duration soonest = std::chrono::hours(1);
  for (int attempt = 0;
       attempt < kAttempts && soonest > kTimeout + milliseconds(120);
       ++attempt) {
    ClosingHandler handler;
    TestServer server(handler, {GetParam().Listen()}, WithTimeout(kTimeout));
    const Clock::time_point before = Clock::now();
    Client client = Client::Connect(server.address());
    EXPECT_EQ(client.ReadToEof(), "");
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
    EXPECT_GE(handler.closed_at.load() - before, kTimeout);
    EXPECT_TRUE(server.WaitForNoConnections());
    soonest =
        std::min<Clock::duration>(soonest, handler.closed_at.load() - before);
  }
  EXPECT_LE(soonest, kTimeout + milliseconds(120));
}

TEST_P(IdleTimeout, PerConnection) {
  // The first byte says which timeout in units of 50 ms; '0' is never.
  ClosingHandler handler;
  std::mutex mutex;
  std::vector<std::pair<char, Clock::duration>> ends;
  struct Set {
    char unit = 0;
    Clock::time_point at;
  };
  handler.on_open = [](Connection& c) {
    c.Emplace<Set>();
    return Action::kNone;
  };
  handler.on_traffic = [](Connection& c) {
    Set& set = c.Get<Set>();
    set.unit = c.Next().front();
    set.at = Clock::now();
    c.SetIdleTimeout(milliseconds(50) * (set.unit - '0'));
    return Action::kNone;
  };
  handler.on_close = [&](Connection& c, const CloseInfo& info) {
    if (info.reason != CloseReason::kIdleTimeout) return;
    const Set& set = c.Get<Set>();
    std::lock_guard<std::mutex> lock(mutex);
    ends.emplace_back(set.unit, Clock::now() - set.at);
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(std::chrono::hours(1)));
  std::vector<Client> clients;
  for (const char unit : {'4', '0', '1', '2', '0', '8', '1'}) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().SendAll(std::string(1, unit)));
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 5; }));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(handler.closed, 5);
  EXPECT_EQ(server.stats().connections, 2u);
  std::lock_guard<std::mutex> lock(mutex);
  ASSERT_EQ(ends.size(), 5u);
  for (const auto& [unit, time] : ends) {
    EXPECT_GE(time, milliseconds(50) * (unit - '0')) << unit;
  }
}

// The clock of a turn is old when a callback has taken long.
TEST_P(IdleTimeout, NeverEarlyAfterASlowCallback) {
  constexpr milliseconds kTimeout{200};
  ClosingHandler handler;
  std::atomic<Clock::time_point> sent_at{Clock::time_point()};
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    c.SetIdleTimeout(kTimeout);
    std::this_thread::sleep_for(3 * kTimeout);
    sent_at = Clock::now();
    EXPECT_TRUE(c.Write("a byte that goes").ok());
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll("x"));
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
  EXPECT_GE(handler.closed_at.load() - sent_at.load(), kTimeout);
}

// The same for a byte that came while another connection's callback was slow.
TEST_P(IdleTimeout, NeverEarlyBehindAnotherConnectionsSlowCallback) {
  constexpr milliseconds kTimeout{200};
  ClosingHandler handler;
  std::atomic<Clock::time_point> came_at{Clock::time_point()};
  std::atomic<int> greeted{0};
  handler.on_traffic = [&](Connection& c) {
    const char what = c.Next().front();
    if (what == 'i') {
      c.SetIdleTimeout(kTimeout);
      ++greeted;
    } else if (what == 's') {
      std::this_thread::sleep_for(milliseconds(600));
    }
    return Action::kNone;
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    if (info.reason == CloseReason::kIdleTimeout) {
      handler.closed_at = Clock::now();
    }
  };
  Options options = GetParam().MakeOptions();
  options.reactors = 1;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client slow = Client::Connect(server.address());
  ASSERT_TRUE(slow.SendAll("x"));
  ASSERT_TRUE(WaitUntil([&] { return handler.traffic == 1; }));
  Client idle = Client::Connect(server.address());
  ASSERT_TRUE(idle.SendAll("i"));
  ASSERT_TRUE(WaitUntil([&] { return greeted == 1; }));
  {
    // Both in one batch; the slow one is first in it.
    LoopBlock block(server.engine().reactor(0));
    ASSERT_TRUE(slow.SendAll("s"));
    came_at = Clock::now();
    ASSERT_TRUE(idle.SendAll("x"));
  }
  ASSERT_TRUE(WaitUntil(
      [&] { return handler.closed_at.load() != Clock::time_point(); }));
  EXPECT_GE(handler.closed_at.load() - came_at.load(), kTimeout);
}

// Traffic every third of the timeout for a long time.
enum class Direction { kIn, kOut };
void TryToStayAlive(const MatrixParam& param, Options options,
                    Direction direction) {
  constexpr milliseconds kTimeout{300};
  constexpr milliseconds kPause = kTimeout / 3;
  bool stayed = false;
  for (int attempt = 0; attempt < kAttempts && !stayed; ++attempt) {
    options.limits.idle_timeout = kTimeout;
    ClosingHandler handler;
    handler.on_open = [&](Connection& c) {
      if (direction == Direction::kIn) return Action::kNone;
      // In steps of its own, as long as it lives.
      struct Sender {
        static void Send(Reactor& reactor, ConnectionRef ref,
                         milliseconds pause, int left) {
          if (left == 0 || !ref.Write("o").ok()) return;
          reactor.RunAfter(pause, [&reactor, ref, pause, left] {
            Send(reactor, ref, pause, left - 1);
          });
        }
      };
      Sender::Send(c.reactor(), c.ref(), kPause, 20);
      return Action::kNone;
    };
    TestServer server(handler, {param.Listen()}, options);
    Client client = Client::Connect(server.address());
    const Clock::time_point start = Clock::now();
    // When the last byte was on its way that did arrive.
    Clock::time_point last = start;
    for (int i = 0; i < 20 && handler.closed == 0; ++i) {
      if (direction == Direction::kIn) {
        const int before = handler.traffic;
        const Clock::time_point now = Clock::now();
        if (send(client.fd(), "i", 1, MSG_NOSIGNAL) != 1) break;
        if (!WaitUntil([&] {
              return handler.traffic > before || handler.closed == 1;
            })) {
          break;
        }
        if (handler.traffic > before) last = now;
      }
      std::this_thread::sleep_for(kPause);
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
    EXPECT_GE(handler.closed_at.load() - last, kTimeout);
    stayed = handler.closed_at.load() - start > 4 * kTimeout;
  }
  EXPECT_TRUE(stayed) << "it ended although there was traffic";
}

TEST_P(IdleTimeout, BytesThatComeKeepItAlive) {
  TryToStayAlive(GetParam(), GetParam().MakeOptions(), Direction::kIn);
}

TEST_P(IdleTimeout, BytesThatGoKeepItAlive) {
  TryToStayAlive(GetParam(), GetParam().MakeOptions(), Direction::kOut);
}

TEST_P(IdleTimeout, ZeroIsNever) {
  ClosingHandler handler;
  handler.on_open = [](Connection& c) {
    c.SetIdleTimeout(milliseconds(0));
    return Action::kNone;
  };
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(milliseconds(50)));
  Client client = Client::Connect(server.address());
  EXPECT_FALSE(client.Readable(milliseconds(400)));
  EXPECT_TRUE(client.Echo("still here"));
  EXPECT_FALSE(client.Readable(milliseconds(300)));
  EXPECT_EQ(handler.closed, 0);
}

// Another timeout while one runs: shorter, longer, none, and again.
TEST_P(IdleTimeout, MayBeChanged) {
  ClosingHandler handler;
  Event changed;
  handler.on_traffic = [&](Connection& c) {
    const char what = c.Next().front();
    if (what == 'l') c.SetIdleTimeout(std::chrono::hours(24 * 365 * 20));
    if (what == 'n') c.SetIdleTimeout(milliseconds(0));
    if (what == 's') c.SetIdleTimeout(milliseconds(30));
    EXPECT_TRUE(c.Write("k").ok());
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(std::chrono::hours(1)));
  Client client = Client::Connect(server.address());
  for (const std::string what : {"l", "n", "l"}) {
    ASSERT_TRUE(client.SendAll(what));
    EXPECT_EQ(client.ReadExactly(1), "k");
    EXPECT_FALSE(client.Readable(milliseconds(200))) << what;
  }
  ASSERT_TRUE(client.SendAll("s"));
  EXPECT_EQ(client.ReadExactly(1), "k");
  EXPECT_EQ(client.ReadToEof(), "");
  EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
}

// A peer that reads nothing is no traffic either.
TEST_P(IdleTimeout, OutputThatDoesNotMoveIsIdle) {
  ClosingHandler handler;
  std::atomic<size_t> unsent{0};
  handler.on_open = [](Connection& c) {
    EXPECT_TRUE(c.Write(std::string(size_t{8} << 20, 'o')).ok());
    return Action::kNone;
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    handler.reason = info.reason;
    unsent = info.unsent_bytes;
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(milliseconds(100)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
  EXPECT_GT(unsent, 0u);
}

TEST_P(IdleTimeout, TwoThousandConnections) {
  constexpr int kConnections = 2000;
  static constexpr milliseconds kTimeout{1000};
  LambdaHandler handler;
  std::atomic<int> idle{0};
  std::atomic<int> early{0};
  handler.on_open = [](Connection& c) {
    c.Emplace<Clock::time_point>(Clock::now());
    c.SetIdleTimeout(kTimeout);
    return Action::kNone;
  };
  handler.on_close = [&](Connection& c, const CloseInfo& info) {
    idle += info.reason == CloseReason::kIdleTimeout;
    early += Clock::now() - c.Get<Clock::time_point>() < kTimeout;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  std::vector<Client> clients;
  for (int i = 0; i < kConnections; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().connected());
  }
  ASSERT_TRUE(WaitUntil([&] { return idle == kConnections; })) << idle;
  EXPECT_EQ(early, 0);
  EXPECT_TRUE(server.WaitForNoConnections());
  const EngineStats stats = server.stats();
  EXPECT_EQ(stats.accepted, uint64_t{kConnections});
  EXPECT_EQ(stats.opened, uint64_t{kConnections});
  EXPECT_EQ(stats.closed, uint64_t{kConnections});
  EXPECT_EQ(stats.bytes_in, 0u);
  EXPECT_EQ(stats.bytes_out, 0u);
  EXPECT_EQ(stats.timers, 0u) << "deadlines of connections are no timers";
  EXPECT_EQ(stats.buffers_outstanding, 0u);
  for (Client& client : clients) EXPECT_EQ(client.ReadToEof(), "");
}

// Thousands of far deadlines are not a reason to wake up.
TEST_P(IdleTimeout, FarDeadlinesDoNotWakeTheLoop) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(std::chrono::hours(3)));
  std::vector<Client> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().Echo("x"));
  }
  for (int i = 0; i < server.engine().reactors(); ++i) {
    TurnOver(server.engine().reactor(i));
  }
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_LE(server.stats().turns - turns,
            5u * static_cast<uint64_t>(server.engine().reactors() + 1));
}

INSTANTIATE_TEST_SUITE_P(
    Some, IdleTimeout,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff, Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
