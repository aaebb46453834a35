// One message to many: each member once, whole and in order, whoever comes,
// goes, is slow or dies meanwhile.

#include "reactor/broadcaster.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

std::string Numbered(int from, int to) {
  std::string all;
  for (int i = from; i < to; ++i) all += std::to_string(i) + ";";
  return all;
}

class BroadcasterTest : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void Start(BroadcasterOptions options = {}) {
    Options engine_options = GetParam().MakeOptions();
    engine_options.limits.max_outbound = max_outbound_;
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{SmallBuffers(GetParam().Listen())},
        engine_options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    absl::StatusOr<std::unique_ptr<Broadcaster>> made =
        Broadcaster::Create(server_->engine(), options);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    broadcaster_ = *std::move(made);
  }
  void AddGroup(GroupOptions options = {}) {
    ASSERT_TRUE(broadcaster_->AddGroup("all", options).ok());
  }
  ~BroadcasterTest() override {
    broadcaster_ = nullptr;
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }

  // Opens `count` clients more, which join.
  void Connect(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      clients_.push_back(Client::Connect(server_->address(), SmallReceiver()));
      ASSERT_TRUE(clients_.back().connected());
      refs_.push_back(handler_.WaitFor(refs_.size()));
      ASSERT_TRUE(broadcaster_->Join("all", refs_.back()).ok());
    }
  }
  void Publish(std::string message) {
    const absl::Status s =
        broadcaster_->Publish("all", Payload(std::move(message)));
    ASSERT_TRUE(s.ok()) << s.ToString();
  }
  GroupStats stats() {
    const absl::StatusOr<GroupStats> stats = broadcaster_->stats("all");
    EXPECT_TRUE(stats.ok()) << stats.status().ToString();
    return stats.ok() ? *stats : GroupStats();
  }
  // Of those who were members when messages were published: every one is
  // accounted for.
  bool DealtOut(uint64_t recipients) {
    return WaitUntil([&] {
      const GroupStats now = stats();
      return now.delivered + now.skipped + now.dropped == recipients;
    });
  }
  void TurnAll() {
    for (int i = 0; i < server_->engine().reactors(); ++i) {
      TurnOver(server_->engine().reactor(i));
    }
  }

  size_t max_outbound_ = size_t{64} << 20;
  RefHandler handler_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<Broadcaster> broadcaster_;
  std::vector<Client> clients_;
  std::vector<ConnectionRef> refs_;
};

TEST_P(BroadcasterTest, EachMemberGetsEachMessageOnceAndInOrder) {
  Start();
  AddGroup();
  Connect(20);
  constexpr int kMessages = 500;
  for (int i = 0; i < kMessages; ++i) Publish(std::to_string(i) + ";");
  const std::string expected = Numbered(0, kMessages);
  for (Client& client : clients_) {
    EXPECT_TRUE(SameBytes(client.ReadExactly(expected.size()), expected));
  }
  ASSERT_TRUE(DealtOut(20u * kMessages));
  const GroupStats all = stats();
  EXPECT_EQ(all.members, 20u);
  EXPECT_EQ(all.published, uint64_t{kMessages});
  EXPECT_EQ(all.delivered, 20u * kMessages);
  EXPECT_TRUE(WaitUntil([&] { return stats().pending == 0; }));
  for (Client& client : clients_)
    EXPECT_FALSE(client.Readable(milliseconds(0)));
}

// Joining and leaving are in order with the messages of the same thread.
TEST_P(BroadcasterTest, OnlyWhatIsPublishedWhileAMember) {
  Start();
  AddGroup();
  Connect(3);
  Publish("a");
  ASSERT_TRUE(broadcaster_->Leave("all", refs_[1]).ok());
  Publish("b");
  ASSERT_TRUE(broadcaster_->Join("all", refs_[1]).ok());
  ASSERT_TRUE(broadcaster_->Join("all", refs_[1]).ok());  // once more is once
  Publish("c");
  ASSERT_TRUE(broadcaster_->Leave("all", refs_[2]).ok());
  ASSERT_TRUE(broadcaster_->Leave("all", refs_[2]).ok());
  Publish("d");
  EXPECT_EQ(clients_[0].ReadExactly(4), "abcd");
  EXPECT_EQ(clients_[1].ReadExactly(3), "acd");
  EXPECT_EQ(clients_[2].ReadExactly(3), "abc");
  ASSERT_TRUE(DealtOut(3 + 2 + 3 + 2));
  EXPECT_EQ(stats().members, 2u);
  for (Client& client : clients_)
    EXPECT_FALSE(client.Readable(milliseconds(0)));
}

