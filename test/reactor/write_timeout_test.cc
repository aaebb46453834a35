// Output of which the kernel takes nothing: never early, and soon.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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
constexpr milliseconds kLate{120};  // see read_timeout_test
constexpr int kAttempts = 20;
// Far more than the small buffers of the two sockets hold.
constexpr size_t kMuch = size_t{1} << 20;

class WriteTimeout : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithTimeout(milliseconds timeout) {
    Options options = GetParam().MakeOptions();
    options.limits.write_timeout = timeout;
    return options;
  }
  ListenerSpec Listener() { return SmallBuffers(GetParam().Listen()); }
  static void WriteMuch(Connection& c) {
    EXPECT_TRUE(c.Write(std::string(kMuch, 'o')).ok());
  }
};

// What comes meanwhile does not count.
TEST_P(WriteTimeout, ByOptionNeverEarlyAndSoon) {
  Clock::duration soonest = std::chrono::hours(1);
  for (int attempt = 0; attempt < kAttempts && soonest > kTimeout + kLate;
       ++attempt) {
    TimedCloseHandler handler;
    std::atomic<size_t> unsent{0};
    handler.on_open = [&](Connection& c) {
      handler.began = Clock::now();
      WriteMuch(c);
      return Action::kNone;
    };
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      unsent = info.unsent_bytes;
    };
    TestServer server(handler, {Listener()}, WithTimeout(kTimeout));
    Client client = Client::Connect(server.address(), SmallReceiver());
    while (handler.closed == 0) {
      if (send(client.fd(), "i", 1, MSG_NOSIGNAL) != 1) break;
      std::this_thread::sleep_for(milliseconds(20));
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kWriteTimeout);
    EXPECT_GE(handler.took(), kTimeout);
    EXPECT_GT(unsent, 0u);
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(server.stats().closed_for(CloseReason::kWriteTimeout), 1u);
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
    soonest = std::min(soonest, handler.took());
  }
  EXPECT_LE(soonest, kTimeout + kLate);
}

// A peer that reads slowly is not one that does not read.
TEST_P(WriteTimeout, OutputThatMovesKeepsItAlive) {
  constexpr milliseconds kLonger{400};
  // A Unix socket holds 208 KiB whatever its listener was told, and has room
  // again when three quarters of it have been read.
  constexpr size_t kStep = size_t{256} << 10;
  constexpr size_t kSteps = 20;
  bool stayed = false;
  for (int attempt = 0; attempt < kAttempts && !stayed; ++attempt) {
    TimedCloseHandler handler;
    handler.on_open = [&](Connection& c) {
      EXPECT_TRUE(c.Write(std::string(2 * kSteps * kStep, 'o')).ok());
      return Action::kNone;
    };
    TestServer server(handler, {Listener()}, WithTimeout(kLonger));
    Client client = Client::Connect(server.address(), SmallReceiver());
    std::string some(kStep, '\0');
    for (size_t step = 0; step < kSteps && handler.closed == 0; ++step) {
      for (size_t got = 0; got < kStep && handler.closed == 0;) {
        ASSERT_TRUE(client.Readable(kPatience));
        const ssize_t n = recv(client.fd(), some.data(), kStep - got, 0);
        if (n <= 0) break;  // it ended after all
        got += static_cast<size_t>(n);
      }
      std::this_thread::sleep_for(kLonger / 5);
    }
    stayed = handler.closed == 0;
  }
  EXPECT_TRUE(stayed) << "it ended although output moved";
}

// Nor is one that has nothing to read.
TEST_P(WriteTimeout, NothingToSendIsNoTimeout) {
  TimedCloseHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {Listener()}, WithTimeout(milliseconds(50)));
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.Echo("hello"));
  EXPECT_FALSE(client.Readable(milliseconds(300)));
  // Neither before nor after output had to wait.
  const ConnectionRef ref = handler.WaitFor(0);
  ASSERT_TRUE(ref.Post([](Connection& c) {
                   EXPECT_TRUE(
                       c.SetWriteTimeout(std::chrono::minutes(10)).ok());
                   WriteMuch(c);
                 })
                  .ok());
  EXPECT_EQ(client.ReadExactly(kMuch).size(), kMuch);
  ASSERT_TRUE(ref.Post([](Connection& c) {
                   EXPECT_EQ(c.outbound(), 0u);
                   EXPECT_TRUE(c.SetWriteTimeout(milliseconds(50)).ok());
                 })
                  .ok());
  EXPECT_FALSE(client.Readable(milliseconds(300)));
  EXPECT_EQ(handler.closed, 0);
}

TEST_P(WriteTimeout, PerConnection) {
  TimedCloseHandler handler;
  handler.on_open = [&](Connection& c) {
    const absl::Status bad = c.SetWriteTimeout(milliseconds(-7));
    EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(bad, "-7 ms")) << bad.ToString();
    WriteMuch(c);
    return Action::kNone;
  };
  TestServer server(handler, {Listener()}, WithTimeout(std::chrono::hours(1)));
  Client client = Client::Connect(server.address(), SmallReceiver());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(handler.closed, 0);
  RunOn(home, [&] {
    handler.began = Clock::now();
    EXPECT_TRUE(home.Find(ref)->SetWriteTimeout(milliseconds(100)).ok());
  });
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kWriteTimeout);
  EXPECT_GE(handler.took(), milliseconds(100));
}

// Once it is closing, flush_timeout counts and not this one.
TEST_P(WriteTimeout, NotWhileFlushing) {
  TimedCloseHandler handler;
  handler.on_open = [&](Connection& c) {
    handler.began = Clock::now();
    WriteMuch(c);
    return Action::kClose;
  };
  Options options = WithTimeout(milliseconds(50));
  options.limits.flush_timeout = milliseconds(500);
  TestServer server(handler, {Listener()}, options);
  Client client = Client::Connect(server.address(), SmallReceiver());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kWriteTimeout);
  EXPECT_GE(handler.took(), milliseconds(500));
}

// Written in a dial's own callback, before the connection is told of.
TEST_P(WriteTimeout, DialedConnectionsHaveItToo) {
  RawListener listener(GetParam().Listen());
  TimedCloseHandler handler;
  handler.on_open = [&](Connection& c) {
    handler.began = Clock::now();
    EXPECT_TRUE(c.Write(std::string(size_t{16} << 20, 'o')).ok());
    return Action::kNone;
  };
  TestServer server(handler, {}, WithTimeout(kTimeout));
  DialResult result;
  DialOptions dial;
  dial.socket.send_buffer = 4096;
  ASSERT_TRUE(
      server.engine().Dial(listener.address(), dial, result.Done()).ok());
  ASSERT_TRUE(result.Wait().ok());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kWriteTimeout);
  EXPECT_GE(handler.took(), kTimeout);
}

INSTANTIATE_TEST_SUITE_P(
    Some, WriteTimeout,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff, Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
