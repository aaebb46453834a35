// Output that waits for a slow peer: told when it is much, and when it is
// little again.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
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

// Far more than the small buffers of the two sockets hold.
constexpr size_t kMuch = size_t{1} << 20;

class WaterMarks : public ::testing::TestWithParam<MatrixParam> {
 protected:
  // Each byte that arrives makes the server write `much`.
  void Start(size_t high, std::optional<size_t> low, size_t much = kMuch) {
    Options options = GetParam().MakeOptions();
    options.limits.high_water = high;
    options.limits.low_water = low;
    handler_.on_traffic = [this, much](Connection& c) {
      ++inside_;
      const std::string bytes(much, 'x');
      for (size_t n = c.Discard(); n > 0; --n) {
        EXPECT_TRUE(c.Write(bytes).ok());
      }
      EXPECT_EQ(handler_.high_waters, highs_before_);
      --inside_;
      return Action::kNone;
    };
    handler_.on_high_water = [this, high](Connection& c) {
      EXPECT_EQ(inside_, 0) << "inside another callback";
      EXPECT_GT(c.outbound(), high);
      ++highs_before_;
      order_ += 'h';
    };
    handler_.on_low_water = [this, high, low](Connection& c) {
      EXPECT_EQ(inside_, 0) << "inside another callback";
      EXPECT_LE(c.outbound(), low.value_or(high / 2));
      order_ += 'l';
    };
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{SmallBuffers(GetParam().Listen())},
        options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    client_ = Client::Connect(server_->address(), SmallReceiver());
    ref_ = handler_.WaitFor(0);
    home_ = &HomeOf(*server_, ref_);
  }
  ~WaterMarks() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }
  // The loop's.
  std::string order() {
    std::string order;
    RunOn(*home_, [&] { order = order_; });
    return order;
  }

  RefHandler handler_;
  int inside_ = 0;
  int highs_before_ = 0;
  std::string order_;
  std::unique_ptr<TestServer> server_;
  Client client_;
  ConnectionRef ref_;
  Reactor* home_ = nullptr;
};

TEST_P(WaterMarks, ToldOnceEachTime) {
  Start(size_t{64} << 10, std::nullopt);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(client_.SendAll("1"));
    ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters == round; }));
    // More of it is not told again.
    ASSERT_TRUE(client_.SendAll("23"));
    ASSERT_TRUE(WaitUntil([&] { return handler_.traffic >= 2 * round; }));
    TurnOver(*home_);
    EXPECT_EQ(handler_.high_waters, round);
    EXPECT_EQ(handler_.low_waters, round - 1);
    EXPECT_EQ(client_.ReadExactly(3 * kMuch).size(), 3 * kMuch);
    ASSERT_TRUE(WaitUntil([&] { return handler_.low_waters == round; }));
  }
  EXPECT_EQ(order(), "hlhlhl");
}

// B48: of the smallest mark the lower one is 0, and that is reached.
TEST_P(WaterMarks, B48_TheSmallestMarks) {
  Start(1, std::nullopt);
  handler_.on_low_water = [this](Connection& c) {
    EXPECT_EQ(c.outbound(), 0u);
    order_ += 'l';
  };
  ASSERT_TRUE(client_.SendAll("1"));
  ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters == 1; }));
  EXPECT_EQ(client_.ReadExactly(kMuch).size(), kMuch);
  ASSERT_TRUE(WaitUntil([&] { return handler_.low_waters == 1; }));
  EXPECT_EQ(order(), "hl");
}

TEST_P(WaterMarks, WhatTheKernelTakesIsNoOutputThatWaits) {
  Start(1, std::nullopt, /*much=*/100);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(client_.SendAll("1"));
    ASSERT_EQ(client_.ReadExactly(100).size(), 100u);
  }
  EXPECT_EQ(order(), "");
}

// A handler that writes until it is told not to, and again when it is told to.
TEST_P(WaterMarks, ASenderThatObeysHoldsNoMoreThanTheMark) {
  constexpr size_t kHigh = size_t{128} << 10;
  constexpr size_t kChunk = size_t{16} << 10;
  constexpr size_t kTotal = size_t{4} << 20;
  const std::string all = Pattern(kTotal);
  Start(kHigh, kHigh / 4);
  size_t written = 0;
  size_t most = 0;
  bool held = false;
  const auto write_some = [&](Connection& c) {
    // A chunk a turn: another one comes with the Wake.
    if (held || written >= kTotal) return;
    EXPECT_TRUE(c.Write(all.substr(written, kChunk)).ok());
    written += kChunk;
    most = std::max(most, c.outbound());
    EXPECT_TRUE(c.ref().Wake().ok());
  };
  RunOn(*home_, [&] {
    handler_.on_traffic = [&](Connection& c) {
      c.Discard();
      write_some(c);
      return Action::kNone;
    };
    handler_.on_high_water = [&](Connection&) { held = true; };
    handler_.on_low_water = [&](Connection& c) {
      held = false;
      write_some(c);
    };
  });
  ASSERT_TRUE(client_.SendAll("go"));
  ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters >= 1; }));
  EXPECT_TRUE(SameBytes(client_.ReadExactly(kTotal), all));
  RunOn(*home_, [&] {
    EXPECT_EQ(written, kTotal);
    EXPECT_LE(most, kHigh + 2 * kChunk);
  });
}

