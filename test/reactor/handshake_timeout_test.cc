// A peer that does not come to the point: from OnOpen to HandshakeDone.

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

class HandshakeTimeout : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithTimeout(milliseconds timeout) {
    Options options = GetParam().MakeOptions();
    options.limits.handshake_timeout = timeout;
    return options;
  }
};

// Whatever comes and goes meanwhile.
TEST_P(HandshakeTimeout, NeverEarlyAndSoon) {
  Clock::duration soonest = std::chrono::hours(1);
  for (int attempt = 0; attempt < kAttempts && soonest > kTimeout + kLate;
       ++attempt) {
    TimedCloseHandler handler;
    handler.on_traffic = EchoTraffic;
    TestServer server(handler, {GetParam().Listen()}, WithTimeout(kTimeout));
    handler.began = Clock::now();
    Client client = Client::Connect(server.address());
    while (handler.closed == 0) {
      if (send(client.fd(), "i", 1, MSG_NOSIGNAL) != 1) break;
      std::this_thread::sleep_for(milliseconds(20));
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.reason.load(), CloseReason::kHandshakeTimeout);
    EXPECT_GE(handler.took(), kTimeout);
    EXPECT_EQ(server.stats().closed_for(CloseReason::kHandshakeTimeout), 1u);
    soonest = std::min(soonest, handler.took());
  }
  EXPECT_LE(soonest, kTimeout + kLate);
}

// In OnOpen already, in OnTraffic, from outside; once is enough.
TEST_P(HandshakeTimeout, DoneIsDone) {
  TimedCloseHandler handler;
  std::atomic<int> opened{0};
  handler.on_open = [&](Connection& c) {
    if (opened++ == 0) c.HandshakeDone();
    return Action::kNone;
  };
  handler.on_traffic = [](Connection& c) {
    c.HandshakeDone();
    c.HandshakeDone();
    return EchoTraffic(c);
  };
  // What is too slow for a busy machine is tried again.
  for (milliseconds timeout = kTimeout;; timeout *= 2) {
    ASSERT_LT(timeout, kPatience);
    handler.closed = 0;
    opened = 0;
    const size_t first = handler.size();
    TestServer server(handler, {GetParam().Listen()}, WithTimeout(timeout));
    std::vector<Client> clients;
    for (size_t i = 0; i < 3; ++i) {
      clients.push_back(Client::Connect(server.address()));
      (void)handler.WaitFor(first + i);
    }
    EXPECT_EQ(send(clients[1].fd(), "x", 1, MSG_NOSIGNAL), 1);
    const absl::Status posted =
        handler.at(first + 2).Post([](Connection& c) { c.HandshakeDone(); });
    std::this_thread::sleep_for(2 * timeout);
    if (handler.closed > 0 || !posted.ok()) continue;
    EXPECT_EQ(clients[1].ReadExactly(1), "x");
    for (Client& client : clients) EXPECT_TRUE(client.Echo("still here"));
    break;
  }
}

TEST_P(HandshakeTimeout, TheOtherTimeoutsHoldBesideIt) {
  TimedCloseHandler handler;
  Options options = WithTimeout(std::chrono::hours(1));
  options.limits.idle_timeout = kTimeout;
  TestServer server(handler, {GetParam().Listen()}, options);
  handler.began = Clock::now();
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kIdleTimeout);
  EXPECT_GE(handler.took(), kTimeout);
}

// From OnOpen on, however long the dial's own callback took.
TEST_P(HandshakeTimeout, DialedConnectionsHaveItToo) {
  RawListener listener(GetParam().Listen());
  for (const bool done_at_once : {false, true}) {
    TimedCloseHandler handler;
    handler.on_open = [&](Connection&) { return Action::kNone; };
    TestServer server(handler, {}, WithTimeout(kTimeout));
    ASSERT_TRUE(server.engine()
                    .Dial(listener.address(), DialOptions(),
                          [&](absl::StatusOr<Connection*> c) {
                            ASSERT_TRUE(c.ok());
                            if (done_at_once) (*c)->HandshakeDone();
                            std::this_thread::sleep_for(2 * kTimeout);
                            handler.began = Clock::now();
                          })
                    .ok());
    (void)handler.WaitFor(0);
    if (done_at_once) {
      std::this_thread::sleep_for(3 * kTimeout);
      EXPECT_EQ(handler.closed, 0);
    } else {
      ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
      EXPECT_EQ(handler.reason.load(), CloseReason::kHandshakeTimeout);
      EXPECT_GE(handler.took(), kTimeout);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Some, HandshakeTimeout,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff, Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
