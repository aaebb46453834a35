// Trigger::kEdge: everything is read without another packet, and no connection
// takes more than its chunk before the others have had their turn. Trigger::
// kLevel: one read an event.

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr size_t kReadBuffer = 4096;

// Puts `bytes` into the kernel; fewer if it takes no more. How many.
size_t SendNow(const Client& client, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(client.fd(), bytes.data() + sent,
                           bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      EXPECT_EQ(errno, EAGAIN);
      break;
    }
    sent += static_cast<size_t>(n);
  }
  return sent;
}

// One call of OnTraffic.
struct Traffic {
  size_t connection;
  size_t bytes;
};

// On a single reactor, which notes every call.
class EdgeTrigger : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void Start(Options options, size_t connections) {
    handler_.on_traffic = [this](Connection& c) {
      const std::string_view bytes = c.Next();
      calls_.push_back({IndexOf(c), bytes.size()});
      total_ += bytes.size();
      if (fail_all_but_ != 0) {
        EXPECT_EQ(bytes.find_first_not_of(fail_all_but_), std::string::npos);
      }
      return Action::kNone;
    };
    handler_.on_peer_shutdown = [this](Connection& c) {
      calls_.push_back({IndexOf(c), 0});
      return Action::kClose;
    };
    options.read_buffer = kReadBuffer;
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{GetParam().Listen()}, options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    for (size_t i = 0; i < connections; ++i) {
      ClientOptions large;
      large.send_buffer = 1 << 20;
      clients_.push_back(Client::Connect(server_->address(), large));
      (void)handler_.WaitFor(i);
    }
    TurnOver(loop());
  }
  ~EdgeTrigger() override { server_.reset(); }

  Reactor& loop() { return server_->engine().reactor(0); }
  // [loop]
  size_t IndexOf(Connection& c) {
    const std::vector<ConnectionRef> refs = handler_.refs();
    return static_cast<size_t>(std::find(refs.begin(), refs.end(), c.ref()) -
                               refs.begin());
  }
  std::vector<Traffic> Calls() {
    std::vector<Traffic> calls;
    RunOn(loop(), [&] { calls = calls_; });
    return calls;
  }

  RefHandler handler_;
  std::unique_ptr<TestServer> server_;
  std::vector<Client> clients_;
  std::vector<Traffic> calls_;  // the loop's
  std::atomic<size_t> total_{0};
  std::atomic<char> fail_all_but_{0};
};

TEST_P(EdgeTrigger, AChunkIsTheMostOfATurn) {
  constexpr size_t kChunk = 4 * kReadBuffer;
  Options options = GetParam().MakeOptions();
  options.edge_chunk = kChunk;
  Start(options, 3);
  size_t sent = 0;
  {
    LoopBlock block(loop());
    // Far more than a chunk, and one byte each.
    sent += SendNow(clients_[0], std::string(size_t{256} << 10, 'x'));
    ASSERT_GT(sent, 6 * kChunk) << "the socket takes too little for this test";
    sent += SendNow(clients_[1], "y");
    sent += SendNow(clients_[2], "z");
  }
  // Without another packet everything arrives.
  ASSERT_TRUE(WaitUntil([&] { return total_ == sent; }))
      << total_ << " of " << sent;
  const std::vector<Traffic> calls = Calls();
  size_t before = 0;  // bytes of the first one until both others had theirs
  size_t others = 0;
  for (const Traffic& call : calls) {
    EXPECT_LE(call.bytes, kReadBuffer);
    if (call.connection != 0) {
      EXPECT_EQ(call.bytes, 1u);
      if (++others == 2) break;
    } else {
      before += call.bytes;
    }
  }
  EXPECT_EQ(others, 2u);
  EXPECT_LE(before,
            GetParam().trigger == Trigger::kEdge ? kChunk : kReadBuffer);
}

// Those who have much share the loop.
TEST_P(EdgeTrigger, BigOnesTakeTurns) {
  constexpr size_t kChunk = 2 * kReadBuffer;
  Options options = GetParam().MakeOptions();
  options.edge_chunk = kChunk;
  Start(options, 3);
  size_t sent = 0;
  std::vector<size_t> left;
  {
    LoopBlock block(loop());
    for (Client& client : clients_) {
      left.push_back(SendNow(client, std::string(size_t{128} << 10, 'x')));
      sent += left.back();
    }
  }
  ASSERT_TRUE(WaitUntil([&] { return total_ == sent; })) << total_;
  // Between two turns of one that has more to come each other one that has
  // something left gets its turn.
  const size_t turn =
      GetParam().trigger == Trigger::kEdge ? kChunk : kReadBuffer;
  std::vector<size_t> run(3);  // bytes since another one's turn
  for (const Traffic& call : Calls()) {
    for (size_t i = 0; i < 3; ++i) {
      if (i != call.connection) run[i] = 0;
    }
    run[call.connection] += call.bytes;
    left[call.connection] -= call.bytes;
    const bool others_wait =
        std::any_of(left.begin(), left.end(), [&](const size_t& rest) {
          return &rest != &left[call.connection] && rest > 0;
        });
    // Twice, as the last of a round may be the first of the next.
    if (others_wait) {
      EXPECT_LE(run[call.connection], 2 * turn);
    }
  }
}