// A connection's own output and its messages are whole, one behind the other.
TEST_P(BroadcasterTest, GoesBehindWhatIsQueued) {
  handler_.on_traffic = [](Connection& c) {
    (void)c.Write(Pattern(c.Discard() * (size_t{1} << 20), 7));
    return Action::kNone;
  };
  Start();
  GroupOptions options;
  options.max_backlog = size_t{8} << 20;
  AddGroup(options);
  Connect(2);
  ASSERT_TRUE(clients_[0].SendAll("x"));
  ASSERT_TRUE(WaitUntil([&] { return handler_.traffic == 1; }));
  const std::string big = Pattern(300'000, 3);
  for (int i = 0; i < 3; ++i) Publish(big);
  const std::string expected = big + big + big;
  EXPECT_TRUE(SameBytes(clients_[1].ReadExactly(expected.size()), expected));
  EXPECT_TRUE(SameBytes(clients_[0].ReadExactly((1u << 20) + expected.size()),
                        Pattern(1u << 20, 7) + expected));
  ASSERT_TRUE(DealtOut(6));
  EXPECT_EQ(stats().delivered, 6u);
}

TEST_P(BroadcasterTest, SlowReadersAreSkippedAndTheOthersAreNot) {
  Start();
  GroupOptions options;
  options.max_backlog = 64 << 10;
  AddGroup(options);
  Connect(5);
  constexpr int kMessages = 400;
  const std::string message = Pattern(16 << 10, 5);
  std::vector<Reactor*> homes;
  for (const ConnectionRef& ref : refs_)
    homes.push_back(&HomeOf(*server_, ref));
  std::vector<std::thread> readers;
  for (size_t i = 1; i < clients_.size(); ++i) {
    readers.emplace_back([&, i] {
      for (int m = 0; m < kMessages; ++m) {
        ASSERT_TRUE(SameBytes(clients_[i].ReadExactly(message.size()), message))
            << "message " << m;
      }
    });
  }
  for (int m = 0; m < kMessages; ++m) {
    Publish(message);
    // Nobody but the one who does not read is to be slow.
    ASSERT_TRUE(WaitUntil([&] {
      const GroupStats now = stats();
      return now.delivered + now.skipped == 5u * static_cast<uint64_t>(m + 1);
    }));
    if (m % 4 == 3) {
      ASSERT_TRUE(WaitUntil([&] {
        for (size_t i = 1; i < refs_.size(); ++i) {
          size_t outbound = 0;
          Reactor& home = *homes[i];
          RunOn(home, [&] { outbound = home.Find(refs_[i])->outbound(); });
          if (outbound > 0) return false;
        }
        return true;
      }));
    }
  }
  for (std::thread& reader : readers) reader.join();
  const GroupStats all = stats();
  EXPECT_GT(all.skipped, 0u);
  EXPECT_EQ(all.delivered + all.skipped, 5u * kMessages);
  // The slow one has whole messages only, and as many as were not skipped.
  const size_t got = kMessages - static_cast<size_t>(all.skipped);
  std::string expected;
  for (size_t i = 0; i < got; ++i) expected += message;
  EXPECT_TRUE(SameBytes(clients_[0].ReadExactly(expected.size()), expected));
  EXPECT_FALSE(clients_[0].Readable(milliseconds(0)));
}

TEST_P(BroadcasterTest, SlowReadersAreClosed) {
  std::atomic<int> slow{0};
  handler_.on_close = [&](Connection&, const CloseInfo& info) {
    if (info.reason == CloseReason::kSlowConsumer) ++slow;
  };
  Start();
  GroupOptions options;
  options.when_slow = WhenSlow::kClose;
  options.max_backlog = 64 << 10;
  AddGroup(options);
  Connect(3);
  int published = 0;
  const std::string message = Pattern(16 << 10, 5);
  while (stats().closed < 3 && published < 5000) {
    Publish(message);
    ++published;
    ASSERT_TRUE(WaitUntil([&] { return stats().pending == 0; }));
  }
  ASSERT_TRUE(WaitUntil([&] { return slow == 3; }));
  EXPECT_EQ(stats().closed, 3u);
  ASSERT_TRUE(WaitUntil([&] { return stats().members == 0; }));
  EXPECT_EQ(stats().skipped, 0u);
  EXPECT_TRUE(server_->WaitForNoConnections());
}

// The newest is what a slow one gets, as soon as it reads.
TEST_P(BroadcasterTest, SlowReadersGetTheLatest) {
  Start();
  GroupOptions options;
  options.when_slow = WhenSlow::kLatest;
  options.max_backlog = 0;
  AddGroup(options);
  Connect(2);
  constexpr int kMessages = 200;
  constexpr size_t kSize = 64 << 10;
  const auto message = [](int m) {
    return Pattern(kSize, static_cast<uint32_t>(m) + 1);
  };
  for (int m = 0; m < kMessages; ++m) {
    Publish(message(m));
    ASSERT_TRUE(SameBytes(clients_[1].ReadExactly(kSize), message(m)));
  }
  // Whole messages, rising, and the last one is the newest.
  uint64_t got = 0;
  for (int m = 0; m < kMessages; ++got) {
    const std::string bytes = clients_[0].ReadExactly(kSize);
    while (m < kMessages && bytes != message(m)) ++m;
    ASSERT_LT(m, kMessages) << "after " << got << " messages";
    ++m;
  }
  ASSERT_TRUE(DealtOut(2u * kMessages));
  const GroupStats all = stats();
  EXPECT_EQ(all.delivered, kMessages + got);
  EXPECT_GT(all.skipped, 0u);
  EXPECT_EQ(all.dropped, 0u);
  EXPECT_TRUE(WaitUntil([&] { return stats().pending == 0; }));
  // And it goes on as before.
  Publish("end");
  EXPECT_EQ(clients_[0].ReadExactly(3), "end");
  EXPECT_EQ(clients_[1].ReadExactly(3), "end");
}

// Everybody is in exactly one of the counters, and whoever stays gets all.
TEST_P(BroadcasterTest, ComingGoingAndDyingMeanwhile) {
  BroadcasterOptions slices;
  slices.sends_per_turn = 3;
  Start(slices);
  AddGroup();
  constexpr size_t kStaying = 15;
  constexpr size_t kMoving = 20;
  Connect(kStaying + kMoving);
  std::mt19937 random(7);
  std::set<size_t> members;
  for (size_t i = 0; i < clients_.size(); ++i) members.insert(i);
  uint64_t recipients = 0;  // of those that live on
  std::vector<std::string> expected(clients_.size());
  // Dead ones are members until their reactor has noticed.
  std::set<size_t> dead;
  for (int m = 0; m < 2000; ++m) {
    const size_t who = kStaying + random() % kMoving;
    if (dead.count(who) == 0) {
      switch (random() % 4) {
        case 0:
          (void)broadcaster_->Leave("all", refs_[who]);
          members.erase(who);
          break;
        case 1:
        case 2:
          (void)broadcaster_->Join("all", refs_[who]);
          members.insert(who);
          break;
        default:
          if (m % 40 == 0) {
            if (random() % 2 == 0) {
              clients_[who].CloseWithReset();
            } else {
              clients_[who].Close();
            }
            dead.insert(who);
            members.erase(who);
          }
      }
    }
    Publish(std::to_string(m) + ";");
    for (const size_t i : members) expected[i] += std::to_string(m) + ";";
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (dead.count(i) != 0) continue;
    ASSERT_TRUE(
        SameBytes(clients_[i].ReadExactly(expected[i].size()), expected[i]))
        << "client " << i;
    recipients += static_cast<uint64_t>(
        std::count(expected[i].begin(), expected[i].end(), ';'));
  }
  ASSERT_TRUE(WaitUntil([&] { return stats().pending == 0; }));
  ASSERT_TRUE(WaitUntil([&] { return stats().members == members.size(); }));
  const GroupStats all = stats();
  const uint64_t counted = all.delivered + all.skipped + all.dropped;
  // Of the dead ones some messages are counted: those that came by before their
  // reactor noticed.
  EXPECT_GE(counted, recipients);
  EXPECT_LE(counted, recipients + 2000 * dead.size());
  EXPECT_EQ(all.skipped, 0u);
}

// B87: ten of a hundred are gone; the others get three messages, in order.
TEST_P(BroadcasterTest, B87_SomeHaveResetAlready) {
  Start();
  AddGroup();
  Connect(100);
  {
    std::vector<std::unique_ptr<LoopBlock>> blocks;
    for (int i = 0; i < server_->engine().reactors(); ++i) {
      blocks.push_back(
          std::make_unique<LoopBlock>(server_->engine().reactor(i)));
    }
    for (size_t i = 0; i < 100; i += 10) clients_[i].CloseWithReset();
    for (const char* message : {"1", "2", "3"}) Publish(message);
  }
  for (size_t i = 0; i < 100; ++i) {
    if (i % 10 != 0) {
      EXPECT_EQ(clients_[i].ReadExactly(3), "123");
    }
  }
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 10; }));
  ASSERT_TRUE(DealtOut(300));
  EXPECT_EQ(stats().members, 90u);
  EXPECT_GE(stats().delivered, 270u);
}

