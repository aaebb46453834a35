// Random streams come back byte for byte, in every combination of family,
// reactors, accept mode, trigger and descriptor table.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr size_t kStreamBytes = size_t{1} << 20;
constexpr int kClients = 5;

// How a connection takes its input; each way is another path in the buffers.
enum class Style { kNext, kRead, kPeekAndDiscard, kLeaveSome };
constexpr int kStyles = 4;

void EchoInStyle(Connection& c, Style style) {
  switch (style) {
    case Style::kNext:
      ASSERT_TRUE(c.Write(c.Next()).ok());
      break;
    case Style::kRead: {
      char block[5000];
      while (const size_t got = c.Read(block)) {
        ASSERT_TRUE(c.Write(std::string_view(block, got)).ok());
      }
      break;
    }
    case Style::kPeekAndDiscard: {
      const std::string_view all = c.Peek();
      ASSERT_EQ(all.size(), c.inbound());
      const size_t half = all.size() / 2;
      const std::string_view pieces[] = {all.substr(0, half), "",
                                         all.substr(half)};
      ASSERT_TRUE(c.Write(pieces).ok());
      ASSERT_EQ(c.Discard(all.size()), all.size());
      break;
    }
    case Style::kLeaveSome:
      // What stays must be seen again in front of the next bytes.
      ASSERT_TRUE(c.Write(c.Next(c.inbound() - c.inbound() % 1000)).ok());
      break;
  }
}

std::string RandomBytes(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return bytes;
}

// Sends in pieces of random sizes while another thread reads.
void RunClient(const Address& address, unsigned seed) {
  Client client = Client::Connect(address);
  if (!client.connected()) return;
  const std::string sent = RandomBytes(kStreamBytes, seed);
  std::thread sender([&] {
    std::mt19937_64 random(seed + 1000);
    std::uniform_int_distribution<size_t> sizes(1, 100'000);
    std::string_view left = sent;
    while (!left.empty()) {
      const std::string_view piece = left.substr(0, sizes(random));
      if (!client.SendAll(piece)) return;
      left.remove_prefix(piece.size());
    }
    client.ShutdownWrite();
  });
  const std::string received = client.ReadToEof();
  sender.join();
  ASSERT_EQ(received.size(), sent.size());
  const auto [a, b] = std::mismatch(sent.begin(), sent.end(), received.begin());
  ASSERT_TRUE(a == sent.end())
      << "first difference at byte " << a - sent.begin();
}

class EchoMatrix : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(EchoMatrix, RandomStreamsComeBack) {
  const size_t fds_before = CountOpenFds();
  LambdaHandler handler;
  std::atomic<int> order{0};
  std::atomic<int> wrong_reason{0};
  handler.on_open = [&](Connection& c) {
    c.Emplace<Style>(static_cast<Style>(order++ % kStyles));
    return Action::kNone;
  };
  handler.on_traffic = [](Connection& c) {
    EchoInStyle(c, c.Get<Style>());
    return Action::kNone;
  };
  handler.on_peer_shutdown = [](Connection& c) {
    if (c.inbound() > 0) (void)c.Write(c.Next());
    return Action::kClose;
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    if (info.error != 0 || info.unsent_bytes != 0) ++wrong_reason;
  };
  {
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    std::vector<std::thread> clients;
    for (unsigned i = 0; i < kClients; ++i) {
      clients.emplace_back(RunClient, server.address(), i);
    }
    for (std::thread& client : clients) client.join();

    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_TRUE(WaitUntil([&] {
      return server.stats().buffers_outstanding == 0;
    })) << server.stats().buffers_outstanding
        << " bytes of buffers are out";
    const EngineStats stats = server.stats();
    EXPECT_EQ(stats.opened, uint64_t{kClients});
    EXPECT_EQ(stats.closed, uint64_t{kClients});
    EXPECT_EQ(stats.accepted, uint64_t{kClients});
    EXPECT_EQ(stats.bytes_in, uint64_t{kClients * kStreamBytes});
    EXPECT_EQ(stats.bytes_out, uint64_t{kClients * kStreamBytes});
    EXPECT_EQ(stats.handler_exceptions, 0u);
    EXPECT_EQ(stats.accept_errors, 0u);
    const absl::Status run = server.StopAndDestroy();
    EXPECT_TRUE(run.ok()) << run.ToString();
  }
  EXPECT_EQ(handler.opened, kClients);
  EXPECT_EQ(handler.closed, kClients);
  EXPECT_EQ(handler.peer_shutdowns, kClients);
  EXPECT_EQ(handler.shutdowns, 1);
  EXPECT_EQ(wrong_reason, 0);
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

INSTANTIATE_TEST_SUITE_P(All, EchoMatrix,
                         ::testing::ValuesIn(AllCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