TEST_P(EdgeTrigger, TheSmallestChunkStillReadsAll) {
  Options options = GetParam().MakeOptions();
  options.edge_chunk = 1;
  Start(options, 2);
  fail_all_but_ = 'x';
  size_t sent = 0;
  {
    LoopBlock block(loop());
    for (Client& client : clients_) {
      sent += SendNow(client, std::string(3000, 'x'));
    }
  }
  ASSERT_TRUE(WaitUntil([&] { return total_ == sent; })) << total_;
  if (GetParam().trigger == Trigger::kLevel) return;
  for (const Traffic& call : Calls()) ASSERT_EQ(call.bytes, 1u);
}

// Sizes around the buffer and the chunk: an exact fit tells nothing about what
// is behind it.
TEST_P(EdgeTrigger, ExactFitsAreNotTheEnd) {
  constexpr size_t kChunk = 3 * kReadBuffer;
  Options options = GetParam().MakeOptions();
  options.edge_chunk = kChunk;
  Start(options, 1);
  size_t sent = 0;
  for (const size_t size :
       {size_t{1}, kReadBuffer - 1, kReadBuffer, kReadBuffer + 1, kChunk - 1,
        kChunk, kChunk + 1, 2 * kChunk, 2 * kChunk + 1}) {
    {
      LoopBlock block(loop());
      ASSERT_EQ(SendNow(clients_[0], std::string(size, 'x')), size);
    }
    sent += size;
    ASSERT_TRUE(WaitUntil([&] { return total_ == sent; })) << size;
    // Two messages that come apart.
    ASSERT_EQ(SendNow(clients_[0], std::string(size, 'x')), size);
    sent += size;
    ASSERT_TRUE(WaitUntil([&] { return total_ == sent; })) << size;
  }
}

// FIN behind the data, in one event.
TEST_P(EdgeTrigger, FinBehindTheDataIsFound) {
  Options options = GetParam().MakeOptions();
  options.edge_chunk = 2 * kReadBuffer;
  const std::vector<size_t> sizes = {1, kReadBuffer, 2 * kReadBuffer,
                                     2 * kReadBuffer + 1, 100'000};
  Start(options, sizes.size());
  size_t sent = 0;
  {
    LoopBlock block(loop());
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_EQ(SendNow(clients_[i], std::string(sizes[i], 'x')), sizes[i]);
      ASSERT_TRUE(clients_[i].ShutdownWrite());
      sent += sizes[i];
    }
  }
  for (Client& client : clients_) EXPECT_EQ(client.ReadToEof(), "");
  ASSERT_TRUE(WaitUntil(
      [&] { return handler_.closed == static_cast<int>(sizes.size()); }));
  EXPECT_EQ(total_, sent);
  std::vector<size_t> had(sizes.size());
  std::vector<int> ended(sizes.size());
  for (const Traffic& call : Calls()) {
    EXPECT_EQ(ended[call.connection], 0) << "a call after the FIN";
    had[call.connection] += call.bytes;
    ended[call.connection] += call.bytes == 0;
  }
  EXPECT_EQ(had, sizes);
  EXPECT_EQ(ended, std::vector<int>(sizes.size(), 1));
}

// What closes in the middle of its chunk is not read on.
TEST_P(EdgeTrigger, ClosingInTheMiddleEndsIt) {
  Options options = GetParam().MakeOptions();
  options.edge_chunk = size_t{1} << 20;
  for (const CloseMode mode :
       {CloseMode::kNow, CloseMode::kReset, CloseMode::kFlush}) {
    LambdaHandler handler;
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      c.Close(mode);
      return Action::kNone;
    };
    options.read_buffer = kReadBuffer;
    TestServer server(handler, {GetParam().Listen()}, options);
    Client client = Client::Connect(server.address());
    ASSERT_TRUE(WaitUntil([&] { return handler.opened == 1; }));
    {
      LoopBlock block(server.engine().reactor(0));
      (void)SendNow(client, std::string(50'000, 'x'));
    }
    int error = 0;
    EXPECT_EQ(client.ReadToEnd(&error), "");
    client.Close();
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_EQ(handler.traffic, 1);
    EXPECT_TRUE(server.WaitForNoConnections());
  }
}

std::vector<MatrixParam> Combinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.reactors == 1 && param.family != Family::kTcp6 &&
        param.accept == AcceptMode::kHandOff &&
        param.fd_tables == FdTables::kShared) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, EdgeTrigger, ::testing::ValuesIn(Combinations()),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
