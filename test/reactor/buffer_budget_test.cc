// One bound for what all connections of a process buffer.

#include "reactor/buffer_budget.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/buffer_pool.h"
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

constexpr size_t kKiB = 1024;

std::shared_ptr<BufferBudget> Budget(size_t bytes, WhenOverBudget when_over) {
  return *BufferBudget::Create({.bytes = bytes, .when_over = when_over});
}

TEST(BufferBudgetTest, WhatIsBadIsNamed) {
  const auto error = [](BufferBudgetOptions options) {
    const auto budget = BufferBudget::Create(options);
    EXPECT_EQ(budget.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(budget.status().message());
  };
  EXPECT_EQ(error({}),
            "BufferBudgetOptions: bytes is 0: must be at least 4096");
  EXPECT_EQ(error({.bytes = 4095}),
            "BufferBudgetOptions: bytes is 4095: must be at least 4096");
  EXPECT_EQ(
      error({.bytes = 4096, .when_over = WhenOverBudget{9}}),
      "BufferBudgetOptions: when_over is 9: must be one of its enumerators");
  const auto budget = BufferBudget::Create({.bytes = 8000});
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ((*budget)->bytes(), 8000u);
  EXPECT_EQ((*budget)->resume_bytes(), 7000u);
  EXPECT_EQ((*budget)->when_over(), WhenOverBudget::kPauseReaders);
}

// Over several pools and threads: exact, with hysteresis.
TEST(BufferBudgetTest, CountsBlocksInUse) {
  const auto budget = Budget(64 * kKiB, WhenOverBudget::kPauseReaders);
  BufferPool one(0, budget.get());
  BufferPool two(0, budget.get());
  Buffer a = one.Allocate(1);
  EXPECT_EQ(budget->used(), 4 * kKiB);
  Buffer b = two.Allocate(16 * kKiB);
  Buffer c = two.Allocate(44 * kKiB);
  EXPECT_EQ(budget->used(), 84 * kKiB);
  EXPECT_TRUE(budget->exceeded());
  b.Release();  // 68 KiB
  EXPECT_TRUE(budget->exceeded());
  std::thread([d = std::move(a)]() mutable { d.Release(); }).join();
  EXPECT_EQ(budget->used(), 64 * kKiB);
  EXPECT_TRUE(budget->exceeded()) << "above 7/8";
  c.Release();
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_FALSE(budget->exceeded());
  Buffer huge = one.Allocate(3 << 20);
  EXPECT_TRUE(budget->exceeded());
  huge.Release();
  EXPECT_FALSE(budget->exceeded());
}

TEST(BufferBudgetTest, ManyThreadsAtTheMark) {
  const auto budget = Budget(20 * kKiB, WhenOverBudget::kPauseReaders);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      BufferPool pool(64 * kKiB, budget.get());
      for (int i = 0; i < 20'000; ++i) {
        Buffer one = pool.Allocate(1);
        Buffer two = pool.Allocate(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_FALSE(budget->exceeded());
}

class BudgetOfConnections : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithBudget(std::shared_ptr<BufferBudget> budget) {
    Options options = GetParam().MakeOptions();
    options.buffer_budget = std::move(budget);
    options.log = [this](LogLevel, std::string_view line) {
      std::lock_guard<std::mutex> lock(log_mutex_);
      log_ += std::string(line) + "\n";
    };
    return options;
  }
  // An accepted Unix socket has large buffers whatever its listener has.
  static ListenerSpec SmallTcp() {
    return SmallBuffers(ListenAddress(Family::kTcp4));
  }
  std::string log() {
    std::lock_guard<std::mutex> lock(log_mutex_);
    return log_;
  }

 private:
  std::mutex log_mutex_;
  std::string log_;
};

// A handler that keeps what it is told until it may consume.
class KeepingHandler : public RefHandler {
 public:
  KeepingHandler() {
    on_traffic = [this](Connection& c) {
      if (consume) read += c.Discard();
      return Action::kNone;
    };
    on_close = [this](Connection&, const CloseInfo& info) {
      reason = info.reason;
    };
  }
  // Lets every connection go on.
  void Consume() {
    consume = true;
    for (const ConnectionRef& ref : refs()) (void)ref.Wake();
  }
  std::atomic<bool> consume{false};
  std::atomic<size_t> read{0};
  std::atomic<CloseReason> reason{CloseReason::kNone};
};

TEST_P(BudgetOfConnections, ReadersPauseAndGoOnByThemselves) {
  constexpr size_t kClients = 12;
  constexpr size_t kBytes = 200 * kKiB;
  const auto budget = Budget(256 * kKiB, WhenOverBudget::kPauseReaders);
  KeepingHandler handler;
  TestServer server(handler, {GetParam().Listen()}, WithBudget(budget));
  std::vector<std::thread> threads;
  std::atomic<int> sent{0};
  for (size_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, address = server.address()] {
      Client client = Client::Connect(address);
      if (client.SendAll(std::string(kBytes, 'x'))) ++sent;
      EXPECT_EQ(client.ReadExactly(3), "end");
    });
  }
  (void)handler.WaitFor(kClients - 1);
  ASSERT_TRUE(WaitUntil([&] { return server.stats().readers_paused > 0; }));
  ASSERT_TRUE(WaitUntil([&] { return budget->exceeded(); }));
  ExpectIdle(server);
  EXPECT_EQ(budget->used(), server.stats().buffers_outstanding);
  // What was read beyond it is at most what one read makes of each reactor's
  // connection: its block doubles.
  const auto reactors = static_cast<size_t>(GetParam().reactors);
  EXPECT_LE(budget->used(), (256 + 512 * reactors) * kKiB);
  EXPECT_EQ(handler.closed, 0);
  handler.Consume();
  ASSERT_TRUE(WaitUntil([&] { return handler.read == kClients * kBytes; }))
      << handler.read;
  EXPECT_EQ(budget->used(), server.stats().buffers_outstanding);
  EXPECT_TRUE(WaitUntil([&] { return budget->used() == 0; }));
  EXPECT_FALSE(budget->exceeded());
  for (const ConnectionRef& ref : handler.refs()) {
    EXPECT_TRUE(ref.Write("end").ok());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent, static_cast<int>(kClients));
}

