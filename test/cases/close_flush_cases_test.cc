// ctest: RUN_SERIAL TRUE
// Cases of closing with bytes under way, in either direction: what was accepted
// by Write arrives, and nobody else waits for it.

#include <errno.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

class CloseFlushCases : public ::testing::TestWithParam<MatrixParam> {};

// A writes 16 MiB to a peer that does not read, and closes; B pings meanwhile.
void CloseWithUnsentBytes(const MatrixParam& param, bool reads_at_last) {
  constexpr size_t kSize = size_t{16} << 20;
  const std::string bytes = Pattern(kSize);
  RefHandler handler;
  handler.on_traffic = EchoTraffic;
  std::atomic<size_t> unsent{0};
  std::atomic<CloseReason> reason{CloseReason::kNone};
  handler.on_close = [&](Connection& c, const CloseInfo& info) {
    if (c.ref() != handler.at(0)) return;
    unsent = info.unsent_bytes;
    reason = info.reason;
  };
  Options options = param.MakeOptions();
  options.limits.max_outbound = 0;
  options.limits.flush_timeout =
      reads_at_last ? std::chrono::minutes(10) : std::chrono::seconds(3);
  TestServer server(handler, {param.Listen()}, options);
  Client a = Client::Connect(server.address(), SmallReceiver());
  const ConnectionRef ref = handler.WaitFor(0);
  // One on each loop, so that one of them shares A's.
  std::vector<Client> b;
  for (int i = 0; i < param.reactors; ++i) {
    b.push_back(Client::Connect(server.address()));
    EXPECT_TRUE(b.back().Echo("x"));
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(ref.Post([&](Connection& c) {
                   EXPECT_TRUE(c.Write(bytes).ok());
                   c.Close();
                   EXPECT_EQ(c.Write("no").code(),
                             absl::StatusCode::kFailedPrecondition);
                 })
                  .ok());
  const uint64_t turns = server.stats().turns;
  const auto cpu = ProcessCpuTime();
  const auto pings_start = std::chrono::steady_clock::now();
  constexpr int kPings = 50;
  for (int i = 0; i < kPings; ++i) {
    for (Client& client : b) EXPECT_TRUE(client.Echo("ping"));
    std::this_thread::sleep_for(milliseconds(10));
  }
  // Each ping wakes a loop; the unsent bytes of A wake it rarely.
  EXPECT_LE(server.stats().turns - turns,
            static_cast<uint64_t>(8 * kPings * param.reactors));
  const double share = std::chrono::duration<double>(ProcessCpuTime() - cpu) /
                       std::chrono::duration<double>(
                           std::chrono::steady_clock::now() - pings_start);
  EXPECT_LT(share, kSanitized ? 0.7 : 0.4) << "of a CPU";

  if (reads_at_last) {
    EXPECT_EQ(handler.closed, 0);
    const int big = 1 << 20;  // or this takes minutes
    ASSERT_EQ(setsockopt(a.fd(), SOL_SOCKET, SO_RCVBUF, &big, sizeof(big)), 0);
    EXPECT_TRUE(SameBytes(a.ReadToEof(), bytes));
    a.Close();
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(unsent, 0u);
    EXPECT_EQ(reason.load(), CloseReason::kLocal);
  } else {
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_GE(std::chrono::steady_clock::now() - start,
              options.limits.flush_timeout);
    EXPECT_GT(unsent, 0u);
    EXPECT_LT(unsent, kSize);
    EXPECT_TRUE(reason == CloseReason::kLocal ||
                reason == CloseReason::kWriteTimeout)
        << CloseReasonName(reason);
    // Released after OnClose.
    ASSERT_TRUE(WaitUntil([&] {
      return server.stats().connections == static_cast<size_t>(param.reactors);
    }));
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  }
  for (Client& client : b) EXPECT_TRUE(client.Echo("still here"));
}

TEST_P(CloseFlushCases, B17_CloseWithUnsentBytesIsBounded) {
  CloseWithUnsentBytes(GetParam(), false);
}

TEST_P(CloseFlushCases, B17_CloseWithUnsentBytesFlushes) {
  CloseWithUnsentBytes(GetParam(), true);
}

// The end of the peer's bytes is not the end of ours.
TEST_P(CloseFlushCases, B22_TheQueuedReplyOutlivesThePeersFin) {
  const std::string reply = Pattern(size_t{8} << 20);
  for (const bool together : {true, false}) {
    RefHandler handler;
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      EXPECT_TRUE(c.Write(reply).ok());
      return Action::kNone;
    };
    std::atomic<CloseReason> reason{CloseReason::kNone};
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      reason = info.reason;
      EXPECT_EQ(info.unsent_bytes, 0u);
      EXPECT_EQ(info.error, 0);
    };
    Options options = GetParam().MakeOptions();
    options.limits.flush_timeout = std::chrono::minutes(10);
    TestServer server(handler, {GetParam().Listen()}, options);
    Client client = Client::Connect(server.address());
    Reactor& home = HomeOf(server, handler.WaitFor(0));
    if (together) {
      // Request and FIN are there when the loop looks.
      LoopBlock block(home);
      EXPECT_TRUE(client.SendAll("request"));
      client.ShutdownWrite();
    } else {
      EXPECT_TRUE(client.SendAll("request"));
      ASSERT_TRUE(WaitUntil([&] { return handler.traffic == 1; }));
      TurnOver(home);
      client.ShutdownWrite();
    }
    EXPECT_TRUE(SameBytes(client.ReadToEof(), reply));
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(reason.load(), CloseReason::kPeerClosed);
    EXPECT_EQ(handler.peer_shutdowns, 1);
  }
}