TEST_P(WaterMarks, NothingIsToldOnceItCloses) {
  Start(size_t{64} << 10, std::nullopt);
  RunOn(*home_,
        [&] { handler_.on_high_water = [](Connection& c) { c.Close(); }; });
  ASSERT_TRUE(client_.SendAll("1"));
  ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters == 1; }));
  // It was all accepted: it arrives.
  EXPECT_EQ(client_.ReadToEof().size(), kMuch);
  client_.Close();
  EXPECT_TRUE(server_->WaitForNoConnections());
  EXPECT_EQ(handler_.low_waters, 0);
}

INSTANTIATE_TEST_SUITE_P(Loops, WaterMarks,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

// --- Connection::PauseWhileHigh: two clients, joined by a proxy.

class ProxyTest : public ::testing::TestWithParam<MatrixParam> {
 protected:
  static constexpr size_t kHigh = size_t{256} << 10;

  void Start() {
    Options options = GetParam().MakeOptions();
    options.limits.high_water = kHigh;
    options.limits.max_outbound = 0;
    handler_.on_traffic = [this](Connection& c) {
      const ConnectionRef other = other_.load() == 0
                                      ? ConnectionRef()
                                      : handler_.at(c.ref() == handler_.at(0));
      if (other == ConnectionRef()) return Action::kNone;
      (void)other.Write(std::string(c.Next()));
      return Action::kNone;
    };
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{SmallBuffers(GetParam().Listen())},
        options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    sender_ = Client::Connect(server_->address());
    const ConnectionRef sender = handler_.WaitFor(0);
    reader_ = Client::Connect(server_->address(), SmallReceiver());
    const ConnectionRef reader = handler_.WaitFor(1);
    home_ = &HomeOf(*server_, reader);
    RunOn(*home_, [&] { home_->Find(reader)->PauseWhileHigh(sender); });
    other_ = 1;
  }
  size_t Outbound() {
    size_t bytes = 0;
    RunOn(*home_, [&] {
      if (Connection* c = home_->Find(handler_.at(1))) bytes = c->outbound();
    });
    return bytes;
  }

  RefHandler handler_;
  std::atomic<int> other_{0};
  std::unique_ptr<TestServer> server_;
  Client sender_;
  Client reader_;
  Reactor* home_ = nullptr;
};

// The sender stands still, sooner or later: what is on its way between two
// loops before the pause arrives depends on who gets the CPU.
TEST_P(ProxyTest, ASlowReaderHoldsTheSenderBack) {
  Start();
  constexpr int kPieces = 128;
  std::atomic<int> sent{0};
  std::thread sending([&] {
    const std::string piece(size_t{1} << 20, 'x');
    for (; sent < kPieces; ++sent) ASSERT_TRUE(sender_.SendAll(piece));
  });
  ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters >= 1; }));
  ASSERT_TRUE(WaitUntil([&] {
    const size_t before = Outbound();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Outbound() == before;
  }));
  EXPECT_LT(sent, kPieces);
  // Without the reader it goes on, and what it sends is thrown away.
  reader_.CloseWithReset();
  sending.join();
  EXPECT_EQ(sent, kPieces);
  EXPECT_TRUE(server_->StopAndDestroy().ok());
}

TEST_P(ProxyTest, NothingIsLostBetweenThem) {
  Start();
  constexpr size_t kTotal = size_t{16} << 20;
  const std::string all = Pattern(kTotal);
  std::thread sending([&] { EXPECT_TRUE(sender_.SendAll(all)); });
  ASSERT_TRUE(WaitUntil([&] { return handler_.high_waters >= 1; }));
  EXPECT_TRUE(SameBytes(reader_.ReadExactly(kTotal), all));
  sending.join();
  EXPECT_TRUE(server_->StopAndDestroy().ok());
}

INSTANTIATE_TEST_SUITE_P(Loops, ProxyTest,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