// The end of a connection that is held back; and a pause of its handler's.
TEST_P(BudgetOfConnections, WhatElseHappensToAReaderThatWaits) {
  if (GetParam().family == Family::kUnix) GTEST_SKIP() << "has no resets";
  const auto budget = Budget(64 * kKiB, WhenOverBudget::kPauseReaders);
  KeepingHandler handler;
  TestServer server(handler, {GetParam().Listen()}, WithBudget(budget));
  // One that uses up all there is.
  Client greedy = Client::Connect(server.address());
  (void)handler.WaitFor(0);
  ASSERT_TRUE(greedy.SendAll(std::string(100 * kKiB, 'x')));
  ASSERT_TRUE(WaitUntil([&] { return budget->exceeded(); }));
  const auto paused = [&] { return server.stats().readers_paused; };

  Client silent = Client::Connect(server.address());  // FIN, and no byte
  (void)handler.WaitFor(1);
  ASSERT_TRUE(silent.ShutdownWrite());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kPeerClosed);

  uint64_t before = paused();
  Client reset = Client::Connect(server.address());
  (void)handler.WaitFor(2);
  ASSERT_TRUE(reset.SendAll("x"));
  ASSERT_TRUE(WaitUntil([&] { return paused() > before; }));
  reset.CloseWithReset();
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 2; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReset);

  // Paused by its handler: not held back as well, and still paused later.
  Client held = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(3);
  Reactor& home = HomeOf(server, ref);
  ReadPause pause;
  RunOn(home, [&] { pause = home.Find(ref)->PauseRead(); });
  before = paused();
  ASSERT_TRUE(held.SendAll("held"));
  Client other = Client::Connect(server.address());
  ASSERT_TRUE(other.SendAll("other"));
  ASSERT_TRUE(WaitUntil([&] { return paused() > before; }));
  EXPECT_EQ(paused(), before + 1);
  // `other` alone goes on.
  handler.Consume();
  ASSERT_TRUE(WaitUntil([&] { return handler.read == 100 * kKiB + 5; }))
      << handler.read;
  TurnOver(home);
  RunOn(home, [&] { EXPECT_FALSE(home.Find(ref)->reading()); });
  EXPECT_EQ(handler.read, 100 * kKiB + 5);
  RunOn(home, [&] { pause.Release(); });
  ASSERT_TRUE(WaitUntil([&] { return handler.read == 100 * kKiB + 9; }));
}