TEST_P(CloseFlushCases, B22_AWorkersReplyAfterThePeersFin) {
  const std::string reply = Pattern(size_t{1} << 20);
  for (const bool half_close : {true, false}) {
    RefHandler handler;
    Event fin;
    Event closed;
    if (half_close) {
      handler.on_peer_shutdown = [&](Connection&) {
        fin.Set();
        return Action::kNone;
      };
    }
    handler.on_close = [&](Connection&, const CloseInfo&) { closed.Set(); };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    std::thread worker([&] {
      if (half_close) {
        EXPECT_TRUE(fin.Wait());
        std::this_thread::sleep_for(milliseconds(100));
        EXPECT_EQ(handler.closed, 0);
        EXPECT_TRUE(ref.Write(reply).ok());
        EXPECT_TRUE(ref.Close().ok());
      } else {
        // EventHandler::OnPeerShutdown says: the default flushes and closes.
        EXPECT_TRUE(closed.Wait());
        EXPECT_TRUE(WaitUntil([&] { return !ref.Write(reply).ok(); }));
        EXPECT_EQ(ref.Write(reply).code(), absl::StatusCode::kNotFound);
      }
    });
    EXPECT_TRUE(client.SendAll("request"));
    client.ShutdownWrite();
    const std::string got = client.ReadToEof();
    EXPECT_TRUE(SameBytes(got, half_close ? reply : ""));
    worker.join();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(handler.closed, 1);
    EXPECT_EQ(handler.peer_shutdowns, 1);
  }
}

enum class LastWords { kOpenThenClose, kOpenAction, kTraffic, kTrafficAction };

