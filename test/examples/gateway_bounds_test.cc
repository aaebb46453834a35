// The gateway: bad input, and players who take too much or too long.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "examples/gateway_client/bad_client.h"
#include "test/examples/gateway_fixture.h"

namespace sluice::gateway {
namespace {

using test::Client;
using test::kPatience;
using test::WaitUntil;

// --- Bad input.

struct BadCase {
  const char* name;
  std::string bytes;
  Count count;
};

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

class GatewayBadInput : public GatewayTest,
                        public testing::WithParamInterface<BadCase> {};

TEST_P(GatewayBadInput, ClosesThatConnectionAndIsCounted) {
  // One loop, so that the two share everything they can share.
  engine_options_.reactors = 1;
  Start();
  Client other = Player("ann");
  Client bad = Player("bob");
  EXPECT_TRUE(MovesOn(bad, 1));
  ASSERT_TRUE(bad.SendAll(GetParam().bytes));
  int error = 0;
  EXPECT_EQ(bad.ReadToEnd(&error), "");
  EXPECT_TRUE(MovesOn(other, 1));
  bad.Close();
  EXPECT_TRUE(AwaitCount(GetParam().count, 1));
  EXPECT_TRUE(MovesOn(other, 2));
  // It is under this count alone.
  for (const Count count :
       {Count::kTooLong, Count::kCorruptLength, Count::kUnknownCommand,
        Count::kBadBody, Count::kUnfinished, Count::kByPeer, Count::kOther}) {
    EXPECT_EQ(Counted(count), count == GetParam().count ? 1u : 0u)
        << CountName(count);
  }
}

TEST_P(GatewayBadInput, DoesNotTakeBackWhatWasAnsweredBefore) {
  Start();
  Client bad = Player("bob");
  ASSERT_TRUE(bad.SendAll(Framed(MovePayload(1)) + GetParam().bytes +
                          Framed(MovePayload(2))));
  EXPECT_TRUE(IsMoved(bad, 1));
  int error = 0;
  EXPECT_EQ(bad.ReadToEnd(&error), "");
  bad.Close();
  EXPECT_TRUE(AwaitCount(GetParam().count, 1));
  EXPECT_EQ(Counted(Count::kMoves), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    All, GatewayBadInput,
    testing::Values(
        BadCase{"TooLong", BadBytes(BadInput::kTooLong), Count::kTooLong},
        BadCase{"TooLongByOne",
                Bytes({(kMaxPacket - 1) >> 8, (kMaxPacket - 1) & 0xff}),
                Count::kTooLong},
        BadCase{"CorruptLength", BadBytes(BadInput::kCorruptLength),
                Count::kCorruptLength},
        BadCase{"LengthZero", Bytes({0, 0}), Count::kCorruptLength},
        BadCase{"UnknownCommand", BadBytes(BadInput::kUnknownCommand),
                Count::kUnknownCommand},
        BadCase{"AnAnswerIsNoCommand", Framed(Payload::LoggedIn(1)),
                Count::kUnknownCommand},
        BadCase{"LoginWithoutAName", Framed(Payload::Login("")),
                Count::kBadBody},
        BadCase{
            "NameTooLong",
            Bytes({0, 2 + kMaxName + 1, 0, 1}) + std::string(kMaxName + 1, 'x'),
            Count::kBadBody},
        BadCase{"MoveTooShort", Bytes({0, 3, 0, 2, 9}), Count::kBadBody}),
    [](const testing::TestParamInfo<BadCase>& tested) {
      return tested.param.name;
    });

// --- Time.

using GatewayBounds = GatewayTest;

// True once the gateway has ended the connection, while `drip` goes on.
bool EndsWhile(Client& client, const std::string& drip) {
  return WaitUntil([&] {
    (void)send(client.fd(), drip.data(), drip.size(), MSG_NOSIGNAL);
    return client.Readable(std::chrono::milliseconds(5));
  });
}

TEST_F(GatewayBounds, WhoDripsAPacketIsClosed) {
  options_.frame_deadline = std::chrono::milliseconds(100);
  engine_options_.limits.idle_timeout = std::chrono::minutes(10);
  Start();
  Client other = Player("ann");
  Client bad = Player("bob");
  ASSERT_TRUE(bad.SendAll(BadBytes(BadInput::kUnfinished)));
  // It is never silent, so no idle timeout would notice.
  EXPECT_TRUE(EndsWhile(bad, "x"));
  bad.Close();
  EXPECT_TRUE(AwaitCount(Count::kUnfinished, 1));
  EXPECT_TRUE(MovesOn(other, 1));
}

TEST_F(GatewayBounds, HalfALengthIsAnUnfinishedPacketToo) {
  options_.frame_deadline = std::chrono::milliseconds(50);
  Start();
  Client bad = Connect();
  ASSERT_TRUE(bad.SendAll(Bytes({0})));
  int error = 0;
  EXPECT_EQ(bad.ReadToEnd(&error), "");
  bad.Close();
  EXPECT_TRUE(AwaitCount(Count::kUnfinished, 1));
}

TEST_F(GatewayBounds, ADeadlineIsOfOnePacketOnly) {
  options_.frame_deadline = std::chrono::minutes(10);
  Start();
  Client ann = Player("ann");
  // The second half of one and the first of the next, always: each packet has
  // its own timer, and never is there more than one.
  std::string stream;
  for (uint32_t i = 0; i < 50; ++i) stream += Framed(MovePayload(i));
  ASSERT_TRUE(ann.SendAll(stream.substr(0, 12)));
  for (uint32_t i = 0; i < 49; ++i) {
    ASSERT_TRUE(ann.SendAll(stream.substr(12 + i * 24, 24)));
    EXPECT_TRUE(IsMoved(ann, i));
    EXPECT_LE(server_->stats().timers, 2u);  // one, and one being replaced
  }
  ann.Close();
  EXPECT_TRUE(server_->WaitForNoConnections());
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().timers == 0; }));
}