// Those that hold the most go, and no more of them than it takes.
TEST_P(BudgetOfConnections, TheWorstAreClosed) {
  const auto budget = Budget(4 << 20, WhenOverBudget::kCloseWorst);
  RefHandler handler;
  std::mutex mutex;
  std::vector<std::pair<size_t, CloseInfo>> ends;  // what it was, and how
  std::atomic<int> in_write{0};
  handler.on_close = [&](Connection& c, const CloseInfo& info) {
    EXPECT_EQ(in_write, 0);
    std::lock_guard<std::mutex> lock(mutex);
    ends.emplace_back(c.has_context() ? c.Get<size_t>() : 0, info);
  };
  Options options = WithBudget(budget);
  options.reactors = 1;
  TestServer server(handler, {SmallTcp()}, options);
  std::vector<Client> clients;
  // 300, 600, ... 1,500 KiB: together 4,500 KiB, above 4,096. What is closed
  // first is the last one.
  for (size_t i = 1; i <= 5; ++i) {
    clients.push_back(Client::Connect(server.address(), SmallReceiver()));
    const ConnectionRef ref = handler.WaitFor(i - 1);
    Reactor& home = server.engine().reactor(0);
    RunOn(home, [&, i] {
      Connection& c = *home.Find(ref);
      c.Emplace<size_t>(i);
      ++in_write;
      EXPECT_TRUE(c.Write(std::string(i * 300 * kKiB, 'x')).ok());
      EXPECT_TRUE(c.open()) << "never inside Write";
      --in_write;
    });
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.closed > 0; }));
  TurnOver(server.engine().reactor(0));
  {
    std::lock_guard<std::mutex> lock(mutex);
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].first, 5u);
    EXPECT_EQ(ends[0].second.reason, CloseReason::kMemoryPressure);
    EXPECT_GT(ends[0].second.unsent_bytes, 1000 * kKiB);
    EXPECT_LE(ends[0].second.unsent_bytes, 1500 * kKiB);
  }
  EXPECT_FALSE(budget->exceeded());
  EXPECT_LE(budget->used(), budget->resume_bytes());
  EXPECT_EQ(server.stats().closed_for(CloseReason::kMemoryPressure), 1u);
  EXPECT_NE(log().find("(memory pressure)"), std::string::npos) << log();
  EXPECT_NE(log().find("BufferBudget is 4194304 bytes"), std::string::npos)
      << log();
  // The others have all of theirs.
  for (size_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(clients[i - 1].ReadExactly(i * 300 * kKiB).size(),
              i * 300 * kKiB);
  }
  EXPECT_TRUE(WaitUntil([&] { return budget->used() == 0; }));
  EXPECT_TRUE(server.StopAndDestroy().ok());
}