TEST_P(BroadcasterTest, GroupsAreApart) {
  Start();
  AddGroup();
  Connect(4);
  ASSERT_TRUE(broadcaster_->AddGroup("odd").ok());
  ASSERT_TRUE(broadcaster_->Join("odd", refs_[1]).ok());
  ASSERT_TRUE(broadcaster_->Join("odd", refs_[3]).ok());
  ASSERT_TRUE(broadcaster_->Publish("odd", Payload("o")).ok());
  ASSERT_TRUE(
      WaitUntil([&] { return broadcaster_->stats("odd")->delivered == 2; }));
  Publish("a");
  EXPECT_EQ(clients_[0].ReadExactly(1), "a");
  EXPECT_EQ(clients_[1].ReadExactly(2), "oa");
  EXPECT_EQ(clients_[2].ReadExactly(1), "a");
  EXPECT_EQ(clients_[3].ReadExactly(2), "oa");
  // A removed one deals out what it has, and its name is free again.
  ASSERT_TRUE(broadcaster_->Publish("odd", Payload("last")).ok());
  ASSERT_TRUE(broadcaster_->RemoveGroup("odd").ok());
  EXPECT_EQ(clients_[3].ReadExactly(4), "last");
  ASSERT_TRUE(broadcaster_->AddGroup("odd").ok());
  ASSERT_TRUE(broadcaster_->Publish("odd", Payload("nobody")).ok());
  ASSERT_TRUE(broadcaster_->Join("odd", refs_[1]).ok());
  ASSERT_TRUE(broadcaster_->Publish("odd", Payload("new")).ok());
  EXPECT_EQ(clients_[1].ReadExactly(7), "lastnew");
}

