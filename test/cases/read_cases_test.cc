// ctest: RUN_SERIAL TRUE
// Cases of reading: what the peer sent arrives whole and in order, whoever is
// slow, and no loop spins on bytes that nobody wants yet.

#include <errno.h>
#include <sys/socket.h>

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
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/process_info.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Sends what the sockets take now; returns how much that was.
size_t SendWhatFits(Client& client, std::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(client.fd(), bytes.data() + sent,
                           bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      EXPECT_EQ(errno, EAGAIN);
      break;
    }
    sent += static_cast<size_t>(n);
  }
  return sent;
}

class ReadCases : public ::testing::TestWithParam<MatrixParam> {};

// Bytes and the end are there together; no byte is lost to the end.
TEST_P(ReadCases, B30_EveryByteComesBeforeTheEnd) {
  const std::string bytes = Pattern(size_t{300} << 10);
  for (const size_t chunk : {size_t{1} << 20, size_t{16} << 10}) {
    for (const bool consumes : {true, false}) {
      RefHandler handler;
      std::string got;
      std::string left;
      handler.on_traffic = [&](Connection& c) {
        EXPECT_EQ(handler.closed, 0);
        if (consumes) got += c.Next();
        return Action::kNone;
      };
      handler.on_peer_shutdown = [&](Connection& c) {
        left = c.Next();
        return Action::kClose;
      };
      std::atomic<CloseReason> reason{CloseReason::kNone};
      handler.on_close = [&](Connection&, const CloseInfo& info) {
        EXPECT_EQ(info.error, 0);
        reason = info.reason;
      };
      Options options = GetParam().MakeOptions();
      options.edge_chunk = chunk;
      TestServer server(handler, {GetParam().Listen()}, options);
      Client client = Client::Connect(server.address());
      {
        LoopBlock block(HomeOf(server, handler.WaitFor(0)));
        const size_t sent = SendWhatFits(client, bytes);
        if (sent < bytes.size()) {
          block.Release();
          EXPECT_TRUE(client.SendAll(std::string_view(bytes).substr(sent)));
        }
        client.Close();
      }
      ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
      EXPECT_TRUE(SameBytes(got, consumes ? bytes : ""));
      EXPECT_TRUE(SameBytes(left, consumes ? "" : bytes));
      EXPECT_TRUE(reason == CloseReason::kPeerClosed ||
                  reason == CloseReason::kLocal)
          << CloseReasonName(reason);
    }
  }
}

// The reason when nobody says otherwise, with a pause in between as well.
TEST_P(ReadCases, B30_TheEndIsAnEndAfterAPause) {
  const std::string bytes = Pattern(size_t{300} << 10);
  for (const bool paused : {true, false}) {
    RefHandler handler;
    std::string got;
    ReadPause pause;
    if (paused) {
      handler.on_open = [&](Connection& c) {
        pause = c.PauseRead();
        return Action::kNone;
      };
    }
    handler.on_traffic = [&](Connection& c) {
      got += c.Next();
      return Action::kNone;
    };
    std::atomic<CloseReason> reason{CloseReason::kNone};
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      EXPECT_EQ(info.error, 0);
      reason = info.reason;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    Reactor& home = HomeOf(server, handler.WaitFor(0));
    const size_t sent = SendWhatFits(client, bytes);
    if (paused) {
      if (sent == bytes.size()) client.ShutdownWrite();
      ExpectIdle(server, milliseconds(200));
      EXPECT_EQ(handler.traffic, 0);
      EXPECT_EQ(handler.closed, 0);
      RunOn(home, [&] { pause.Release(); });
    }
    if (sent < bytes.size()) {
      EXPECT_TRUE(client.SendAll(std::string_view(bytes).substr(sent)));
    }
    client.Close();
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_TRUE(SameBytes(got, bytes));
    EXPECT_EQ(reason.load(), CloseReason::kPeerClosed);
    EXPECT_EQ(handler.peer_shutdowns, 1);
  }
}