// Unread input counts as well.
TEST_P(BudgetOfConnections, TheWorstByInput) {
  const auto budget = Budget(256 * kKiB, WhenOverBudget::kCloseWorst);
  KeepingHandler handler;
  TestServer server(handler, {GetParam().Listen()}, WithBudget(budget));
  Client small = Client::Connect(server.address());
  ASSERT_TRUE(small.SendAll(std::string(1000, 's')));
  ASSERT_TRUE(WaitUntil([&] { return handler.traffic > 0; }));
  Client big = Client::Connect(server.address());
  std::thread sender([&] {
    // Until it is closed.
    const std::string bytes(64 * kKiB, 'b');
    while (send(big.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  sender.join();
  EXPECT_EQ(handler.reason.load(), CloseReason::kMemoryPressure);
  EXPECT_EQ(server.stats().readers_paused, 0u);
  handler.Consume();
  ASSERT_TRUE(WaitUntil([&] { return handler.read == 1000; }));
  EXPECT_EQ(handler.closed, 1);
}

// The reactor that holds the most may be asleep while another one crosses the
// mark; and the two may belong to different engines.
TEST_P(BudgetOfConnections, AReactorThatSleepsClosesItsWorst) {
  const auto budget = Budget(1 << 20, WhenOverBudget::kCloseWorst);
  RefHandler rich;
  RefHandler poor;
  Options options = WithBudget(budget);
  options.reactors = 1;
  TestServer first(rich, {SmallTcp()}, options);
  TestServer second(poor, {SmallTcp()}, options);
  Client a = Client::Connect(first.address(), SmallReceiver());
  Client b = Client::Connect(second.address(), SmallReceiver());
  const auto write = [](RefHandler& handler, size_t bytes) {
    ASSERT_TRUE(handler.WaitFor(0).Write(std::string(bytes, 'x')).ok());
  };
  write(rich, 900 * kKiB);
  TurnOver(first.engine().reactor(0));
  EXPECT_EQ(rich.closed, 0);
  write(poor, 300 * kKiB);
  ASSERT_TRUE(WaitUntil([&] { return rich.closed == 1; }));
  TurnOver(second.engine().reactor(0));
  EXPECT_EQ(poor.closed, 0);
  EXPECT_FALSE(budget->exceeded());
  EXPECT_EQ(b.ReadExactly(300 * kKiB).size(), 300 * kKiB);
  EXPECT_TRUE(first.StopAndDestroy().ok());
  // One that has ended does not count any more.
  EXPECT_TRUE(poor.at(0).Write("x").ok());
  EXPECT_EQ(b.ReadExactly(1), "x");
  EXPECT_TRUE(second.StopAndDestroy().ok());
  EXPECT_EQ(budget->used(), 0u);
}

// Many that come and go while the budget is exceeded again and again.
TEST_P(BudgetOfConnections, AStorm) {
  for (const WhenOverBudget when_over :
       {WhenOverBudget::kPauseReaders, WhenOverBudget::kCloseWorst}) {
    const auto budget = Budget(128 * kKiB, when_over);
    LambdaHandler handler;
    handler.on_traffic = [](Connection& c) {
      // Half of it stays, until there is more than 16 KiB.
      c.Discard(c.inbound() > 16 * kKiB ? Connection::kAll : c.inbound() / 2);
      (void)c.Write(std::string(1000, 'r'));
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, WithBudget(budget));
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([address = server.address()] {
        for (int i = 0; i < 15; ++i) {
          Client client = Client::Connect(address);
          const std::string bytes(40 * kKiB, 'x');
          // It may be closed at any time, and never reads.
          for (int k = 0; k < 4; ++k) {
            if (send(client.fd(), bytes.data(), bytes.size(),
                     MSG_NOSIGNAL | MSG_DONTWAIT) <= 0) {
              break;
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_TRUE(WaitUntil([&] { return budget->used() == 0; }));
    const EngineStats stats = server.stats();
    uint64_t sum = 0;
    for (const uint64_t n : stats.closed_by_reason) sum += n;
    EXPECT_EQ(sum, stats.closed);
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Some, BudgetOfConnections,
                         ::testing::Values(MatrixParam{Family::kTcp4, 1},
                                           MatrixParam{Family::kTcp4, 2,
                                                       AcceptMode::kHandOff,
                                                       Trigger::kEdge},
                                           MatrixParam{Family::kUnix, 2}),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
