// The gateway: logins, which block in the worker pool, and moves.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/examples/gateway_fixture.h"

namespace sluice::gateway {
namespace {

using test::Client;
using test::WaitUntil;

using GatewayLogin = GatewayTest;

TEST_F(GatewayLogin, LogsInAndMoves) {
  Start();
  Client ann = Player("ann");
  Client bob = Player("bob");
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(MovesOn(ann, i));
    EXPECT_TRUE(MovesOn(bob, 2 * i));
  }
  EXPECT_EQ(Counted(Count::kOpened), 2u);
  EXPECT_EQ(Counted(Count::kLogins), 2u);
  EXPECT_EQ(Counted(Count::kLoggedIn), 2u);
  EXPECT_EQ(Counted(Count::kMoves), 200u);
  ann.Close();
  EXPECT_TRUE(AwaitCount(Count::kByPeer, 1));
}

TEST_F(GatewayLogin, PacketsMayComeInPieces) {
  Start();
  Client ann = Connect();
  for (const char byte : Framed(Payload::Login("ann"))) {
    ASSERT_TRUE(ann.SendAll(std::string(1, byte)));
  }
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  const std::string two = Framed(MovePayload(1)) + Framed(MovePayload(2));
  ASSERT_TRUE(ann.SendAll(two.substr(0, 30)));
  EXPECT_TRUE(IsMoved(ann, 1));
  ASSERT_TRUE(ann.SendAll(two.substr(30)));
  EXPECT_TRUE(IsMoved(ann, 2));
  // Of what was once unfinished nothing is left behind.
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().timers == 0; }));
}

TEST_F(GatewayLogin, MovesBeforeTheLoginAreRefused) {
  options_.query = held_.query();
  Start();
  Client ann = Connect();
  ASSERT_TRUE(SendPacket(ann, MovePayload(1)));
  EXPECT_TRUE(IsRefused(ann, Command::kMove, Why::kLoginFirst));
  ASSERT_TRUE(SendPacket(ann, Payload::Login("ann")));
  ASSERT_TRUE(SendPacket(ann, MovePayload(2)));
  EXPECT_TRUE(IsRefused(ann, Command::kMove, Why::kLoginFirst));
  held_.Release();
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  EXPECT_TRUE(MovesOn(ann, 3));
  EXPECT_EQ(Counted(Count::kLoginFirst), 2u);
}

TEST_F(GatewayLogin, MovesAreAnsweredWhileEveryWorkerBlocks) {
  // The first one is let in at once.
  std::atomic<int> left{1};
  options_.query = [&left, held = held_.query()](
                       const std::string& name) -> absl::StatusOr<uint32_t> {
    if (left-- > 0) return Accounts::Number(name);
    return held(name);
  };
  engine_options_.reactors = 1;
  Start();
  Client ann = Player("ann");
  Client bob = Connect();
  Client eve = Connect();
  ASSERT_TRUE(SendPacket(bob, Payload::Login("bob")));
  ASSERT_TRUE(SendPacket(eve, Payload::Login("eve")));
  ASSERT_TRUE(held_.Await(2));
  for (uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(MovesOn(ann, i));
  held_.Release();
  EXPECT_TRUE(IsLoggedIn(bob, "bob"));
  EXPECT_TRUE(IsLoggedIn(eve, "eve"));
}

TEST_F(GatewayLogin, OneLoginAtATime) {
  options_.query = held_.query();
  Start();
  Client ann = Connect();
  ASSERT_TRUE(SendPacket(ann, Payload::Login("ann")));
  ASSERT_TRUE(SendPacket(ann, Payload::Login("anna")));
  EXPECT_TRUE(IsRefused(ann, Command::kLogin, Why::kLoginUnderWay));
  held_.Release();
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  // And again, once it is through.
  ASSERT_TRUE(SendPacket(ann, Payload::Login("anna")));
  EXPECT_TRUE(IsLoggedIn(ann, "anna"));
  EXPECT_EQ(Counted(Count::kLoginUnderWay), 1u);
  EXPECT_EQ(Counted(Count::kLoggedIn), 2u);
}

TEST_F(GatewayLogin, NobodyOfThatName) {
  Start();
  Client ann = Connect();
  ASSERT_TRUE(SendPacket(ann, Payload::Login("!ann")));
  EXPECT_TRUE(IsRefused(ann, Command::kLogin, Why::kNobody));
  ASSERT_TRUE(SendPacket(ann, MovePayload(1)));
  EXPECT_TRUE(IsRefused(ann, Command::kMove, Why::kLoginFirst));
  ASSERT_TRUE(SendPacket(ann, Payload::Login("ann")));
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  EXPECT_EQ(Counted(Count::kNobody), 1u);
}

TEST_F(GatewayLogin, AQueryThatThrowsOrFailsIsToldToComeBack) {
  options_.query = [](const std::string& name) -> absl::StatusOr<uint32_t> {
    if (name == "throws") throw std::runtime_error("no database");
    if (name == "fails") return absl::UnavailableError("no database");
    return Accounts::Number(name);
  };
  Start();
  Client ann = Connect();
  for (const char* name : {"throws", "fails"}) {
    ASSERT_TRUE(SendPacket(ann, Payload::Login(name)));
    EXPECT_TRUE(IsRefused(ann, Command::kLogin, Why::kComeBack)) << name;
  }
  ASSERT_TRUE(SendPacket(ann, Payload::Login("ann")));
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  EXPECT_EQ(Counted(Count::kComeBack), 2u);
}

TEST_F(GatewayLogin, AFullPoolIsToldAndTheConnectionStays) {
  options_.query = held_.query();
  options_.pool.threads = 1;
  options_.pool.queue = 1;
  Start();
  Client first = Connect();
  ASSERT_TRUE(SendPacket(first, Payload::Login("first")));
  ASSERT_TRUE(held_.Await(1));  // on the worker
  Client second = Connect();
  ASSERT_TRUE(SendPacket(second, Payload::Login("second")));
  ASSERT_TRUE(WaitUntil([&] { return gateway_->pool_stats().queued == 1; }));
  Client third = Connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(SendPacket(third, Payload::Login("third")));
    EXPECT_TRUE(IsRefused(third, Command::kLogin, Why::kComeBack));
  }
  EXPECT_EQ(Counted(Count::kComeBack), 3u);
  EXPECT_EQ(gateway_->pool_stats().rejected, 3u);
  held_.Release();
  EXPECT_TRUE(IsLoggedIn(first, "first"));
  EXPECT_TRUE(IsLoggedIn(second, "second"));
  ASSERT_TRUE(SendPacket(third, Payload::Login("third")));
  EXPECT_TRUE(IsLoggedIn(third, "third"));
}