// A slice a turn: the loop comes round to everything else in between.
TEST_P(BroadcasterTest, TheLoopComesRoundBetweenTheSlices) {
  BroadcasterOptions slices;
  slices.sends_per_turn = 2;
  Start(slices);
  AddGroup();
  Connect(60);
  Reactor& home = HomeOf(*server_, refs_[0]);
  uint64_t here = 0;
  for (const ConnectionRef& ref : refs_)
    here += &HomeOf(*server_, ref) == &home;
  // Counts the turns in which some have it and others do not.
  struct Count {
    Reactor& home;
    std::function<GroupStats()> stats;
    std::atomic<int> turns{0};
    Event done;
    void Next() {
      const GroupStats now = stats();
      if (now.delivered == 60) {
        done.Set();
        return;
      }
      if (now.delivered > 0) ++turns;
      ASSERT_TRUE(home.Post([this] { Next(); }).ok());
    }
  } count{home, [this] { return stats(); }, {}, {}};
  {
    LoopBlock block(home);
    Publish("message");
    ASSERT_TRUE(home.Post([&count] { count.Next(); }).ok());
  }
  ASSERT_TRUE(count.done.Wait());
  EXPECT_GE(count.turns + 2, static_cast<int>(here / 2));
  for (Client& client : clients_) EXPECT_EQ(client.ReadExactly(7), "message");
}

