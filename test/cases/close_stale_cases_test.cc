// Cases of closing: a descriptor's number is free only when nothing of its old
// connection can reach it, and an event of the dead never reaches the next.

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

// Which socket a descriptor of the calling thread's table stands for.
ino_t SocketOf(int fd) {
  struct stat info;
  EXPECT_EQ(fstat(fd, &info), 0) << "descriptor " << fd << " is not open";
  return info.st_ino;
}

std::vector<MatrixParam> TableCombinations() {
  std::vector<MatrixParam> all;
  for (MatrixParam param : LoopCombinations()) {
    for (const FdTables tables : FdTableChoices()) {
      param.fd_tables = tables;
      all.push_back(param);
    }
  }
  return all;
}

class CloseTableCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(CloseTableCases, B13_OnCloseStillOwnsTheDescriptor) {
  for (const CloseMode mode :
       {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
    RefHandler handler;
    Event in_on_close;
    Event others_are_here;
    std::mutex mutex;
    std::vector<int> fds;  // of the connections, in the order of OnOpen
    ino_t socket_of_a = 0;
    handler.on_open = [&](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex);
      if (fds.empty()) socket_of_a = SocketOf(c.fd());
      fds.push_back(c.fd());
      return Action::kNone;
    };
    handler.on_traffic = EchoTraffic;
    handler.on_close = [&](Connection& c, const CloseInfo&) {
      if (c.ref() != handler.at(0)) return;
      in_on_close.Set();
      EXPECT_TRUE(others_are_here.Wait());
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(c.Write("LEAK").code(),
                  absl::StatusCode::kFailedPrecondition);
        EXPECT_FALSE(c.ref().Write("LEAK").ok());
      }
      EXPECT_EQ(c.peer().family(), Address::Family::kIpv4);
      EXPECT_EQ(c.local(), c.reactor().engine().bound()[0]);
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(c.fd(), fds[0]);
      EXPECT_EQ(SocketOf(c.fd()), socket_of_a)
          << "the descriptor was released before OnClose was over";
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client a = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    EXPECT_TRUE(a.Echo("x"));
    EXPECT_TRUE(ref.Close(mode).ok());
    a.Close();
    ASSERT_TRUE(in_on_close.Wait());
    std::vector<Client> others;
    for (int i = 0; i < 4; ++i) {
      others.push_back(Client::Connect(server.address()));
      EXPECT_TRUE(others.back().SendAll("b"));
    }
    if (GetParam().reactors == 2) {
      // The other loop serves its share while this one stands in OnClose.
      EXPECT_EQ(others[0].ReadExactly(1), "b");
      EXPECT_EQ(others[2].ReadExactly(1), "b");
      if (GetParam().fd_tables == FdTables::kShared) {
        std::lock_guard<std::mutex> lock(mutex);
        EXPECT_EQ(std::count(fds.begin(), fds.end(), fds[0]), 1);
      }
    }
    others_are_here.Set();
    if (GetParam().reactors == 2) {
      EXPECT_EQ(others[1].ReadExactly(1), "b");
      EXPECT_EQ(others[3].ReadExactly(1), "b");
    } else {
      for (Client& other : others) EXPECT_EQ(other.ReadExactly(1), "b");
    }
    for (Client& other : others) {
      EXPECT_TRUE(other.Echo("still mine"));
      other.ShutdownWrite();
      EXPECT_EQ(other.ReadToEof(), "") << "bytes of another connection";
      other.Close();
    }
    EXPECT_TRUE(server.WaitForNoConnections());
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, CloseTableCases,
                         ::testing::ValuesIn(TableCombinations()), MatrixName);

class CloseStaleCases : public ::testing::TestWithParam<MatrixParam> {};

// Two events of one batch; the handler of the first closes the connection of
// the second, and takes the lowest free descriptors right away.
TEST_P(CloseStaleCases, B20_AnEventOfTheDeadIsThrownAway) {
  constexpr int kNew = 48;
  for (const CloseMode mode :
       {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
    RefHandler handler;
    std::vector<Client> taken;  // made on the loop, in OnTraffic
    std::atomic<int> victim{-1};
    Event taken_ready;
    handler.on_open = [&](Connection& c) {
      c.Emplace<bool>(false);  // has it data?
      return Action::kNone;
    };
    const size_t second = static_cast<size_t>(GetParam().reactors);
    handler.on_traffic = [&](Connection& c) {
      if (victim < 0) {
        const bool first = c.ref() == handler.at(0);
        EXPECT_TRUE(first || c.ref() == handler.at(second));
        victim = static_cast<int>(first ? second : 0);
        const ConnectionRef other = handler.at(static_cast<size_t>(victim));
        Connection* dead = c.reactor().Find(other);
        if (dead == nullptr) {
          ADD_FAILURE() << "not on this loop";
          return Action::kNone;
        }
        dead->Close(mode);
        EXPECT_FALSE(dead->open());
        for (int i = 0; i < kNew; ++i) {
          taken.push_back(Client::Connect(c.reactor().engine().bound()[0]));
        }
        taken_ready.Set();
        return EchoTraffic(c);
      }
      EXPECT_NE(c.ref(), handler.at(static_cast<size_t>(victim)))
          << "OnTraffic of a closed connection";
      EXPECT_GT(c.inbound(), 0u) << "OnTraffic without bytes";
      return EchoTraffic(c);
    };
    std::atomic<int> victim_closed{0};
    handler.on_close = [&](Connection& c, const CloseInfo& info) {
      if (c.ref() != handler.at(static_cast<size_t>(victim.load()))) return;
      ++victim_closed;
      EXPECT_EQ(info.reason, CloseReason::kLocal);
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<Client> clients;
    for (size_t i = 0; i <= second; ++i) {
      clients.push_back(Client::Connect(server.address()));
      (void)handler.WaitFor(i);
    }
    {
      LoopBlock block(HomeOf(server, handler.at(0)));
      EXPECT_TRUE(clients[0].SendAll("1"));
      EXPECT_TRUE(clients[second].SendAll("1"));
    }
    ASSERT_TRUE(taken_ready.Wait());
    const size_t dead = static_cast<size_t>(victim.load());
    int error = 0;
    EXPECT_EQ(clients[dead].ReadToEnd(&error), "");
    clients[dead].Close();
    ASSERT_TRUE(WaitUntil([&] { return victim_closed == 1; }));
    EXPECT_EQ(clients[second - dead].ReadExactly(1), "1");

    // The new ones were all opened, have heard nothing, and work.
    const size_t all = second + 1 + kNew;
    ASSERT_TRUE(WaitUntil([&] { return handler.size() == all; }));
    EXPECT_EQ(handler.traffic, 1);
    EXPECT_EQ(handler.closed, 1);
    for (Client& client : taken) EXPECT_TRUE(client.Echo("mine"));
    EXPECT_EQ(server.stats().connections, all - 1);
    EXPECT_EQ(handler.closed, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, CloseStaleCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
