// ctest: RUN_SERIAL TRUE
// Cases of writing: everything that was accepted arrives once and in order,
// however slow the peer and whoever writes.

#include <atomic>
#include <chrono>
#include <cstdio>
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

using std::chrono::milliseconds;

class WriteCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(WriteCases, B43_WriteInterestEndsWhenAllIsSent) {
  const std::string bytes = Pattern(size_t{8} << 20);
  RefHandler handler;
  handler.on_traffic = EchoTraffic;
  // Fixed, or the kernel's buffers grow until they hold everything.
  ListenOptions listen;
  listen.socket.send_buffer = 64 << 10;
  ClientOptions connect;
  connect.receive_buffer = 128 << 10;
  TestServer server(handler, {{GetParam().Listen(), listen}},
                    GetParam().MakeOptions());
  Client client = Client::Connect(server.address(), connect);
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(ref.Write(bytes).ok());
    TurnOver(home);
    std::atomic<size_t> outbound{0};
    RunOn(home, [&] { outbound = home.Find(ref)->outbound(); });
    EXPECT_GT(outbound, 0u) << "the peer was meant to be too slow";
    // Stalled: waiting for room costs nothing.
    ExpectIdle(server, milliseconds(200));
    EXPECT_TRUE(SameBytes(client.ReadExactly(bytes.size()), bytes));
    RunOn(home, [&] { outbound = home.Find(ref)->outbound(); });
    EXPECT_EQ(outbound, 0u);
    ExpectIdle(server);
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
    EXPECT_TRUE(client.Echo("and on"));
  }
}

// 100 bytes that say who wrote them and as which of his records.
constexpr size_t kRecord = 100;
constexpr int kWriters = 8;
std::string Record(int writer, int sequence) {
  char head[32];
  std::snprintf(head, sizeof(head), "%02d %08d ", writer, sequence);
  std::string record = head;
  record.resize(kRecord, static_cast<char>('a' + writer));
  return record;
}

TEST_P(WriteCases, B44_ManyThreadsWriteWholeRecordsInOrder) {
  constexpr int kRecords = kSanitized ? 300 : 1000;
  RefHandler handler;
  // The loop writes too, a record for each byte that comes.
  handler.on_open = [](Connection& c) {
    c.Emplace<int>(0);
    return Action::kNone;
  };
  handler.on_traffic = [](Connection& c) {
    for (size_t n = c.Discard(); n > 0; --n) {
      EXPECT_TRUE(c.Write(Record(kWriters, c.Get<int>()++)).ok());
    }
    return Action::kNone;
  };
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    GetParam().MakeOptions());
  Client client = Client::Connect(server.address(), SmallReceiver());
  const ConnectionRef ref = handler.WaitFor(0);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([=] {
      for (int i = 0; i < kRecords; ++i) {
        EXPECT_TRUE(ref.Write(Record(writer, i)).ok());
      }
    });
  }
  std::vector<int> next(kWriters + 1, 0);
  const int total = (kWriters + 1) * kRecords;
  int asked = 0;
  for (int i = 0; i < total; ++i) {
    if (asked < kRecords) {
      EXPECT_TRUE(client.SendAll("x"));
      ++asked;
    }
    const std::string got = client.ReadExactly(kRecord);
    int writer = -1;
    int sequence = -1;
    ASSERT_EQ(std::sscanf(got.c_str(), "%d %d", &writer, &sequence), 2) << got;
    ASSERT_GE(writer, 0);
    ASSERT_LE(writer, kWriters);
    ASSERT_EQ(got, Record(writer, sequence)) << "torn";
    ASSERT_EQ(sequence, next[static_cast<size_t>(writer)]++)
        << "of writer " << writer;
  }
  for (std::thread& writer : writers) writer.join();
  for (const int count : next) EXPECT_EQ(count, kRecords);
}