TEST_P(BroadcasterTest, ManyPublishers) {
  Start();
  AddGroup();
  Connect(8);
  constexpr int kThreads = 4;
  constexpr int kEach = 250;
  std::vector<std::thread> publishers;
  for (int t = 0; t < kThreads; ++t) {
    publishers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Publish(std::string(1, static_cast<char>('a' + t)) +
                std::to_string(100 + i));
      }
    });
  }
  for (std::thread& publisher : publishers) publisher.join();
  for (Client& client : clients_) {
    const std::string got = client.ReadExactly(size_t{kThreads} * kEach * 4);
    int next[kThreads] = {};
    for (size_t at = 0; at + 4 <= got.size(); at += 4) {
      const int t = got[at] - 'a';
      ASSERT_TRUE(t >= 0 && t < kThreads) << got.substr(at, 4);
      ASSERT_EQ(got.substr(at + 1, 3), std::to_string(100 + next[t]++));
    }
  }
  ASSERT_TRUE(DealtOut(8u * kThreads * kEach));
}

INSTANTIATE_TEST_SUITE_P(
    Loops, BroadcasterTest,
    ::testing::Values(MatrixParam{},
                      MatrixParam{Family::kTcp4, 2, AcceptMode::kHandOff,
                                  Trigger::kLevel, FdTableChoices().back()},
                      MatrixParam{Family::kUnix, 2, AcceptMode::kHandOff,
                                  Trigger::kEdge, FdTables::kShared}),
    MatrixName);

// --- Wrong use.

class BroadcasterUse : public ::testing::Test {
 protected:
  BroadcasterUse() : server_(handler_, {"tcp://127.0.0.1:0"}, TestOptions(2)) {}

  RefHandler handler_;
  TestServer server_;
};

TEST_F(BroadcasterUse, OptionsOutOfRange) {
  for (const auto& [options, name] :
       {std::pair{BroadcasterOptions{.sends_per_turn = 0}, "sends_per_turn"},
        std::pair{BroadcasterOptions{.sends_per_second = -1},
                  "sends_per_second"},
        std::pair{BroadcasterOptions{.sends_per_second = 0.0 / 0.0},
                  "sends_per_second"},
        std::pair{BroadcasterOptions{.round_trip = milliseconds(-1)},
                  "round_trip"}}) {
    const auto made = Broadcaster::Create(server_.engine(), options);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << name;
    EXPECT_NE(made.status().ToString().find(name), std::string::npos)
        << made.status().ToString();
  }
}

TEST_F(BroadcasterUse, GroupsThatAreNotThere) {
  auto b = *Broadcaster::Create(server_.engine());
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  EXPECT_TRUE(absl::IsNotFound(b->Publish("news", Payload("x"))));
  EXPECT_TRUE(absl::IsNotFound(b->Join("news", ref)));
  EXPECT_TRUE(absl::IsNotFound(b->Leave("news", ref)));
  EXPECT_TRUE(absl::IsNotFound(b->RemoveGroup("news")));
  EXPECT_TRUE(absl::IsNotFound(b->stats("news").status()));
  EXPECT_NE(b->Publish("news", Payload("x")).ToString().find("\"news\""),
            std::string::npos);
  EXPECT_TRUE(absl::IsInvalidArgument(b->AddGroup("")));
  GroupOptions unknown;
  unknown.when_slow = static_cast<WhenSlow>(3);
  EXPECT_TRUE(absl::IsInvalidArgument(b->AddGroup("news", unknown)));
  ASSERT_TRUE(b->AddGroup("news").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(b->AddGroup("news")));
  EXPECT_TRUE(absl::IsInvalidArgument(b->Publish("news", Payload())));
  EXPECT_TRUE(absl::IsNotFound(b->Join("news", ConnectionRef())));
  client.Close();
  ASSERT_TRUE(server_.WaitForNoConnections());
  EXPECT_TRUE(absl::IsNotFound(b->Join("news", ref)));
}

