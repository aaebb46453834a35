// wrap: epoll_ctl
// Cases of closing: a connection ends once, outside of every callback, and
// touches no other one.

#include <errno.h>
#include <sys/epoll.h>

#include <atomic>
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
#include "test/support/process_info.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

extern "C" {
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
}

namespace sluice::test {
namespace {

std::atomic<int> failed_deletes{0};  // EPOLL_CTL_DEL

// Callbacks of connections that the calling thread is inside of.
thread_local int callback_depth = 0;
struct Inside {
  Inside() { ++callback_depth; }
  ~Inside() { --callback_depth; }
};

class CloseCases : public ::testing::TestWithParam<MatrixParam> {};

// Everything for a dead connection is waiting when the loop comes to it.
TEST_P(CloseCases, B14_ResetWhileWritesAndACloseAreQueued) {
  for (const bool close_now : {true, false}) {
    RefHandler handler;
    std::atomic<int> first_closed{0};
    handler.on_open = [&](Connection& c) {
      c.Emplace<int>(0);
      return Action::kNone;
    };
    handler.on_traffic = EchoTraffic;
    handler.on_close = [&](Connection& c, const CloseInfo&) {
      EXPECT_EQ(++c.Get<int>(), 1) << "a second OnClose";
      if (c.ref() == handler.at(0)) ++first_closed;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client dead = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    std::vector<Client> others;
    for (size_t i = 0; i < 4; ++i) {
      others.push_back(Client::Connect(server.address()));
      EXPECT_TRUE(others.back().Echo("before"));
    }
    ASSERT_EQ(server.stats().connections, 5u);
    const int deletes = failed_deletes;
    Reactor& home = HomeOf(server, ref);
    {
      LoopBlock block(home);
      std::thread writer([&] {
        for (int i = 0; i < 100; ++i) EXPECT_TRUE(ref.Write("x").ok());
      });
      writer.join();
      dead.CloseWithReset();
      EXPECT_TRUE(
          ref.Close(close_now ? CloseMode::kNow : CloseMode::kFlush).ok());
    }
    ASSERT_TRUE(WaitUntil([&] { return server.stats().connections == 4; }));
    TurnOver(home);
    EXPECT_EQ(first_closed, 1);
    EXPECT_EQ(handler.closed, 1);
    EXPECT_EQ(server.stats().connections, 4u);
    EXPECT_EQ(failed_deletes - deletes, 0);
    for (Client& other : others) EXPECT_TRUE(other.Echo("after"));
  }
}

TEST_P(CloseCases, B16_ATicketOfTheDeadFailsFast) {
  RefHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  EXPECT_TRUE(client.Echo(std::string(100'000, 'x')));
  client.Close();
  ASSERT_TRUE(server.WaitForNoConnections());
  const std::string bytes(1024, 'y');
  const size_t rss = RssBytes();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(ref.Write(bytes).code(), absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  EXPECT_EQ(server.stats().posts_dropped, 0u);
  if (!kSanitized) {
    EXPECT_LT(RssBytes(), rss + (size_t{2} << 20));
  }
  EXPECT_EQ(handler.closed, 1);
}

// What was accepted for a connection that is gone when the loop comes to it.
TEST_P(CloseCases, B16_WritesOnTheirWayToTheDeadAreDropped) {
  RefHandler handler;
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  std::atomic<int> closed_next_turn{-1};
  const auto look = [&] { closed_next_turn = handler.closed.load(); };
  const auto post_look = [&] { EXPECT_TRUE(home.Post(look).ok()); };
  {
    LoopBlock block(home);
    EXPECT_TRUE(ref.Close(CloseMode::kNow).ok());
    // What a task posts comes a turn later.
    EXPECT_TRUE(home.Post(post_look).ok());
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(ref.Write(std::string(1024, 'z')).ok());
    }
  }
  EXPECT_EQ(client.ReadToEof(), "");
  ASSERT_TRUE(server.WaitForNoConnections());
  ASSERT_TRUE(WaitUntil([&] { return closed_next_turn >= 0; }));
  EXPECT_EQ(closed_next_turn, 1);
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  EXPECT_EQ(handler.closed, 1);
}

TEST_P(CloseCases, B18_EveryoneClosesAtOnce) {
  constexpr int kRounds = 10;
  RefHandler handler;
  handler.on_open = [](Connection& c) {
    c.Emplace<int>(0);
    return Action::kNone;
  };
  handler.on_close = [](Connection& c, const CloseInfo&) {
    EXPECT_EQ(++c.Get<int>(), 1) << "a second OnClose";
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  for (size_t round = 0; round < kRounds; ++round) {
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(round);
    Event start;
    std::vector<std::thread> closers;
    for (int t = 0; t < 2; ++t) {
      closers.emplace_back([&] {
        ASSERT_TRUE(start.Wait());
        for (size_t i = 0; i < 1000; ++i) {
          const absl::Status closed =
              ref.Close(static_cast<CloseMode>((i + round) % 3));
          ASSERT_TRUE(closed.ok() || absl::IsNotFound(closed))
              << closed.ToString();
        }
      });
    }
    start.Set();
    client.Close();
    for (std::thread& closer : closers) closer.join();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(ref.Close().code(), absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(handler.closed, kRounds);
  EXPECT_EQ(server.stats().closed, static_cast<uint64_t>(kRounds));
}

TEST_P(CloseCases, B19_CloseInTheMiddleOfTheInput) {
  for (const CloseMode mode :
       {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
    RefHandler handler;
    std::vector<std::string> lines;
    handler.on_traffic = [&](Connection& c) {
      Inside inside;
      // A line handler that does not look at what its line did.
      const std::string_view input = c.Peek();
      const size_t end = input.find('\n');
      if (end == std::string_view::npos) return Action::kNone;
      lines.emplace_back(c.Next(end + 1));
      c.Close(mode);
      EXPECT_FALSE(c.open());
      EXPECT_EQ(handler.closed, 0);
      EXPECT_EQ(c.Write("no").code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(c.ref().Write("no").ok(), false);
      EXPECT_EQ(c.peer().family(), Address::Family::kIpv4);
      EXPECT_LE(c.Peek().size(), 6u);
      (void)c.ref().Wake();
      c.Close(mode);
      return Action::kClose;
    };
    handler.on_close = [&](Connection& c, const CloseInfo& info) {
      EXPECT_EQ(callback_depth, 0) << "OnClose inside another callback";
      EXPECT_EQ(info.reason, CloseReason::kLocal);
      EXPECT_EQ(c.Write("no").code(), absl::StatusCode::kFailedPrecondition);
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    Reactor& home = HomeOf(server, handler.WaitFor(0));
    EXPECT_TRUE(client.SendAll("l1\nl2\nl3\n"));
    int error = 0;
    EXPECT_EQ(client.ReadToEnd(&error), "");
    // kNow closes a socket that may have unread bytes: then Linux resets it.
    if (mode == CloseMode::kFlush) {
      EXPECT_EQ(error, 0);
      (void)client.SendAll("l4\n");
    } else if (mode == CloseMode::kReset) {
      EXPECT_EQ(error, ECONNRESET);
    }
    client.Close();
    ASSERT_TRUE(server.WaitForNoConnections());
    TurnOver(home);
    EXPECT_EQ(lines, std::vector<std::string>{"l1\n"});
    EXPECT_EQ(handler.traffic, 1);
    EXPECT_EQ(handler.closed, 1);
  }
}

// From the callback of another connection, to a peer that has sent RST.
TEST_P(CloseCases, B28_AWriteToTheDeadDoesNotClose) {
  for (const size_t size : {size_t{1}, size_t{2} << 20}) {
    RefHandler handler;
    Event inside_traffic;
    Event reset_sent;
    handler.on_open = [&](Connection&) {
      Inside inside;
      return Action::kNone;
    };
    handler.on_traffic = [&](Connection& c) {
      Inside inside;
      c.Discard();
      inside_traffic.Set();
      EXPECT_TRUE(reset_sent.Wait());
      Connection* dead = c.reactor().Find(handler.at(0));
      if (dead == nullptr) {
        ADD_FAILURE() << "the connection is gone before the loop saw its end";
        return Action::kNone;
      }
      for (int i = 0; i < 2; ++i) {
        const absl::Status written = dead->Write(std::string(size, 'x'));
        EXPECT_TRUE(written.ok() || absl::IsFailedPrecondition(written))
            << written.ToString();
        EXPECT_EQ(callback_depth, 1);
        EXPECT_EQ(handler.closed, 0);
      }
      EXPECT_EQ(c.reactor().Find(handler.at(0)), dead);
      return Action::kNone;
    };
    handler.on_close = [&](Connection& c, const CloseInfo& info) {
      EXPECT_EQ(callback_depth, 0) << "OnClose inside another callback";
      Inside inside;
      if (c.ref() != handler.at(0)) return;
      EXPECT_EQ(info.reason, CloseReason::kReset);
      EXPECT_TRUE(info.error == ECONNRESET || info.error == EPIPE)
          << info.error;
      EXPECT_EQ(c.Write("no").code(), absl::StatusCode::kFailedPrecondition);
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client dead = Client::Connect(server.address());
    const ConnectionRef dead_ref = handler.WaitFor(0);
    Reactor& home = HomeOf(server, dead_ref);
    // By turns, so the one on the same loop is the last of these.
    std::vector<Client> others;
    for (int i = 0; i < GetParam().reactors; ++i) {
      others.push_back(Client::Connect(server.address()));
      (void)handler.WaitFor(others.size());
    }
    EXPECT_TRUE(others.back().SendAll("x"));
    ASSERT_TRUE(inside_traffic.Wait());
    dead.CloseWithReset();
    reset_sent.Set();
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    TurnOver(home);
    EXPECT_EQ(handler.closed, 1);
    EXPECT_EQ(dead_ref.Write("no").code(), absl::StatusCode::kNotFound);
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, CloseCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test

extern "C" int __wrap_epoll_ctl(int epoll, int operation, int fd,
                                epoll_event* event) {
  const int result = __real_epoll_ctl(epoll, operation, fd, event);
  if (result != 0 && operation == EPOLL_CTL_DEL) {
    ++sluice::test::failed_deletes;
  }
  return result;
}