TEST_P(CloseFlushCases, B23_WriteThenCloseArrivesWhole) {
  for (const size_t size : {size_t{4}, size_t{4} << 20}) {
    const std::string words = size == 4 ? "bye\n" : Pattern(size);
    for (const LastWords how :
         {LastWords::kOpenThenClose, LastWords::kOpenAction,
          LastWords::kTraffic, LastWords::kTrafficAction}) {
      RefHandler handler;
      const bool on_open =
          how == LastWords::kOpenThenClose || how == LastWords::kOpenAction;
      const bool action =
          how == LastWords::kOpenAction || how == LastWords::kTrafficAction;
      const auto speak = [&](Connection& c) {
        EXPECT_TRUE(c.Write(words).ok());
        if (action) return Action::kClose;
        c.Close();
        return Action::kNone;
      };
      if (on_open) handler.on_open = speak;
      handler.on_traffic = speak;
      handler.on_close = [&](Connection&, const CloseInfo& info) {
        EXPECT_EQ(info.reason, CloseReason::kLocal);
        EXPECT_EQ(info.error, 0);
        EXPECT_EQ(info.unsent_bytes, 0u);
      };
      Options options = GetParam().MakeOptions();
      options.limits.flush_timeout = std::chrono::minutes(10);
      options.limits.linger_timeout = std::chrono::minutes(10);
      TestServer server(handler, {GetParam().Listen()}, options);
      Client client = Client::Connect(server.address());
      if (!on_open) {
        EXPECT_TRUE(client.SendAll("x"));
      }
      EXPECT_TRUE(SameBytes(client.ReadToEof(), words));
      client.Close();
      EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
      EXPECT_EQ(handler.traffic, on_open ? 0 : 1);
    }
  }
}

// Closing a socket with unread bytes would reset it, and the answer with it.
TEST_P(CloseFlushCases, B25_TheAnswerSurvivesUnreadInput) {
  RefHandler handler;
  handler.on_traffic = [](Connection& c) {
    EXPECT_TRUE(c.Write("ERR\n").ok());
    c.Close();
    return Action::kNone;
  };
  handler.on_close = [](Connection&, const CloseInfo& info) {
    EXPECT_EQ(info.reason, CloseReason::kLocal);
    EXPECT_EQ(info.error, 0);
    EXPECT_EQ(info.unsent_bytes, 0u);
  };
  Options options = GetParam().MakeOptions();
  options.limits.linger_timeout = std::chrono::minutes(10);
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.SendAll(Pattern(size_t{256} << 10)));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(client.ReadToEof(), "ERR\n");
  EXPECT_EQ(handler.traffic, 1);
  client.Close();
  EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
}

// ... but neither bytes nor time without end are spent on it.
TEST_P(CloseFlushCases, B25_WaitingForThePeersEndIsBounded) {
  for (const bool by_bytes : {true, false}) {
    RefHandler handler;
    handler.on_open = [](Connection& c) {
      EXPECT_TRUE(c.Write("ERR\n").ok());
      return Action::kClose;
    };
    handler.on_close = [](Connection&, const CloseInfo& info) {
      EXPECT_EQ(info.reason, CloseReason::kLocal);
      EXPECT_EQ(info.unsent_bytes, 0u);
    };
    Options options = GetParam().MakeOptions();
    options.limits.linger_timeout =
        by_bytes ? milliseconds(600'000) : milliseconds(300);
    options.limits.linger_bytes = size_t{256} << 10;
    TestServer server(handler, {GetParam().Listen()}, options);
    const auto start = std::chrono::steady_clock::now();
    Client client = Client::Connect(server.address());
    EXPECT_EQ(client.ReadToEof(), "ERR\n");
    if (by_bytes) {
      // The peer takes its answer and goes on sending.
      const std::string block(size_t{64} << 10, 'x');
      size_t sent = 0;
      ssize_t n = 0;
      ASSERT_TRUE(WaitUntil(
          [&] {
            n = send(client.fd(), block.data(), block.size(), MSG_NOSIGNAL);
            if (n > 0) sent += static_cast<size_t>(n);
            return n < 0 && errno != EAGAIN;
          },
          std::chrono::seconds(20)))
          << "it still takes bytes after " << sent;
      EXPECT_GE(sent, options.limits.linger_bytes);
    }
    EXPECT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    if (!by_bytes) {
      EXPECT_GE(std::chrono::steady_clock::now() - start,
                options.limits.linger_timeout);
    }
    EXPECT_TRUE(server.WaitForNoConnections());
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, CloseFlushCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