TEST_F(BroadcasterUse, AConnectionOfAnotherEngine) {
  RefHandler other_handler;
  TestServer other(other_handler, {"tcp://127.0.0.1:0"}, TestOptions(1));
  Client client = Client::Connect(other.address());
  auto b = *Broadcaster::Create(server_.engine());
  ASSERT_TRUE(b->AddGroup("all").ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(b->Join("all", other_handler.WaitFor(0))));
}

TEST_F(BroadcasterUse, TooMuchThatWaits) {
  auto b = *Broadcaster::Create(server_.engine());
  GroupOptions options;
  options.max_pending = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(b->AddGroup("all", options)));
  options.max_pending = 100;
  ASSERT_TRUE(b->AddGroup("all", options).ok());
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  ASSERT_TRUE(b->Join("all", ref).ok());
  TurnOver(HomeOf(server_, ref));
  {
    LoopBlock block(HomeOf(server_, ref));
    EXPECT_TRUE(b->Publish("all", Payload(std::string(60, 'a'))).ok());
    const absl::Status s = b->Publish("all", Payload(std::string(41, 'b')));
    EXPECT_TRUE(absl::IsResourceExhausted(s));
    EXPECT_NE(s.ToString().find("41"), std::string::npos) << s.ToString();
    EXPECT_TRUE(b->Publish("all", Payload(std::string(40, 'c'))).ok());
  }
  EXPECT_EQ(client.ReadExactly(100),
            std::string(60, 'a') + std::string(40, 'c'));
  // One message alone may be larger than the bound.
  ASSERT_TRUE(WaitUntil([&] { return b->stats("all")->pending == 0; }));
  EXPECT_TRUE(b->Publish("all", Payload(std::string(200, 'd'))).ok());
  EXPECT_EQ(client.ReadExactly(200), std::string(200, 'd'));
  EXPECT_EQ(b->stats("all")->published, 3u);
}

// A member that waits for its output to leave, perhaps for ever, does not use
// the bound up.
TEST_F(BroadcasterUse, AStuckReaderOfTheLatestHoldsNobodyUp) {
  auto b = *Broadcaster::Create(server_.engine());
  GroupOptions options;
  options.when_slow = WhenSlow::kLatest;
  options.max_backlog = 0;
  options.max_pending = 1;
  ASSERT_TRUE(b->AddGroup("all", options).ok());
  Client stuck = Client::Connect(server_.address(), SmallReceiver());
  ASSERT_TRUE(b->Join("all", handler_.WaitFor(0)).ok());
  Client reader = Client::Connect(server_.address());
  ASSERT_TRUE(b->Join("all", handler_.WaitFor(1)).ok());
  constexpr size_t kSize = size_t{1} << 20;
  for (int m = 0; m < 30; ++m) {
    ASSERT_TRUE(WaitUntil([&] { return b->stats("all")->pending == 0; })) << m;
    const std::string message(kSize, static_cast<char>('a' + m));
    ASSERT_TRUE(b->Publish("all", Payload(message)).ok()) << m;
    ASSERT_TRUE(SameBytes(reader.ReadExactly(kSize), message));
  }
  // What waits is the newest, not an old one.
  const std::string newest(kSize, 'a' + 29);
  std::string last;
  do {
    last = stuck.ReadExactly(kSize);
    ASSERT_EQ(last, std::string(kSize, last[0]));
  } while (last != newest);
}

// "Publish, Leave, Close" is how to say goodbye; without the Leave the close is
// first.
TEST_F(BroadcasterUse, AMessageBeforeTheLeaveBeforeTheClose) {
  auto b = *Broadcaster::Create(server_.engine());
  ASSERT_TRUE(b->AddGroup("all").ok());
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  ASSERT_TRUE(b->Join("all", ref).ok());
  ASSERT_TRUE(b->Publish("all", Payload("goodbye")).ok());
  ASSERT_TRUE(b->Leave("all", ref).ok());
  ASSERT_TRUE(ref.Close().ok());
  EXPECT_EQ(client.ReadToEof(), "goodbye");
}

