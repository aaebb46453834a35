#include "reactor/internal/broadcast_pace.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"
#include "reactor/internal/clock.h"

namespace sluice::internal {
namespace {

using std::chrono::milliseconds;

// How many sends of `bytes` go in `seconds` if each goes as soon as it may.
int SendsIn(BroadcastPace pace, double seconds, size_t bytes) {
  int64_t now = 1'000'000;
  const int64_t end = now + static_cast<int64_t>(
                                seconds * static_cast<double>(kNanosPerSecond));
  int sends = 0;
  while (now < end) {
    const int64_t wait = pace.Wait(now);
    if (wait == 0) {
      pace.Sent(bytes, now);
      ++sends;
    } else {
      now += wait;
    }
  }
  return sends;
}

TEST(BroadcastPaceTest, NoneIsNoLimit) {
  BroadcastPace pace;
  EXPECT_FALSE(pace.limited());
  EXPECT_EQ(pace.Wait(1), 0);
}

TEST(BroadcastPaceTest, SendsASecondBehindTheBurst) {
  const int sends = SendsIn(BroadcastPace(1000, 0, 128), 2.0, 64);
  EXPECT_NEAR(sends, 2128, 2);
}

// Each message holds a page at least; a long one as many as it fills.
TEST(BroadcastPaceTest, PagesASecond) {
  EXPECT_NEAR(SendsIn(BroadcastPace(0, 1000, 1), 2.0, 64), 2001, 2);
  EXPECT_NEAR(SendsIn(BroadcastPace(0, 1000, 1), 2.0, 4097), 1001, 2);
}

TEST(BroadcastPaceTest, TheStricterOneCounts) {
  EXPECT_NEAR(SendsIn(BroadcastPace(500, 1000, 1), 2.0, 64), 1001, 2);
  EXPECT_NEAR(SendsIn(BroadcastPace(1000, 500, 1), 2.0, 64), 1001, 2);
}

TEST(BroadcastPaceTest, HalfOfThePressureMarkInARoundTrip) {
  const absl::StatusOr<double> pages =
      BroadcastPace::PagesPerSecond("94101\t125469\t188202", milliseconds(500));
  ASSERT_TRUE(pages.ok()) << pages.status().ToString();
  EXPECT_DOUBLE_EQ(*pages, 125469);
}

TEST(BroadcastPaceTest, WhatIsNotTcpMemIsRefused) {
  for (const char* text : {"", "1 2", "a b c", "1 0 3", "-1 2 3"}) {
    const absl::StatusOr<double> pages =
        BroadcastPace::PagesPerSecond(text, milliseconds(1));
    EXPECT_TRUE(absl::IsInvalidArgument(pages.status())) << text;
    EXPECT_NE(pages.status().ToString().find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::internal