// The order that ConnectionRef promises.
TEST_P(WriteCases, B44_TheLoopsOwnWritesKeepTheirOrder) {
  RefHandler handler;
  Event in_traffic;
  Event queued;
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    in_traffic.Set();
    EXPECT_TRUE(queued.Wait());
    // A write of another thread that has returned waits for the loop; on the
    // loop a ticket's write acts at once, in order with the connection's.
    EXPECT_TRUE(c.Write("1 ").ok());
    EXPECT_TRUE(c.ref().Write("2 ").ok());
    EXPECT_TRUE(c.Write("3 ").ok());
    EXPECT_TRUE(c.ref().Write(std::string(200'000, '4')).ok());
    EXPECT_TRUE(c.Write(std::string(200'000, '5')).ok());
    EXPECT_TRUE(c.ref().Write("6 ").ok());
    return Action::kNone;
  };
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    GetParam().MakeOptions());
  Client client = Client::Connect(server.address(), SmallReceiver());
  const ConnectionRef ref = handler.WaitFor(0);
  EXPECT_TRUE(client.SendAll("x"));
  ASSERT_TRUE(in_traffic.Wait());
  EXPECT_TRUE(ref.Write("7 ").ok());
  EXPECT_TRUE(
      ref.Post([](Connection& c) { EXPECT_TRUE(c.Write("8 ").ok()); }).ok());
  EXPECT_TRUE(ref.Write("9 ").ok());
  EXPECT_TRUE(ref.Close().ok());
  queued.Set();
  EXPECT_TRUE(SameBytes(client.ReadToEof(),
                        "1 2 3 " + std::string(200'000, '4') +
                            std::string(200'000, '5') + "6 7 8 9 "));
}

TEST_P(WriteCases, B46_TheOutboundLimitRefuses) {
  constexpr size_t kBlock = size_t{64} << 10;
  constexpr size_t kLimit = size_t{1} << 20;
  RefHandler handler;
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = kLimit;
  options.limits.when_overflow = WhenOverflow::kRefuse;
  options.limits.flush_timeout = std::chrono::minutes(10);
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  std::vector<std::string> blocks;
  for (uint32_t seed = 0; seed < 16; ++seed) {
    blocks.push_back(Pattern(kBlock, seed));
  }
  const size_t rss = RssBytes();
  std::string accepted;  // the numbers of the blocks that were taken
  accepted.reserve(1000);
  std::atomic<int> refused{0};
  std::atomic<size_t> most{0};
  // Some at a time, so that the kernel is full before the limit counts.
  for (size_t i = 0; i < 1000; i += 10) {
    RunOn(home, [&, i] {
      Connection* c = home.Find(ref);
      for (size_t j = i; j < i + 10; ++j) {
        const size_t before = c->outbound();
        const absl::Status written = c->Write(blocks[j % 16]);
        if (written.ok()) {
          accepted += static_cast<char>(j % 16);
        } else {
          EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted);
          EXPECT_EQ(c->outbound(), before) << "refused, and yet taken";
          EXPECT_GT(before + kBlock, kLimit) << "refused below the limit";
          ++refused;
        }
        most = std::max(most.load(), c->outbound());
      }
      EXPECT_TRUE(c->open());
    });
  }
  EXPECT_GT(refused, 100);
  EXPECT_LE(most, kLimit);
  EXPECT_GT(most, kLimit / 2);
  EXPECT_LE(server.stats().buffers_outstanding, 2 * kLimit);
  if (!kSanitized) {
    EXPECT_LT(RssBytes(), rss + (size_t{4} << 20));
  }
  EXPECT_EQ(handler.closed, 0);
  // What was taken arrives, and nothing of what was not.
  EXPECT_TRUE(ref.Close().ok());
  TurnOver(home);
  for (size_t i = 0; i < accepted.size(); ++i) {
    ASSERT_TRUE(SameBytes(client.ReadExactly(kBlock),
                          blocks[static_cast<size_t>(accepted[i])]))
        << "block " << i;
  }
  EXPECT_EQ(client.ReadToEof(), "");
}

TEST_P(WriteCases, B46_TheOutboundLimitCloses) {
  constexpr size_t kBlock = size_t{64} << 10;
  constexpr size_t kLimit = size_t{1} << 20;
  RefHandler handler;
  std::atomic<CloseReason> reason{CloseReason::kNone};
  std::atomic<size_t> unsent{0};
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    reason = info.reason;
    unsent = info.unsent_bytes;
  };
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = kLimit;
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  const std::string block = Pattern(kBlock);
  const size_t rss = RssBytes();
  std::atomic<int> failed{0};
  std::atomic<bool> ran{false};
  // In one callback: nothing closes inside a Write.
  EXPECT_TRUE(ref.Post([&](Connection& c) {
                   for (int i = 0; i < 1000; ++i) {
                     const absl::Status written = c.Write(block);
                     if (written.ok()) {
                       EXPECT_EQ(failed, 0) << "accepted after a failure";
                     } else {
                       ++failed;
                     }
                     EXPECT_LE(c.outbound(), kLimit);
                     EXPECT_EQ(handler.closed, 0);
                   }
                   ran = true;
                 })
                  .ok());
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_TRUE(ran);
  EXPECT_GT(failed, 100);
  EXPECT_EQ(reason.load(), CloseReason::kSlowConsumer);
  EXPECT_GT(unsent, 0u);
  EXPECT_LE(unsent, kLimit + kBlock);
  if (!kSanitized) {
    EXPECT_LT(RssBytes(), rss + (size_t{4} << 20));
  }
  ASSERT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
}

TEST_P(WriteCases, B52_TheCallersBufferIsHisAgain) {
  for (const size_t size : {size_t{10}, size_t{10'000}, size_t{1} << 20}) {
    RefHandler handler;
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      std::string buffer = Pattern(size, 3);
      EXPECT_TRUE(c.Write(buffer).ok());
      buffer.assign(size, 'B');
      buffer = Pattern(size, 4);
      const std::string_view pieces[] = {
          std::string_view(buffer).substr(0, size / 3), "",
          std::string_view(buffer).substr(size / 3)};
      EXPECT_TRUE(c.Write(pieces).ok());
      buffer.assign(size, 'B');
      return Action::kNone;
    };
    TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                      GetParam().MakeOptions());
    Client client = Client::Connect(server.address(), SmallReceiver());
    const ConnectionRef ref = handler.WaitFor(0);
    {
      LoopBlock block(HomeOf(server, ref));
      std::string buffer = Pattern(size, 1);
      EXPECT_TRUE(ref.Write(buffer).ok());
      buffer.assign(size, 'B');
      buffer = Pattern(size, 2);
      EXPECT_TRUE(ref.Write(buffer).ok());
      buffer.assign(size, 'B');
    }
    EXPECT_TRUE(SameBytes(client.ReadExactly(2 * size),
                          Pattern(size, 1) + Pattern(size, 2)));
    EXPECT_TRUE(client.SendAll("x"));
    EXPECT_TRUE(SameBytes(client.ReadExactly(2 * size),
                          Pattern(size, 3) + Pattern(size, 4)));
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, WriteCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