// Members that cannot be written to any more are counted as such.
TEST_F(BroadcasterUse, AMemberThatHasShutItsWritingDown) {
  auto b = *Broadcaster::Create(server_.engine());
  ASSERT_TRUE(b->AddGroup("all").ok());
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  ASSERT_TRUE(b->Join("all", ref).ok());
  ASSERT_TRUE(ref.Post([](Connection& c) { c.ShutdownWrite(); }).ok());
  EXPECT_EQ(client.ReadToEof(), "");
  ASSERT_TRUE(b->Publish("all", Payload("late")).ok());
  ASSERT_TRUE(WaitUntil([&] { return b->stats("all")->dropped == 1; }));
  EXPECT_EQ(b->stats("all")->delivered, 0u);
}

TEST_F(BroadcasterUse, AfterADrain) {
  auto b = *Broadcaster::Create(server_.engine());
  ASSERT_TRUE(b->AddGroup("all").ok());
  server_.engine().Drain(milliseconds(10'000));
  ASSERT_TRUE(server_.WaitForRun().ok());
  EXPECT_TRUE(absl::IsUnavailable(b->Publish("all", Payload("x"))));
  EXPECT_TRUE(absl::IsUnavailable(b->AddGroup("more")));
  EXPECT_TRUE(absl::IsUnavailable(b->RemoveGroup("all")));
  EXPECT_EQ(b->stats("all")->published, 0u);
}

TEST_F(BroadcasterUse, AfterTheEngineHasStopped) {
  auto b = *Broadcaster::Create(server_.engine());
  ASSERT_TRUE(b->AddGroup("all").ok());
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  ASSERT_TRUE(b->Join("all", ref).ok());
  ASSERT_TRUE(b->Publish("all", Payload("1")).ok());
  EXPECT_EQ(client.ReadExactly(1), "1");
  server_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(b->Publish("all", Payload("2"))));
  ASSERT_TRUE(server_.WaitForRun().ok());
  EXPECT_TRUE(absl::IsUnavailable(b->Publish("all", Payload("3"))));
  EXPECT_EQ(client.ReadToEof(), "");
  EXPECT_EQ(b->stats("all")->members, 0u);
  EXPECT_EQ(b->stats("all")->published, 1u);
  EXPECT_FALSE(Broadcaster::Create(server_.engine()).ok());
}

// What was published before is dealt out; the connections live on.
TEST_F(BroadcasterUse, EndsBeforeItsEngine) {
  Client client = Client::Connect(server_.address());
  const ConnectionRef ref = handler_.WaitFor(0);
  for (int round = 0; round < 3; ++round) {
    auto b = *Broadcaster::Create(server_.engine());
    ASSERT_TRUE(b->AddGroup("all").ok());
    ASSERT_TRUE(b->Join("all", ref).ok());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(b->Publish("all", Payload("x")).ok());
    }
    b = nullptr;
    EXPECT_EQ(client.ReadExactly(100), std::string(100, 'x'));
  }
  EXPECT_EQ(handler_.closed, 0);
}

// Paced sends go on by themselves, one after the other.
TEST_F(BroadcasterUse, PacedSendsAllArrive) {
  BroadcasterOptions options;
  options.sends_per_turn = 1;
  options.sends_per_second = 2000;
  auto b = *Broadcaster::Create(server_.engine(), options);
  ASSERT_TRUE(b->AddGroup("all").ok());
  std::vector<Client> clients;
  for (size_t i = 0; i < 100; ++i) {
    clients.push_back(Client::Connect(server_.address()));
    ASSERT_TRUE(b->Join("all", handler_.WaitFor(i)).ok());
  }
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(b->Publish("all", Payload("paced")).ok());
  for (Client& client : clients) EXPECT_EQ(client.ReadExactly(5), "paced");
  // Two reactors: 50 each, the first at once.
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::microseconds(49 * 500));
}

}  // namespace
}  // namespace sluice::test
