// What the gateway and its players say to each other, byte for byte.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "codec/decode_state.h"
#include "examples/gateway/accounts.h"
#include "examples/gateway/protocol.h"

namespace sluice::gateway {
namespace {

using namespace std::string_view_literals;

TEST(GatewayProtocol, PacketsLookAsThePictureSays) {
  EXPECT_EQ(Framed(Payload::Login("ann")),
            "\x00\x05\x00\x01"
            "ann"sv);
  EXPECT_EQ(Framed(Payload::LoggedIn(0x01020304)),
            "\x00\x06\x80\x01\x01\x02\x03\x04"sv);
  EXPECT_EQ(
      Framed(Payload::MoveOf(
          Command::kMove,
          {.sequence = 7, .x = -1, .y = 258, .sent_at = 0x1122334455667788})),
      "\x00\x16\x00\x02\x00\x00\x00\x07\xff\xff\xff\xff\x00\x00\x01\x02"
      "\x11\x22\x33\x44\x55\x66\x77\x88"sv);
  EXPECT_EQ(Framed(Payload::Refused(Command::kMove, Why::kLoginFirst)),
            "\x00\x06\x80\x03\x00\x02\x00\x04"sv);
}

// The one packet in `bytes`.
std::optional<Packet> Decode(std::string_view bytes) {
  DecodeState state;
  const DecodeResult result = MakeDecoder().Decode(bytes, state);
  if (result.code != DecodeCode::kFrame) return std::nullopt;
  EXPECT_EQ(result.consumed, bytes.size());
  return ParsePacket(result.frame);
}

TEST(GatewayProtocol, WhatIsWrittenIsRead) {
  const Move move{.sequence = 0xfffffffe,
                  .x = INT32_MIN,
                  .y = INT32_MAX,
                  .sent_at = UINT64_MAX - 1};
  const std::string moved = Framed(Payload::MoveOf(Command::kMoved, move));
  std::optional<Packet> packet = Decode(moved);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->command, Command::kMoved);
  EXPECT_EQ(ParseMove(packet->body), move);

  const std::string login = Framed(Payload::Login(std::string(kMaxName, 'x')));
  packet = Decode(login);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->command, Command::kLogin);
  EXPECT_EQ(ParseLogin(packet->body), std::string(kMaxName, 'x'));

  const std::string in = Framed(Payload::LoggedIn(0xdeadbeef));
  packet = Decode(in);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->command, Command::kLoggedIn);
  EXPECT_EQ(ParseLoggedIn(packet->body), 0xdeadbeef);

  const std::string no =
      Framed(Payload::Refused(Command::kLogin, Why::kComeBack));
  packet = Decode(no);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->command, Command::kRefused);
  EXPECT_EQ(ParseRefused(packet->body),
            (Refusal{.command = Command::kLogin, .why = Why::kComeBack}));
}

TEST(GatewayProtocol, TheLongestPacketIsReadAndNoLonger) {
  std::string bytes = {static_cast<char>((kMaxPacket - 2) >> 8),
                       static_cast<char>((kMaxPacket - 2) & 0xff)};
  bytes += std::string(kMaxPacket - 2, 'x');
  EXPECT_TRUE(Decode(bytes));

  bytes[1] = static_cast<char>(bytes[1] + 1);
  DecodeState state;
  const DecodeResult result = MakeDecoder().Decode(bytes, state);
  EXPECT_EQ(result.code, DecodeCode::kError);
  EXPECT_EQ(result.fault.error, DecodeError::kTooLong);
}

TEST(GatewayProtocol, AFrameShorterThanACommandIsNone) {
  EXPECT_FALSE(ParsePacket(""));
  EXPECT_FALSE(ParsePacket("x"));
  EXPECT_TRUE(ParsePacket("xy"));
}

TEST(GatewayProtocol, BodiesOfTheWrongSizeAreNone) {
  EXPECT_FALSE(ParseLogin(""));
  EXPECT_FALSE(ParseLogin(std::string(kMaxName + 1, 'x')));
  for (const size_t size : {0u, 19u, 21u}) {
    EXPECT_FALSE(ParseMove(std::string(size, 'x'))) << size;
  }
  for (const size_t size : {0u, 3u, 5u}) {
    EXPECT_FALSE(ParseLoggedIn(std::string(size, 'x'))) << size;
    EXPECT_FALSE(ParseRefused(std::string(size, 'x'))) << size;
  }
}

TEST(GatewayProtocol, TheWorldHasEnds) {
  const Move inside{.sequence = 1, .x = 0, .y = kWorldSize - 1, .sent_at = 2};
  EXPECT_EQ(InsideTheWorld(inside), inside);
  EXPECT_EQ(
      InsideTheWorld({.sequence = 1, .x = -1, .y = kWorldSize, .sent_at = 2}),
      inside);
}

TEST(GatewayAccounts, KnowsNamesThatBeginWithALetter) {
  const Accounts accounts(std::chrono::milliseconds(0));
  ASSERT_TRUE(accounts("ann").ok());
  EXPECT_EQ(*accounts("ann"), Accounts::Number("ann"));
  EXPECT_NE(Accounts::Number("ann"), Accounts::Number("anna"));
  for (const char* name : {"", "!ann", "1", "\xff"}) {
    EXPECT_TRUE(absl::IsNotFound(accounts(name).status())) << name;
  }
}

}  // namespace
}  // namespace sluice::gateway
