#include "examples/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace sluice::examples {
namespace {

TEST(Histogram, EmptyHasNoQuantiles) {
  Histogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(h.Quantile(0.5), 0u);
}

TEST(Histogram, BucketsJoinWithoutGapOrOverlap) {
  const size_t last = Histogram::BucketOf(Histogram::kHighest);
  EXPECT_EQ(Histogram::BucketOf(0), 0u);
  for (size_t b = 0; b < last; ++b) {
    const uint64_t edge = Histogram::UpperEdge(b);
    ASSERT_EQ(Histogram::BucketOf(edge), b) << edge;
    ASSERT_EQ(Histogram::BucketOf(edge + 1), b + 1) << edge;
  }
  EXPECT_EQ(Histogram::BucketOf(UINT64_MAX), last);
}

TEST(Histogram, ThreeSignificantDigits) {
  for (uint64_t v = 1; v < Histogram::kHighest; v += v / 7 + 1) {
    const uint64_t edge = Histogram::UpperEdge(Histogram::BucketOf(v));
    ASSERT_GE(edge, v);
    ASSERT_LE(static_cast<double>(edge - v), static_cast<double>(v) / 1000)
        << v;
  }
}

TEST(Histogram, QuantilesOfKnownValues) {
  Histogram h;
  for (uint64_t v = 1; v <= 1000; ++v) h.Record(v);
  EXPECT_EQ(h.count(), 1000u);
  EXPECT_EQ(h.Quantile(0), 1u);
  EXPECT_EQ(h.Quantile(0.5), 500u);
  EXPECT_EQ(h.Quantile(0.99), 990u);
  EXPECT_EQ(h.Quantile(0.999), 999u);
  EXPECT_EQ(h.Quantile(1), 1000u);
}

TEST(Histogram, QuantilesAgreeWithSorting) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> spread(6, 2);
  Histogram h;
  std::vector<uint64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    const auto v = static_cast<uint64_t>(spread(random));
    values.push_back(v);
    h.Record(v);
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.5, 0.9, 0.99, 0.999}) {
    const auto rank = static_cast<size_t>(q * 20'000) - 1;
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(static_cast<double>(h.Quantile(q)), exact, exact / 500 + 1)
        << q;
  }
  EXPECT_EQ(h.max(), values.back());
}

TEST(Histogram, BeyondTheRangeTheMaximumIsExact) {
  Histogram h;
  h.Record(5);
  h.Record(90'000'000);
  EXPECT_EQ(h.max(), 90'000'000u);
  EXPECT_EQ(h.Quantile(1), 90'000'000u);
  EXPECT_EQ(h.Quantile(0.5), 5u);
}

TEST(Histogram, MergeLosesNothing) {
  Histogram a;
  Histogram b;
  Histogram both;
  for (uint64_t v = 1; v < 2'000'000; v += v / 3 + 1) {
    (v % 2 == 0 ? a : b).Record(v);
    both.Record(v);
  }
  Histogram sum;
  sum.Merge(a);
  sum.Merge(b);
  EXPECT_EQ(sum.count(), both.count());
  EXPECT_EQ(sum.max(), both.max());
  for (double q = 0; q <= 1; q += 0.01) {
    EXPECT_EQ(sum.Quantile(q), both.Quantile(q)) << q;
  }
}

TEST(Histogram, MayBeReadWhileItIsWritten) {
  Histogram h;
  std::thread writer([&h] {
    for (uint64_t v = 0; v < 50'000; ++v) h.Record(v);
  });
  for (int i = 0; i < 20; ++i) {
    Histogram copy;
    copy.Merge(h);
    EXPECT_LE(copy.Quantile(0.5), copy.max());
  }
  writer.join();
  EXPECT_EQ(h.count(), 50'000u);
}

}  // namespace
}  // namespace sluice::examples
