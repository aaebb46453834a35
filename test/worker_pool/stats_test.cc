// The histogram of times in the queue.

#include "worker_pool/stats.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

TEST(QueueTimesTest, BucketsAreInOrderAndNarrow) {
  size_t last = 0;
  for (uint64_t ns = 0; ns < (uint64_t{1} << 20); ++ns) {
    const size_t bucket = QueueTimes::Bucket(ns);
    ASSERT_TRUE(bucket == last || bucket == last + 1) << ns;
    last = bucket;
    ASSERT_GE(QueueTimes::UpperEdge(bucket), ns);
    ASSERT_LE(QueueTimes::UpperEdge(bucket), ns + ns / 16);
  }
  for (int bit = 20; bit < QueueTimes::kTopBit; ++bit) {
    const uint64_t ns = (uint64_t{1} << bit) + 12345;
    const uint64_t edge = QueueTimes::UpperEdge(QueueTimes::Bucket(ns));
    EXPECT_GE(edge, ns);
    EXPECT_LE(edge, ns + ns / 16);
  }
  EXPECT_EQ(QueueTimes::Bucket(UINT64_MAX), QueueTimes::kBuckets - 1);
  EXPECT_LT(QueueTimes::Bucket((uint64_t{1} << QueueTimes::kTopBit) - 1),
            QueueTimes::kBuckets);
}

TEST(QueueTimesTest, Percentiles) {
  QueueTimes times;
  EXPECT_EQ(times.Percentile(0.5), nanoseconds(0));
  for (uint64_t ns = 1; ns <= 1000; ++ns) {
    times.Add(QueueTimes::Bucket(ns), 1);
    times.RaiseMax(nanoseconds(static_cast<int64_t>(ns)));
  }
  EXPECT_EQ(times.count(), 1000u);
  EXPECT_EQ(times.max(), nanoseconds(1000));
  EXPECT_EQ(times.Percentile(1), nanoseconds(1000));
  EXPECT_EQ(times.Percentile(0), nanoseconds(1));
  EXPECT_GE(times.Percentile(0.5), nanoseconds(500));
  EXPECT_LE(times.Percentile(0.5), nanoseconds(532));
  EXPECT_GE(times.Percentile(0.99), nanoseconds(990));
}

TEST(QueueTimesTest, WhatIsLongerThanTheLastEdgeIsStillExactAtTheTop) {
  QueueTimes times;
  const nanoseconds long_ago = std::chrono::hours(30);
  times.Add(QueueTimes::Bucket(static_cast<uint64_t>(long_ago.count())), 1);
  times.RaiseMax(long_ago);
  EXPECT_EQ(times.Percentile(0.5), long_ago);
}

}  // namespace
}  // namespace sluice
