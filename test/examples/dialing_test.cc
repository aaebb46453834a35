// Source addresses, the pace of dials, and the slope of memory.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "examples/c1000k/dial_pacer.h"
#include "examples/c1000k/slope.h"
#include "examples/c1000k/source_addresses.h"
#include "reactor/address.h"

namespace sluice::c1000k {
namespace {

TEST(SourceAddress, BeginsAfterTheServersAndSkipsNetworksAndBroadcasts) {
  EXPECT_EQ(SourceAddress(0), "127.0.0.2");
  EXPECT_EQ(SourceAddress(1), "127.0.0.3");
  EXPECT_EQ(SourceAddress(252), "127.0.0.254");
  EXPECT_EQ(SourceAddress(253), "127.0.1.1");
  EXPECT_EQ(SourceAddress(kMaxSources - 1), "127.0.255.254");
}

TEST(SourceAddress, AreAllDifferentAndParse) {
  std::set<std::string> seen;
  for (size_t i = 0; i < kMaxSources; i += 97) {
    const std::string address = SourceAddress(i);
    EXPECT_TRUE(seen.insert(address).second) << address;
    EXPECT_TRUE(Address::Parse("tcp4://" + address + ":0").ok()) << address;
  }
}

TEST(SourcePicker, GivesEachItsShareInOrderAndThenNoMore) {
  SourcePicker picker(2, 3);
  for (const size_t expected : {0u, 0u, 0u, 1u, 1u, 1u}) {
    EXPECT_EQ(picker.Next(), expected);
  }
  EXPECT_EQ(picker.Next(), std::nullopt);
  EXPECT_EQ(picker.Next(), std::nullopt);
}

// B116: a source without ports is left, once, and the attempts are bounded.
TEST(SourcePicker, LeavesAnExhaustedSource) {
  SourcePicker picker(3, 10);
  EXPECT_EQ(picker.Next(), 0u);
  EXPECT_TRUE(picker.Exhausted(0));
  EXPECT_FALSE(picker.Exhausted(0));
  EXPECT_EQ(picker.Next(), 1u);
  EXPECT_FALSE(picker.Exhausted(0));  // a late report changes nothing
  EXPECT_EQ(picker.Next(), 1u);
  EXPECT_TRUE(picker.Exhausted(2));
  EXPECT_TRUE(picker.Exhausted(1));
  EXPECT_EQ(picker.Next(), std::nullopt);
}

TEST(SourcePicker, WithoutAnyPortItEndsAfterOneDialASource) {
  SourcePicker picker(50, 10'000);
  int dials = 0;
  while (const auto source = picker.Next()) {
    ++dials;
    picker.Exhausted(*source);
    ASSERT_LE(dials, 50);
  }
  EXPECT_EQ(dials, 50);
}

TEST(DialPacer, FillsTheWindowAndNoMore) {
  DialPacer pacer(100, 0);
  DialCounts counts;
  EXPECT_EQ(pacer.Take(1000, counts, 0), 100u);
  counts.issued = 100;
  EXPECT_EQ(pacer.Take(1000, counts, 0), 0u);
  // Connected, but not yet accepted: still in the listener's queue.
  counts.connected = 60;
  EXPECT_EQ(pacer.Take(1000, counts, 0), 0u);
  counts.server_opened = 50;
  EXPECT_EQ(pacer.Take(1000, counts, 0), 50u);
  EXPECT_EQ(pacer.Take(7, counts, 0), 7u);
  // A failed dial is on its way no more.
  counts.failed = 40;
  EXPECT_EQ(pacer.Take(1000, counts, 0), 90u);
}

TEST(DialPacer, TheServerMaySeeAConnectionFirst) {
  DialPacer pacer(10, 0);
  const DialCounts counts{
      .issued = 5, .connected = 3, .failed = 0, .server_opened = 5};
  EXPECT_EQ(pacer.Take(100, counts, 0), 8u);
}

TEST(DialPacer, KeepsToTheRate) {
  DialPacer pacer(1'000'000, 50);
  uint64_t made = 0;
  for (int ms = 0; ms <= 10'000; ms += 7) {
    made += pacer.Take(1000, {}, ms / 1000.0);
  }
  EXPECT_NEAR(static_cast<double>(made), 500, 5);
}

TEST(DialPacer, DoesNotMakeUpForALongPauseAtOnce) {
  DialPacer pacer(1'000'000, 1000);
  pacer.Take(1000, {}, 0);
  EXPECT_LE(pacer.Take(1'000'000, {}, 60), 100u);
}

TEST(DialPacer, ASlowRateStillMoves) {
  DialPacer pacer(100, 0.5);
  uint64_t made = 0;
  for (int ms = 0; ms <= 20'000; ++ms) {
    made += pacer.Take(100, {}, ms / 1000.0);
  }
  EXPECT_NEAR(static_cast<double>(made), 10, 1.5);
}

TEST(Slope, OfALineIsExactWhateverItsOffset) {
  Slope slope;
  for (int i = 0; i < 200; ++i) {
    const double x = 5'000.0 * i;
    slope.Add(x, 80 * x + 7.5e9);
  }
  ASSERT_TRUE(slope.value().has_value());
  EXPECT_NEAR(*slope.value(), 80, 1e-6);
}

TEST(Slope, StepsOfWholePagesAverageOut) {
  Slope slope;
  for (int x = 0; x <= 100'000; x += 391) {
    slope.Add(x, static_cast<double>(x * 64 / 4096 * 4096));
  }
  EXPECT_NEAR(slope.value().value(), 64, 0.1);
}

TEST(Slope, NeedsDifferentPointsAndEnoughOfThem) {
  Slope slope;
  EXPECT_FALSE(slope.value().has_value());
  slope.Add(1, 1);
  slope.Add(1, 2);
  EXPECT_FALSE(slope.value().has_value());
  slope.Add(2, 2);
  EXPECT_TRUE(slope.value().has_value());
  EXPECT_FALSE(slope.value(4).has_value());
}

}  // namespace
}  // namespace sluice::c1000k
