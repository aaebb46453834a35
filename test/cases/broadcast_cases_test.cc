// B87: one message for everyone while some of them are dead. There is no
// broadcast call; the handler keeps a list of tickets, as a user would.

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr int kPeers = 100;
constexpr int kMessages = 3;
bool IsDead(size_t index) { return index % 10 == 3; }
constexpr int kDead = 10;

// Everyone who is here. OnOpen adds, OnClose removes.
class Room {
 public:
  void Add(const ConnectionRef& ref) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.push_back(ref);
  }
  void Remove(const ConnectionRef& ref) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = std::find(members_.begin(), members_.end(), ref);
    ASSERT_NE(at, members_.end()) << "OnClose without OnOpen, or twice";
    members_.erase(at);
  }
  size_t size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return members_.size();
  }
  // Under the lock: a close inside `function` that called back would hang.
  template <typename Function>
  void ForEach(Function function) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t before = members_.size();
    for (const ConnectionRef& ref : members_) function(ref);
    EXPECT_EQ(members_.size(), before);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ConnectionRef> members_;
};

std::string Message(int number, size_t size) {
  std::string text = "message " + std::to_string(number) + " ";
  text.resize(size, static_cast<char>('a' + number));
  return text;
}

class BroadcastCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(BroadcastCases, B87_SomeOfThemAreDead) {
  for (const size_t size : {size_t{20}, size_t{50'000}}) {
    Room room;
    LambdaHandler handler;
    handler.on_open = [&](Connection& c) {
      room.Add(c.ref());
      return Action::kNone;
    };
    handler.on_close = [&](Connection& c, const CloseInfo&) {
      room.Remove(c.ref());
    };
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      for (int i = 0; i < kMessages; ++i) {
        const std::string message = Message(i, size);
        room.ForEach([&](const ConnectionRef& ref) {
          Connection* here = c.reactor().Find(ref);
          const absl::Status written =
              here != nullptr ? here->Write(message) : ref.Write(message);
          if (!written.ok()) (void)ref.Close(CloseMode::kNow);
        });
      }
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<Client> peers;
    for (int i = 0; i < kPeers; ++i) {
      peers.push_back(Client::Connect(server.address()));
    }
    ASSERT_TRUE(WaitUntil([&] { return room.size() == kPeers; }));
    {
      // The dead are dead and the word is there before any loop looks.
      std::vector<std::unique_ptr<LoopBlock>> blocks;
      for (int i = 0; i < GetParam().reactors; ++i) {
        blocks.push_back(
            std::make_unique<LoopBlock>(server.engine().reactor(i)));
      }
      for (size_t i = 0; i < kPeers; ++i) {
        if (IsDead(i)) peers[i].CloseWithReset();
      }
      EXPECT_TRUE(peers[0].SendAll("x"));
    }
    std::string expected;
    for (int i = 0; i < kMessages; ++i) expected += Message(i, size);
    for (size_t i = 0; i < kPeers; ++i) {
      if (IsDead(i)) continue;
      ASSERT_EQ(peers[i].ReadExactly(expected.size()), expected)
          << "peer " << i;
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == kDead; }));
    EXPECT_EQ(room.size(), static_cast<size_t>(kPeers - kDead));
    // Once each: nothing follows but the end.
    for (size_t i = 0; i < kPeers; ++i) {
      if (IsDead(i)) continue;
      peers[i].ShutdownWrite();
      EXPECT_EQ(peers[i].ReadToEof(), "") << "peer " << i;
    }
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(handler.closed, kPeers);
  }
}

// A handler that closes whoever it likes while it goes through the list.
TEST_P(BroadcastCases, B87_ClosingWhileSending) {
  Room room;
  LambdaHandler handler;
  handler.on_open = [&](Connection& c) {
    room.Add(c.ref());
    return Action::kNone;
  };
  handler.on_close = [&](Connection& c, const CloseInfo&) {
    room.Remove(c.ref());
  };
  std::atomic<int> goodbyes{0};
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    int number = 0;
    room.ForEach([&](const ConnectionRef& ref) {
      EXPECT_TRUE(ref.Write("hello ").ok());
      if (++number % 2 == 0) {
        EXPECT_TRUE(ref.Write("bye").ok());
        EXPECT_TRUE(ref.Close().ok());
        ++goodbyes;
      }
    });
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  std::vector<Client> peers;
  for (int i = 0; i < kPeers; ++i) {
    peers.push_back(Client::Connect(server.address()));
  }
  ASSERT_TRUE(WaitUntil([&] { return room.size() == kPeers; }));
  EXPECT_TRUE(peers[0].SendAll("x"));
  // A peer whose end arrives between its "hello " and its "bye", which are two
  // posts, would be closed without the second.
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == kPeers / 2; }));
  int goodbyes_heard = 0;
  for (Client& peer : peers) {
    EXPECT_EQ(peer.ReadExactly(6), "hello ");
    peer.ShutdownWrite();
    const std::string rest = peer.ReadToEof();
    if (rest == "bye") {
      ++goodbyes_heard;
    } else {
      EXPECT_EQ(rest, "");
    }
  }
  EXPECT_EQ(goodbyes_heard, goodbyes);
  EXPECT_EQ(goodbyes, kPeers / 2);
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(handler.closed, kPeers);
}

INSTANTIATE_TEST_SUITE_P(Loops, BroadcastCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