// A cap on the bytes of a turn must come back for the rest by itself, and let
// the others have their turn first.
TEST_P(ReadCases, B32_TheRestOfAChunkIsNotForgotten) {
  constexpr size_t kSize = size_t{1} << 20;
  constexpr size_t kChunk = size_t{16} << 10;
  const std::string bytes = Pattern(kSize);
  RefHandler handler;
  std::string got;
  std::atomic<size_t> have{0};
  std::atomic<size_t> have_when_other_served{kSize};
  const size_t second = static_cast<size_t>(GetParam().reactors);
  handler.on_traffic = [&](Connection& c) {
    if (c.ref() == handler.at(0)) {
      EXPECT_LE(c.inbound(), 2 * kChunk) << "in one turn";
      got += c.Next();
      have = got.size();
      return Action::kNone;
    }
    if (c.ref() == handler.at(second)) have_when_other_served = have.load();
    return EchoTraffic(c);
  };
  Options options = GetParam().MakeOptions();
  options.edge_chunk = kChunk;
  options.read_buffer = kChunk;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client big = Client::Connect(server.address());
  (void)handler.WaitFor(0);
  std::vector<Client> others;
  for (size_t i = 1; i <= second; ++i) {
    others.push_back(Client::Connect(server.address()));
    (void)handler.WaitFor(i);
  }
  size_t sent = 0;
  {
    LoopBlock block(HomeOf(server, handler.at(0)));
    sent = SendWhatFits(big, bytes);
    EXPECT_GE(sent, 4 * kChunk);
    EXPECT_TRUE(others.back().SendAll("x"));
  }
  EXPECT_EQ(others.back().ReadExactly(1), "x");
  EXPECT_LE(have_when_other_served, 2 * kChunk)
      << "read from one connection while another waited";
  EXPECT_TRUE(big.SendAll(std::string_view(bytes).substr(sent)));
  // Not a byte more comes from the client.
  ASSERT_TRUE(WaitUntil([&] { return have == kSize; })) << have.load();
  TurnOver(HomeOf(server, handler.at(0)));
  EXPECT_TRUE(SameBytes(got, bytes));
  ExpectIdle(server, milliseconds(200));
}

