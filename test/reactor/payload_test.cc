// Bytes that many connections share.

#include "reactor/payload.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

TEST(PayloadTest, CopiesShareTheBytes) {
  const Payload none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(Payload(std::string()).empty());
  EXPECT_EQ(none.view(), "");
  const Payload one("bytes");
  const Payload two = one;
  EXPECT_EQ(two.view(), "bytes");
  EXPECT_EQ(two.view().data(), one.view().data());
}

class PayloadWrite : public ::testing::TestWithParam<MatrixParam> {};

// Small and large ones, between writes, from a callback, from a task and from
// another thread: one stream in order.
TEST_P(PayloadWrite, InOrderWithOtherWrites) {
  const Payload small(Pattern(100, 2));
  const Payload large(Pattern(1 << 20, 3));
  const auto write_all = [&](Connection& c) {
    EXPECT_TRUE(c.Write("head").ok());
    EXPECT_TRUE(c.Write(large).ok());
    EXPECT_TRUE(c.Write("middle").ok());
    EXPECT_TRUE(c.Write(small).ok());
    EXPECT_TRUE(c.Write(large).ok());
    EXPECT_TRUE(c.Write(Payload()).ok());
    EXPECT_TRUE(c.Write("tail").ok());
  };
  const std::string expected = "head" + std::string(large.view()) + "middle" +
                               std::string(small.view()) +
                               std::string(large.view()) + "tail";
  RefHandler handler;
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    write_all(c);
    return Action::kNone;
  };
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    GetParam().MakeOptions());
  Client client = Client::Connect(server.address(), SmallReceiver());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);

  ASSERT_TRUE(client.SendAll("x"));
  EXPECT_TRUE(SameBytes(client.ReadExactly(expected.size()), expected));
  RunOn(home, [&] { write_all(*home.Find(ref)); });
  EXPECT_TRUE(SameBytes(client.ReadExactly(expected.size()), expected));
  ASSERT_TRUE(ref.Write(large).ok());
  ASSERT_TRUE(ref.Write(small).ok());
  EXPECT_TRUE(SameBytes(client.ReadExactly(large.size() + small.size()),
                        std::string(large.view()) + std::string(small.view())));
  EXPECT_TRUE(server.StopAndDestroy().ok());
}

// What waits for slow readers is held once, whatever their number.
TEST_P(PayloadWrite, TakesNoBuffers) {
  RefHandler handler;
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    GetParam().MakeOptions());
  std::vector<Client> clients;
  const Payload large(Pattern(4 << 20, 3));
  for (size_t i = 0; i < 10; ++i) {
    clients.push_back(Client::Connect(server.address(), SmallReceiver()));
    ASSERT_TRUE(handler.WaitFor(i).Write(large).ok());
    TurnOver(HomeOf(server, handler.at(i)));
  }
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  for (Client& client : clients) {
    EXPECT_TRUE(SameBytes(client.ReadExactly(large.size()), large.view()));
  }
}

// The bounds are those of every write.
TEST_P(PayloadWrite, OverTheBound) {
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = 1 << 20;
  options.limits.when_overflow = WhenOverflow::kRefuse;
  RefHandler handler;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  RunOn(home, [&] {
    Connection& c = *home.Find(ref);
    EXPECT_TRUE(absl::IsResourceExhausted(
        c.Write(Payload(std::string((1 << 20) + 1, 'x')))));
    EXPECT_EQ(c.outbound(), 0u);
    c.Close();
    EXPECT_TRUE(absl::IsFailedPrecondition(
        c.Write(Payload(std::string(1 << 20, 'x')))));
  });
  EXPECT_EQ(client.ReadToEof(), "");
}

INSTANTIATE_TEST_SUITE_P(Loops, PayloadWrite,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
