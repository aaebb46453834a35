// ctest: RUN_SERIAL TRUE
// Cases of processor time and memory: nothing to do must cost nothing.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// --- B92: an unread connection that is reset

enum class Unread { kPaused, kInboundFull };

class UnreadCases : public ::testing::TestWithParam<Trigger> {
 protected:
  void Try(Unread why, bool data_first) {
    SCOPED_TRACE(why == Unread::kPaused ? "paused" : "inbound full");
    SCOPED_TRACE(data_first ? "data first" : "no data");
    Options options = TestOptions(1);
    options.trigger = GetParam();
    options.limits.max_inbound = 8192;
    options.read_buffer = 4096;
    LambdaHandler handler;
    std::vector<ReadPause> pauses;  // the loop's
    std::atomic<size_t> inbound{0};
    std::atomic<int> reason{-1};
    std::atomic<int> error{0};
    handler.on_open = [&](Connection& c) {
      if (why == Unread::kPaused) pauses.push_back(c.PauseRead());
      return Action::kNone;
    };
    handler.on_traffic = [&](Connection& c) {
      inbound = c.inbound();
      return Action::kNone;
    };
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      reason = static_cast<int>(info.reason);
      error = info.error;
    };
    TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
    Reactor& loop = server.engine().reactor(0);
    Client client = Client::Connect(server.address());
    ASSERT_TRUE(WaitUntil([&] { return handler.opened == 1; }));
    if (why == Unread::kInboundFull) {
      ASSERT_TRUE(client.SendAll(std::string(20'000, 'x')));
      ASSERT_TRUE(WaitUntil([&] { return inbound >= 8192; })) << inbound;
    } else if (data_first) {
      ASSERT_TRUE(client.SendAll("never read"));
    }
    TurnOver(loop);
    clockid_t cpu_clock{};
    RunOn(loop, [&] { cpu_clock = ThisThreadCpuClock(); });
    // Not read, and not a reason to turn either.
    const uint64_t turns = server.stats().turns;
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_LE(server.stats().turns - turns, 5u);
    EXPECT_EQ(handler.closed, 0);

    client.CloseWithReset();
    // Nothing else would ever wake this loop.
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(reason, static_cast<int>(CloseReason::kReset));
    EXPECT_EQ(error, ECONNRESET);
    ASSERT_TRUE(server.WaitForNoConnections());
    const nanoseconds cpu_before = ReadClock(cpu_clock);
    const uint64_t turns_before = server.stats().turns;
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_LT(ReadClock(cpu_clock) - cpu_before, milliseconds(25));
    EXPECT_LE(server.stats().turns - turns_before, 5u);
    EXPECT_EQ(handler.closed, 1);
    RunOn(loop, [&] { pauses.clear(); });
  }
};

TEST_P(UnreadCases, B92_AResetIsNoticedWhilePaused) {
  Try(Unread::kPaused, false);
  Try(Unread::kPaused, true);
}

TEST_P(UnreadCases, B92_AResetIsNoticedAtTheInboundLimit) {
  Try(Unread::kInboundFull, true);
}

// The peer has gone half-way and nothing is read: no reset, and no spinning.
TEST_P(UnreadCases, B92_AFinBehindUnreadBytesDoesNotSpin) {
  Options options = TestOptions(1);
  options.trigger = GetParam();
  LambdaHandler handler;
  std::optional<ReadPause> pause;  // the loop's
  handler.on_open = [&](Connection& c) {
    pause = c.PauseRead();
    return Action::kNone;
  };
  TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
  Reactor& loop = server.engine().reactor(0);
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == 1; }));
  ASSERT_TRUE(client.SendAll("unread"));
  ASSERT_TRUE(client.ShutdownWrite());
  std::this_thread::sleep_for(milliseconds(50));
  TurnOver(loop);
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(server.stats().turns - turns, 5u);
  EXPECT_EQ(handler.traffic, 0);
  EXPECT_EQ(handler.peer_shutdowns, 0);
  RunOn(loop, [&] { pause.reset(); });
  EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.traffic, 1);
  EXPECT_EQ(handler.peer_shutdowns, 1);
}

// A half-closed connection that stays, without anything to do.
TEST_P(UnreadCases, B92_AHalfClosedConnectionDoesNotSpin) {
  Options options = TestOptions(1);
  options.trigger = GetParam();
  LambdaHandler handler;
  handler.on_peer_shutdown = [](Connection&) { return Action::kNone; };
  TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
  Reactor& loop = server.engine().reactor(0);
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.ShutdownWrite());
  ASSERT_TRUE(WaitUntil([&] { return handler.peer_shutdowns == 1; }));
  TurnOver(loop);
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(server.stats().turns - turns, 5u);
  EXPECT_EQ(handler.closed, 0);
  client.CloseWithReset();
  EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Triggers, UnreadCases,
                         ::testing::Values(Trigger::kLevel, Trigger::kEdge),
                         [](const ::testing::TestParamInfo<Trigger>& trigger) {
                           return trigger.param == Trigger::kLevel ? "level"
                                                                   : "edge";
                         });

// --- B94: an engine without work

void ExpectQuiet(TestServer& server, clockid_t main_clock,
                 uint64_t most_turns) {
  std::vector<clockid_t> clocks = {main_clock};
  for (int i = 0; i < server.engine().reactors(); ++i) {
    Reactor& loop = server.engine().reactor(i);
    RunOn(loop, [&] { clocks.push_back(ThisThreadCpuClock()); });
    TurnOver(loop);
  }
  const auto used = [&] {
    nanoseconds sum{0};
    for (const clockid_t clock : clocks) sum += ReadClock(clock);
    return sum;
  };
  const uint64_t turns = server.stats().turns;
  const nanoseconds cpu = used();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LE(server.stats().turns - turns, most_turns);
  EXPECT_LT(used() - cpu, milliseconds(10));  // 0.5 %
}

class IdleCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(IdleCases, B94_AnIdleEngineSleeps) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  clockid_t main_clock{};
  handler.on_boot = [&](Engine&) {
    main_clock = ThisThreadCpuClock();
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  const uint64_t loops = static_cast<uint64_t>(GetParam().reactors) + 1;
  ExpectQuiet(server, main_clock, 3 * loops);

  // The same with connections that have had work and have none now; the pool
  // may be trimmed once.
  std::vector<Client> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().Echo("hello"));
  }
  ExpectQuiet(server, main_clock, 3 * loops);
}

INSTANTIATE_TEST_SUITE_P(
    Some, IdleCases,
    ::testing::Values(MatrixParam{Family::kTcp4, 1},
                      MatrixParam{Family::kTcp4, 4},
                      MatrixParam{Family::kTcp4, 4, AcceptMode::kReusePort},
                      MatrixParam{Family::kUnix, 4, AcceptMode::kHandOff,
                                  Trigger::kEdge}),
    MatrixName);

// --- B95: buffers after a burst

constexpr size_t kBurst = size_t{4} << 20;
constexpr int kConnections = 50;

class BufferCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options MakeOptions() {
    Options options = GetParam().MakeOptions();
    options.pool_keep_bytes = kKeep;
    options.limits.max_inbound = 2 * kBurst;
    options.limits.max_outbound = 2 * kBurst;
    return options;
  }
  void Connect(TestServer& server) {
    for (int i = 0; i < kConnections; ++i) {
      clients_.push_back(Client::Connect(server.address()));
    }
  }
  // One thread after the other would never have two bursts at a time.
  template <typename Function>
  void ForAllAtOnce(Function function) {
    std::vector<std::thread> threads;
    for (Client& client : clients_) {
      threads.emplace_back([&client, &function] { function(client); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // All connections stay open; their buffers do not.
  void ExpectSmall(TestServer& server) {
    const size_t most = kKeep * static_cast<size_t>(server.engine().reactors());
    EXPECT_TRUE(WaitUntil([&] {
      const EngineStats stats = server.stats();
      return stats.buffers_outstanding == 0 && stats.buffers_cached <= most;
    })) << "outstanding "
        << server.stats().buffers_outstanding << ", cached "
        << server.stats().buffers_cached;
    EXPECT_EQ(server.stats().connections, size_t{kConnections});
    for (Client& client : clients_) EXPECT_TRUE(client.connected());
  }

  // 200 MB were in use in between.
  void ExpectRssNear(size_t before) {
    if (kSanitized) return;
    EXPECT_TRUE(WaitUntil([&] {
      return RssBytes() < before + (size_t{64} << 20);
    })) << "RSS "
        << before << " before, " << RssBytes() << " after";
  }

  static constexpr size_t kKeep = size_t{256} << 10;
  std::vector<Client> clients_;
};

TEST_P(BufferCases, B95_InputThatIsConsumedAtOnceHoldsNothing) {
  LambdaHandler handler;
  TestServer server(handler, {GetParam().Listen()}, MakeOptions());
  Connect(server);
  const std::string burst(kBurst, 'i');
  ForAllAtOnce([&](Client& client) { EXPECT_TRUE(client.SendAll(burst)); });
  ASSERT_TRUE(WaitUntil(
      [&] { return server.stats().bytes_in == kConnections * kBurst; }));
  ExpectSmall(server);
}

TEST_P(BufferCases, B95_InputThatWasKeptIsGivenBack) {
  LambdaHandler handler;
  handler.on_traffic = [](Connection& c) {
    if (c.inbound() == kBurst) {
      EXPECT_EQ(c.Next().find_first_not_of('i'), std::string::npos);
      EXPECT_TRUE(c.Write("done").ok());
    }
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, MakeOptions());
  const size_t rss_before = RssBytes();
  Connect(server);
  const std::string burst(kBurst, 'i');
  ForAllAtOnce([&](Client& client) {
    EXPECT_TRUE(client.SendAll(burst));
    EXPECT_EQ(client.ReadExactly(4), "done");
  });
  ExpectSmall(server);
  ExpectRssNear(rss_before);
}

TEST_P(BufferCases, B95_OutputThatWasQueuedIsGivenBack) {
  LambdaHandler handler;
  const std::string burst(kBurst, 'o');
  handler.on_open = [&](Connection& c) {
    EXPECT_TRUE(c.Write(burst).ok());
    return Action::kNone;
  };
  // The kernel takes little of it, whatever it has learnt about loopback.
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    MakeOptions());
  const size_t rss_before = RssBytes();
  Connect(server);
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == kConnections; }));
  EXPECT_GT(server.stats().buffers_outstanding, kBurst);
  ForAllAtOnce([&](Client& client) {
    constexpr size_t kPiece = size_t{64} << 10;
    for (size_t have = 0; have < kBurst; have += kPiece) {
      ASSERT_EQ(client.ReadExactly(kPiece).size(), kPiece);
    }
  });
  ExpectSmall(server);
  ExpectRssNear(rss_before);
}

INSTANTIATE_TEST_SUITE_P(Some, BufferCases,
                         ::testing::Values(MatrixParam{Family::kTcp4, 1},
                                           MatrixParam{Family::kTcp4, 2,
                                                       AcceptMode::kHandOff,
                                                       Trigger::kEdge},
                                           MatrixParam{Family::kUnix, 2}),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
