#include "examples/c1000k/heartbeat.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace sluice::c1000k {
namespace {

std::string Bytes(const Heartbeat& h) {
  const HeartbeatBytes bytes = EncodeHeartbeat(h);
  return std::string(bytes.data(), bytes.size());
}

TEST(Heartbeat, ComesBackAsItWentOut) {
  for (const auto kind :
       {Heartbeat::Kind::kPaced, Heartbeat::Kind::kRollCall}) {
    const Heartbeat h{.kind = kind,
                      .connection = ConnectionId(51, 19'230),
                      .sent_ns = 123'456'789'012'345};
    EXPECT_EQ(DecodeHeartbeat(Bytes(h)), h);
  }
}

TEST(Heartbeat, AnyChangedBitIsNoticed) {
  const std::string good =
      Bytes({.connection = ConnectionId(1, 7), .sent_ns = 99});
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(DecodeHeartbeat(bad).has_value()) << i << " bit " << bit;
    }
  }
}

TEST(Heartbeat, WrongLengthIsNoHeartbeat) {
  const std::string good = Bytes({.connection = 1, .sent_ns = 2});
  EXPECT_FALSE(DecodeHeartbeat("").has_value());
  EXPECT_FALSE(DecodeHeartbeat(good.substr(1)).has_value());
  EXPECT_FALSE(DecodeHeartbeat(good + "x").has_value());
}

TEST(Heartbeat, NeighboursHaveDifferentPatterns) {
  std::set<std::string> patterns;
  for (uint64_t connection = 0; connection < 100; ++connection) {
    for (uint64_t sent = 0; sent < 10; ++sent) {
      patterns.insert(
          Bytes({.connection = connection, .sent_ns = sent}).substr(24));
    }
  }
  EXPECT_EQ(patterns.size(), 1000u);
}

TEST(Heartbeat, ConnectionIdsKeepBothParts) {
  const uint64_t id = ConnectionId(1023, 999'999);
  EXPECT_EQ(LaneOf(id), 1023u);
  EXPECT_EQ(IndexOf(id), 999'999u);
}

}  // namespace
}  // namespace sluice::c1000k
