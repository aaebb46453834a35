// What limits cost in memory: nothing where it says so, and otherwise nothing
// any more once they are not needed.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace {

// Live blocks as large as an active state, which nothing else here is often.
constexpr size_t kLarge = 160;
std::atomic<long> large_blocks{0};

struct Header {
  alignas(std::max_align_t) bool large;
};

}  // namespace

// All that may be mixed with each other. Not inlined, or GCC takes free for the
// wrong counterpart of new.
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + size));
  if (header == nullptr) return nullptr;
  header->large = size >= kLarge && size <= 4 * kLarge;
  if (header->large) ++large_blocks;
  return header + 1;
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* block = operator new(size, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (header->large) --large_blocks;
  std::free(header);
}
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr int kConnections = 100;

// Blocks that so many connections cost.
class LimitsMemory : public ::testing::Test {
 protected:
  void Start(const ConnectionLimits& limits) {
    handler_.on_traffic = [this](Connection& c) {
      c.CountMessages();
      if (handshake_done_) c.HandshakeDone();
      return EchoTraffic(c);
    };
    Options options = TestOptions(1);
    options.limits = limits;
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{"tcp://127.0.0.1:0"}, options);
    before_ = large_blocks;
    for (int i = 0; i < kConnections; ++i) {
      clients_.push_back(Client::Connect(server_->address()));
    }
    (void)handler_.WaitFor(kConnections - 1);
    TurnOver(server_->engine().reactor(0));
  }
  void EchoAll() {
    for (Client& client : clients_) EXPECT_TRUE(client.Echo("x"));
    TurnOver(server_->engine().reactor(0));
  }
  long blocks() const { return large_blocks - before_; }
  // A few more or less belong to vectors that grow.
  bool none() const { return blocks() < kConnections / 4; }
  bool each() const { return blocks() > kConnections * 3 / 4; }

  RefHandler handler_;
  std::atomic<bool> handshake_done_{false};
  std::unique_ptr<TestServer> server_;
  std::vector<Client> clients_;
  long before_ = 0;
};

TEST_F(LimitsMemory, TimeoutsCostNone) {
  ConnectionLimits limits;
  limits.idle_timeout = std::chrono::hours(1);
  limits.read_timeout = std::chrono::hours(2);
  limits.write_timeout = std::chrono::hours(3);
  Start(limits);
  EXPECT_TRUE(none()) << blocks();
  EchoAll();
  EXPECT_TRUE(none()) << blocks();
  // And of their own: while they differ.
  RunOn(server_->engine().reactor(0), [&] {
    for (const ConnectionRef& ref : handler_.refs()) {
      Connection& c = *server_->engine().reactor(0).Find(ref);
      EXPECT_TRUE(c.SetReadTimeout(std::chrono::hours(2)).ok());
    }
  });
  TurnOver(server_->engine().reactor(0));
  EXPECT_TRUE(none()) << blocks();
  RunOn(server_->engine().reactor(0), [&] {
    for (const ConnectionRef& ref : handler_.refs()) {
      Connection& c = *server_->engine().reactor(0).Find(ref);
      EXPECT_TRUE(c.SetReadTimeout(std::chrono::hours(9)).ok());
    }
  });
  TurnOver(server_->engine().reactor(0));
  EXPECT_TRUE(each()) << blocks();
}

TEST_F(LimitsMemory, AHandshakeUntilItIsDone) {
  ConnectionLimits limits;
  limits.handshake_timeout = std::chrono::hours(1);
  Start(limits);
  EXPECT_TRUE(each()) << blocks();
  EchoAll();
  EXPECT_TRUE(each()) << blocks();
  handshake_done_ = true;
  EchoAll();
  EXPECT_TRUE(none()) << blocks();
}

TEST_F(LimitsMemory, ARateLimitUntilTheBurstIsThereAgain) {
  ConnectionLimits limits;
  // A message takes 3 s to run in again: long enough to be seen.
  limits.rate_limit.messages_per_second = 1 / 3.0;
  limits.rate_limit.message_burst = 5;
  Start(limits);
  EXPECT_TRUE(none()) << blocks();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_TRUE(clients_[static_cast<size_t>(i)].Echo("x"));
  }
  long seen = 0;
  RunOn(server_->engine().reactor(0), [&] { seen = blocks(); });
  if (std::chrono::steady_clock::now() - start < std::chrono::seconds(3)) {
    EXPECT_GT(seen, kConnections * 3 / 4);
  }
  // Found by the wheel, without any traffic.
  EXPECT_TRUE(WaitUntil([&] { return none(); })) << blocks();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(server_->stats().rate_paused, 0u);
}

}  // namespace
}  // namespace sluice::test