TEST_P(ReadCases, B34_WakeShowsWhatIsThereOnce) {
  RefHandler handler;
  std::atomic<int> wrong{0};
  handler.on_traffic = [&](Connection& c) {
    if (c.inbound() != 3 || c.Peek() != "abc" || c.Peek(3) != "abc" ||
        !c.Peek(4).empty()) {
      ++wrong;
    }
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  EXPECT_TRUE(client.SendAll("abc"));
  ASSERT_TRUE(WaitUntil([&] { return handler.traffic == 1; }));
  for (int wakes = 1; wakes <= 2; ++wakes) {
    ExpectIdle(server, milliseconds(200));
    EXPECT_EQ(handler.traffic, wakes) << "OnTraffic without a reason";
    std::thread([&] { EXPECT_TRUE(ref.Wake().ok()); }).join();
    ASSERT_TRUE(WaitUntil([&] { return handler.traffic == wakes + 1; }));
  }
  ExpectIdle(server, milliseconds(200));
  EXPECT_EQ(handler.traffic, 3);
  EXPECT_EQ(wrong, 0);
}

TEST_P(ReadCases, B34_NoTrafficFromAWakeAfterClose) {
  for (const CloseMode mode :
       {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
    RefHandler handler;
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    Reactor& home = HomeOf(server, ref);
    {
      LoopBlock block(home);
      EXPECT_TRUE(client.SendAll("abc"));
      EXPECT_TRUE(ref.Wake().ok());
      EXPECT_TRUE(ref.Close(mode).ok());
      EXPECT_TRUE(ref.Wake().ok());
    }
    int error = 0;
    EXPECT_EQ(client.ReadToEnd(&error), "");
    // One for the bytes, if they were seen before the tasks, one for the first.
    const int before = handler.traffic;
    EXPECT_LE(before, 2);
    for (int i = 0; i < 3; ++i) {
      (void)ref.Wake();
      (void)send(client.fd(), "d", 1, MSG_NOSIGNAL);
    }
    TurnOver(home);
    client.Close();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(ref.Wake().code(), absl::StatusCode::kNotFound);
    TurnOver(home);
    EXPECT_EQ(handler.traffic, before);
    EXPECT_EQ(handler.closed, 1);
  }
}

// A slow handler holds its peer back, not its own process.
TEST_P(ReadCases, B38_InputNobodyConsumesIsBounded) {
  constexpr size_t kLimit = size_t{1} << 20;
  constexpr size_t kReadBuffer = size_t{64} << 10;
  const std::string bytes = Pattern(size_t{64} << 20);
  RefHandler handler;
  std::string got;
  std::atomic<bool> consume{false};
  std::atomic<size_t> inbound{0};
  std::atomic<size_t> have{0};
  handler.on_traffic = [&](Connection& c) {
    inbound = c.Peek().size();
    if (consume) {
      got += c.Next();
      have = got.size();
    }
    return Action::kNone;
  };
  Options options = GetParam().MakeOptions();
  options.limits.max_inbound = kLimit;
  options.read_buffer = kReadBuffer;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  const size_t rss = RssBytes();
  // Until the kernel has taken nothing for a while, and the loop has what it
  // wants.
  size_t sent = 0;
  int silent = 0;
  ASSERT_TRUE(WaitUntil([&] {
    const size_t n = SendWhatFits(client, std::string_view(bytes).substr(sent));
    sent += n;
    silent = n == 0 ? silent + 1 : 0;
    return sent == bytes.size() || (inbound >= kLimit && silent > 200);
  }));
  EXPECT_LT(sent, bytes.size()) << "it reads without end";
  EXPECT_LE(inbound, kLimit + kReadBuffer);
  if (!kSanitized) {
    EXPECT_LT(RssBytes(), rss + 8 * kLimit);
  }
  ExpectIdle(server);

  // Reading goes on by itself once there is room.
  EXPECT_TRUE(ref.Post([&](Connection& c) {
                   EXPECT_LE(c.inbound(), kLimit + kReadBuffer);
                   consume = true;
                   got += c.Next();
                   have = got.size();
                 })
                  .ok());
  ASSERT_TRUE(WaitUntil([&] { return have == sent; }))
      << have << " of " << sent;
  EXPECT_TRUE(client.SendAll("more"));
  ASSERT_TRUE(WaitUntil([&] { return have == sent + 4; }));
  TurnOver(HomeOf(server, ref));
  EXPECT_TRUE(SameBytes(got, bytes.substr(0, sent) + "more"));
  EXPECT_EQ(handler.closed, 0);
  client.Close();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
}

// A piece at a time is enough to go on: the limit is no end either.
TEST_P(ReadCases, B38_ConsumingALittleGoesOn) {
  constexpr size_t kLimit = size_t{128} << 10;
  const std::string bytes = Pattern(size_t{2} << 20);
  RefHandler handler;
  std::string got;
  std::atomic<size_t> have{0};
  handler.on_traffic = [&](Connection& c) {
    // Full only: less than that is left lying.
    while (c.inbound() >= kLimit) {
      got += c.Next(std::min(size_t{10'000}, c.inbound()));
    }
    if (got.size() + c.inbound() == bytes.size()) got += c.Next();
    have = got.size();
    return Action::kNone;
  };
  Options options = GetParam().MakeOptions();
  options.limits.max_inbound = kLimit;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  EXPECT_TRUE(client.SendAll(bytes));
  ASSERT_TRUE(WaitUntil([&] { return have == bytes.size(); }))
      << have << " of " << bytes.size();
  TurnOver(HomeOf(server, ref));
  EXPECT_TRUE(SameBytes(got, bytes));
}

TEST_P(ReadCases, B39_AFrameLargerThanTheReadBuffer) {
  constexpr size_t kFrame = 200'001;
  const std::string frame = Pattern(kFrame);
  RefHandler handler;
  std::vector<std::string> frames;
  std::atomic<size_t> seen{0};  // unconsumed at the end of OnTraffic
  std::atomic<int> whole{0};
  handler.on_traffic = [&](Connection& c) {
    const std::string_view there = c.Peek();
    EXPECT_EQ(there.size(), c.inbound());
    EXPECT_TRUE(SameBytes(there, std::string_view(frame).substr(
                                     0, std::min(kFrame, there.size()))));
    const std::string_view view = c.Peek(kFrame);
    if (view.empty()) {
      EXPECT_LT(there.size(), kFrame);
      EXPECT_TRUE(c.Next(kFrame).empty());
      EXPECT_EQ(c.inbound(), there.size());
    } else {
      frames.emplace_back(c.Next(kFrame));
      EXPECT_EQ(c.inbound(), 0u);
      ++whole;
    }
    seen = c.inbound();
    return Action::kNone;
  };
  Options options = GetParam().MakeOptions();
  options.read_buffer = size_t{64} << 10;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  constexpr int kRounds = 3;
  for (int round = 1; round <= kRounds; ++round) {
    std::string_view rest = frame;
    for (const size_t piece : {size_t{1}, size_t{70'000}, size_t{130'000}}) {
      EXPECT_TRUE(client.SendAll(rest.substr(0, piece)));
      rest.remove_prefix(piece);
      if (rest.empty()) break;
      const size_t sent = kFrame - rest.size();
      ASSERT_TRUE(WaitUntil([&] { return seen == sent; }));
    }
    ASSERT_TRUE(rest.empty());
    ASSERT_TRUE(WaitUntil([&] { return whole == round; }));
  }
  TurnOver(HomeOf(server, ref));
  ASSERT_EQ(frames.size(), static_cast<size_t>(kRounds));
  for (const std::string& got : frames) EXPECT_TRUE(SameBytes(got, frame));
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
}

INSTANTIATE_TEST_SUITE_P(Loops, ReadCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
