// A peer that sends nothing while it is asked to: never early, and soon.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/dial_result.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/raw_listener.h"
#include "test/support/test_server.h"
#include "test/support/timed_close.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{150};
// What a deadline may be late by its own: 3 ticks of 32 ms. A busy machine may
// add to that; then we try again.
constexpr milliseconds kLate{120};
constexpr int kAttempts = 20;

class ReadTimeout : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithTimeout(milliseconds timeout) {
    Options options = GetParam().MakeOptions();
    options.limits.read_timeout = timeout;
    return options;
  }
};

// What is written meanwhile does not count.
TEST_P(ReadTimeout, ByOptionNeverEarlyAndSoon) {
  Clock::duration soonest = std::chrono::hours(1);
  for (int attempt = 0; attempt < kAttempts && soonest > kTimeout + kLate;
       ++attempt) {
    TimedCloseHandler handler;
    std::atomic<int> written{0};
    handler.on_open = [&](Connection& c) {
      c.reactor().RunEvery(milliseconds(20), [&written, ref = c.ref()] {
        written += ref.Write("x").ok();
      });
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, WithTimeout(kTimeout));
    handler.began = Clock::now();
    Client client = Client::Connect(server.address());
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
    EXPECT_GE(handler.took(), kTimeout);
    EXPECT_GT(written, 0);
    EXPECT_EQ(server.stats().closed_for(CloseReason::kReadTimeout), 1u);
    soonest = std::min(soonest, handler.took());
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  EXPECT_LE(soonest, kTimeout + kLate);
}

TEST_P(ReadTimeout, BytesThatComeKeepItAlive) {
  constexpr milliseconds kLonger{300};
  bool stayed = false;
  for (int attempt = 0; attempt < kAttempts && !stayed; ++attempt) {
    TimedCloseHandler handler;
    TestServer server(handler, {GetParam().Listen()}, WithTimeout(kLonger));
    const Clock::time_point start = handler.began = Clock::now();
    Client client = Client::Connect(server.address());
    for (int i = 0; i < 15 && handler.closed == 0; ++i) {
      const int before = handler.traffic;
      const Clock::time_point now = Clock::now();
      if (send(client.fd(), "i", 1, MSG_NOSIGNAL) != 1) break;
      if (!WaitUntil([&] {
            return handler.traffic > before || handler.closed == 1;
          })) {
        break;
      }
      if (handler.traffic > before) handler.began = now;
      std::this_thread::sleep_for(kLonger / 3);
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
    EXPECT_GE(handler.took(), kLonger);
    stayed = handler.ended.load() - start > 3 * kLonger;
  }
  EXPECT_TRUE(stayed) << "it ended although bytes came";
}

// Not while reading is paused, and counting anew from its end.
TEST_P(ReadTimeout, APausedReaderDoesNotRunIntoIt) {
  TimedCloseHandler handler;
  ReadPause pause;
  handler.on_open = [&](Connection& c) {
    pause = c.PauseRead();
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, WithTimeout(kTimeout));
  Client client = Client::Connect(server.address());
  Reactor& home = HomeOf(server, handler.WaitFor(0));
  std::this_thread::sleep_for(4 * kTimeout);
  EXPECT_EQ(handler.closed, 0);
  RunOn(home, [&] {
    handler.began = Clock::now();
    pause.Release();
  });
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
  EXPECT_GE(handler.took(), kTimeout);
}

// Nor while it has sent all that there is room for.
TEST_P(ReadTimeout, AFullReaderDoesNotRunIntoIt) {
  TimedCloseHandler handler;
  std::atomic<bool> consume{false};
  handler.on_traffic = [&](Connection& c) {
    if (consume) c.Discard();
    return Action::kNone;
  };
  Options options = WithTimeout(kTimeout);
  options.limits.max_inbound = 4096;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(std::string(4096, 'x')));
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  ASSERT_TRUE(WaitUntil([&] {
    size_t there = 0;
    RunOn(home, [&] {
      if (Connection* c = home.Find(ref)) there = c->inbound();
    });
    return there == 4096;
  }));
  std::this_thread::sleep_for(4 * kTimeout);
  EXPECT_EQ(handler.closed, 0);
  RunOn(home, [&] {
    consume = true;
    handler.began = Clock::now();
    home.Find(ref)->Discard();
  });
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
  EXPECT_GE(handler.took(), kTimeout);
}

// The peer has said that it will send no more: that is no timeout.
TEST_P(ReadTimeout, NotAfterAFin) {
  TimedCloseHandler handler;
  handler.on_peer_shutdown = [](Connection&) { return Action::kNone; };
  TestServer server(handler, {GetParam().Listen()}, WithTimeout(kTimeout));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.ShutdownWrite());
  ASSERT_TRUE(WaitUntil([&] { return handler.peer_shutdowns == 1; }));
  std::this_thread::sleep_for(4 * kTimeout);
  EXPECT_EQ(handler.closed, 0);
}