TEST_F(GatewayBounds, WhoIsSilentIsClosed) {
  engine_options_.limits.idle_timeout = std::chrono::milliseconds(200);
  Start();
  Client silent = Connect();
  EXPECT_EQ(silent.ReadToEof(), "");
  EXPECT_TRUE(AwaitCount(Count::kIdle, 1));
}

// Moves without end, as fast as they go in.
class EndlessMoves {
 public:
  EndlessMoves() {
    for (uint32_t i = 0; i < 1'000; ++i) moves_ += Framed(MovePayload(i));
  }
  // Bytes that went in; 0: none do, now.
  size_t SendSome(Client& client) {
    const ssize_t n = send(client.fd(), moves_.data() + at_,
                           moves_.size() - at_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return 0;
    at_ = (at_ + static_cast<size_t>(n)) % moves_.size();
    return static_cast<size_t>(n);
  }

 private:
  std::string moves_;
  size_t at_ = 0;  // next to send
};

TEST_F(GatewayBounds, WhoDoesNotReadIsClosed) {
  Start();
  Client deaf = Player("deaf");
  Client other = Player("ann");
  // Its answers pile up in the kernel first, then here, up to max_outbound.
  EndlessMoves moves;
  EXPECT_TRUE(WaitUntil([&] {
    moves.SendSome(deaf);
    return Counted(Count::kSlowReader) == 1;
  }));
  EXPECT_TRUE(MovesOn(other, 1));
}

// --- Too many packets.

TEST_F(GatewayBounds, WhoSendsTooManyIsHeldToTheRateAndLosesNothing) {
  options_.rate = {.per_second = 1'000, .burst = 20};
  engine_options_.reactors = 1;
  Start();
  Client other = Player("ann");
  Client flooder = Player("bob");
  constexpr uint32_t kMoves = 500;
  std::string moves;
  for (uint32_t i = 0; i < kMoves; ++i) moves += Framed(MovePayload(i));
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(flooder.SendAll(moves));
  EXPECT_TRUE(MovesOn(other, 1));
  for (uint32_t i = 0; i < kMoves; ++i) {
    ASSERT_TRUE(IsMoved(flooder, i));
    if (i % 50 == 0) {
      EXPECT_TRUE(MovesOn(other, i));
      EXPECT_LE(server_->stats().timers, 1u);  // one for the pause
    }
  }
  const auto took = std::chrono::steady_clock::now() - began;
  // However slow the machine is, it cannot have been faster than that.
  EXPECT_GE(took, std::chrono::milliseconds(kMoves - 20 - 1));
  EXPECT_GT(Counted(Count::kPauses), 0u);
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().timers == 0; }));
}

TEST_F(GatewayBounds, AFloodThatGoesOnHasOneTimer) {
  options_.rate = {.per_second = 2'000, .burst = 20};
  engine_options_.reactors = 1;
  Start();
  Client other = Player("ann");
  Client flooder = Player("bob");
  // There are always bytes in the kernel when reading goes on.
  EndlessMoves moves;
  size_t most_timers = 0;
  ASSERT_TRUE(WaitUntil([&] {
    moves.SendSome(flooder);
    most_timers = std::max(most_timers, server_->stats().timers);
    return Counted(Count::kMoves) >= 1'000;
  }));
  EXPECT_EQ(most_timers, 1u);
  EXPECT_TRUE(MovesOn(other, 1));
}

TEST_F(GatewayBounds, AFloodIsStoppedByTcpAndNotKept) {
  // Login and one move, then hardly anything.
  options_.rate = {.per_second = 0.01, .burst = 2};
  engine_options_.reactors = 1;
  Start();
  test::ClientOptions small;
  small.send_buffer = 32 << 10;
  Client flooder = Connect(small);
  ASSERT_TRUE(SendPacket(flooder, Payload::Login("bob")));
  EXPECT_TRUE(IsLoggedIn(flooder, "bob"));
  // Until nothing more goes in for a while. Buffers of sockets differ between
  // kernels: it is enough that there is an end, long before all memory is.
  constexpr size_t kMost = size_t{16} << 20;
  EndlessMoves moves;
  size_t sent = 0;
  auto last = std::chrono::steady_clock::now();
  ASSERT_TRUE(WaitUntil([&] {
    const size_t n = moves.SendSome(flooder);
    const auto now = std::chrono::steady_clock::now();
    sent += n;
    if (n > 0) last = now;
    return sent > kMost || now - last > std::chrono::milliseconds(300);
  }));
  EXPECT_LT(sent, kMost);
  EXPECT_TRUE(AwaitCount(Count::kPauses, 1));
  EXPECT_EQ(Counted(Count::kMoves), 1u);
  // What waits with us: max_inbound and at most one read.
  EXPECT_LE(server_->stats().buffers_outstanding,
            4 * engine_options_.limits.max_inbound);
  Client other = Player("ann");
  EXPECT_TRUE(MovesOn(other, 1));
  // And it can go at any time.
  flooder.CloseWithReset();
  EXPECT_TRUE(AwaitCount(Count::kReset, 1));
  EXPECT_TRUE(
      WaitUntil([&] { return server_->stats().buffers_outstanding == 0; }));
}

}  // namespace
}  // namespace sluice::gateway