TEST_F(GatewayLogin, APlayerWhoLeavesDuringTheLoginIsCounted) {
  options_.query = held_.query();
  Start();
  Client gone = Connect();
  Client reset = Connect();
  ASSERT_TRUE(SendPacket(gone, Payload::Login("gone")));
  ASSERT_TRUE(SendPacket(reset, Payload::Login("reset")));
  ASSERT_TRUE(held_.Await(2));
  gone.Close();
  reset.CloseWithReset();
  ASSERT_TRUE(server_->WaitForNoConnections());
  held_.Release();
  EXPECT_TRUE(WaitUntil([&] { return gateway_->pool_stats().dropped == 2; }));
  EXPECT_EQ(Counted(Count::kLoggedIn), 0u);
  Client ann = Player("ann");
  EXPECT_TRUE(MovesOn(ann, 1));
}

// --- The end.

TEST_F(GatewayLogin, DrainingFinishesWhatWasAsked) {
  options_.query = held_.query();
  // The one that moves keeps its end open for a while.
  engine_options_.limits.linger_timeout = std::chrono::milliseconds(50);
  Start();
  Client mover = Connect();
  ASSERT_TRUE(SendPacket(mover, MovePayload(1)));
  ASSERT_TRUE(IsRefused(mover, Command::kMove, Why::kLoginFirst));
  Client ann = Connect();
  ASSERT_TRUE(SendPacket(ann, Payload::Login("ann")));
  ASSERT_TRUE(held_.Await(1));
  server_->engine().Drain(std::chrono::minutes(10));
  // Once OnDrain has run, a packet is its connection's last one.
  const std::string move = Framed(MovePayload(2));
  int error = 0;
  ASSERT_TRUE(WaitUntil([&] {
    (void)send(mover.fd(), move.data(), move.size(), MSG_NOSIGNAL);
    return Counted(Count::kDrained) == 1;
  }));
  mover.ReadToEnd(&error);
  // The login is still answered.
  held_.Release();
  EXPECT_TRUE(IsLoggedIn(ann, "ann"));
  EXPECT_EQ(ann.ReadToEof(), "");
  ann.Close();
  mover.Close();
  EXPECT_TRUE(server_->WaitForRun().ok());
  EXPECT_EQ(Counted(Count::kDrained), 2u);
}

TEST_F(GatewayLogin, StoppingDoesNotWaitForQueriesThatHaveNotBegun) {
  options_.query = held_.query();
  options_.pool.threads = 1;
  Start();
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(SendPacket(clients.back(), Payload::Login("ann")));
  }
  ASSERT_TRUE(held_.Await(1));
  ASSERT_TRUE(WaitUntil([&] { return gateway_->pool_stats().queued == 3; }));
  server_->Stop();
  ASSERT_TRUE(AwaitCount(Count::kDrained, 4));
  ASSERT_TRUE(WaitUntil([&] { return gateway_->pool_stats().cancelled == 3; }));
  held_.Release();
  EXPECT_TRUE(server_->WaitForRun().ok());
  EXPECT_EQ(gateway_->pool_stats().dropped, 4u);
}

TEST_F(GatewayLogin, AGatewayNeedsAQuery) {
  options_.query = nullptr;
  EXPECT_TRUE(absl::IsInvalidArgument(Gateway::Create(options_).status()));
}

TEST_F(GatewayLogin, TheReportNamesEveryCounterOnce) {
  Start();
  Client ann = Player("ann");
  const std::string report = gateway_->Report();
  for (size_t i = 0; i < static_cast<size_t>(Count::kHowMany); ++i) {
    const std::string name =
        "  " + std::string(CountName(static_cast<Count>(i))) + "  ";
    const size_t at = report.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_EQ(report.find(name, at + 1), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace sluice::gateway