// Bytes that came in time do not count less because the loop was busy.
TEST_P(ReadTimeout, ABusyLoopDoesNotEndAnyone) {
  TimedCloseHandler handler;
  std::string read;
  handler.on_traffic = [&](Connection& c) {
    read += c.Next();
    return Action::kNone;
  };
  Options options = WithTimeout(kTimeout);
  options.reactors = 1;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  Reactor& home = HomeOf(server, handler.WaitFor(0));
  {
    LoopBlock block(home);
    ASSERT_TRUE(client.SendAll("x"));
    std::this_thread::sleep_for(2 * kTimeout);
    handler.began = Clock::now();
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_GE(handler.took(), kTimeout);
  EXPECT_EQ(read, "x");
}

TEST_P(ReadTimeout, PerConnection) {
  TimedCloseHandler handler;
  handler.on_open = [&](Connection& c) {
    // Bad ones change nothing.
    const absl::Status bad = c.SetReadTimeout(milliseconds(-1));
    EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(bad, "-1 ms")) << bad.ToString();
    return Action::kNone;
  };
  handler.on_traffic = [&](Connection& c) {
    const int unit = c.Next().back() - '0';
    handler.began = Clock::now();
    EXPECT_TRUE(c.SetReadTimeout(milliseconds(50) * unit).ok());
    EXPECT_TRUE(c.Write("k").ok());
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithTimeout(std::chrono::hours(1)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll("1"));  // never, unless it is too late already
  int error = 0;
  EXPECT_EQ(client.ReadToEnd(&error), "k");
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
  EXPECT_GE(handler.took(), milliseconds(50));

  Client never = Client::Connect(server.address());
  ASSERT_TRUE(never.SendAll("0"));
  EXPECT_EQ(never.ReadExactly(1), "k");
  EXPECT_FALSE(never.Readable(milliseconds(300)));
  // And from outside of a callback.
  const ConnectionRef ref = handler.WaitFor(1);
  Reactor& home = HomeOf(server, ref);
  RunOn(home, [&] {
    handler.began = Clock::now();
    EXPECT_TRUE(home.Find(ref)->SetReadTimeout(milliseconds(100)).ok());
  });
  EXPECT_EQ(never.ReadToEnd(&error), "");
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 2; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
  EXPECT_GE(handler.took(), milliseconds(100));
  EXPECT_EQ(server.stats().closed_for(CloseReason::kReadTimeout), 2u);
}

// The shorter one of the two ends it, whichever that is.
TEST_P(ReadTimeout, BesideAnIdleTimeout) {
  for (const bool idle_first : {true, false}) {
    TimedCloseHandler handler;
    Options options = WithTimeout(idle_first ? 4 * kTimeout : kTimeout);
    options.limits.idle_timeout = idle_first ? kTimeout : 4 * kTimeout;
    TestServer server(handler, {GetParam().Listen()}, options);
    handler.began = Clock::now();
    Client client = Client::Connect(server.address());
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), idle_first ? CloseReason::kIdleTimeout
                                                : CloseReason::kReadTimeout);
    EXPECT_GE(handler.took(), kTimeout);
  }
}

TEST_P(ReadTimeout, DialedConnectionsHaveItToo) {
  if (GetParam().family == Family::kUnix) GTEST_SKIP();
  RawListener listener(GetParam().Listen());
  TimedCloseHandler handler;
  TestServer server(handler, {}, WithTimeout(kTimeout));
  handler.began = Clock::now();
  DialResult result;
  ASSERT_TRUE(server.engine()
                  .Dial(listener.address(), DialOptions(), result.Done())
                  .ok());
  ASSERT_TRUE(result.Wait().ok());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReadTimeout);
  EXPECT_GE(handler.took(), kTimeout);
}

INSTANTIATE_TEST_SUITE_P(
    Some, ReadTimeout,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff, Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
