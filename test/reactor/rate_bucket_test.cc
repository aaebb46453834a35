#include "reactor/internal/rate_bucket.h"

#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::internal {
namespace {

constexpr int64_t kSecond = kNanosPerSecond;
constexpr int64_t kForever = RateLimit::kForever;
// Somewhere in the life of a machine; CLOCK_MONOTONIC counts from boot.
constexpr int64_t kStart = 12'345 * kSecond + 678;

// How many single units can be taken now.
template <typename Bucket>
int TakeAll(Bucket& bucket, const RateLimit& limit, int64_t now,
            int bound = 1'000'000) {
  int taken = 0;
  while (taken < bound && bucket.TryTake(limit, 1, now)) ++taken;
  return taken;
}

TEST(RateBucketTest, NoLimitIsNoLimit) {
  const RateLimit none;
  EXPECT_FALSE(none.limited());
  RateBucket bucket;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(bucket.TryTake(none, int64_t{1} << 40, kStart));
  }
  EXPECT_EQ(bucket.Charge(none, int64_t{1} << 40, kStart), 0);
  EXPECT_EQ(bucket.WaitFor(none, int64_t{1} << 40, kStart), 0);
}

TEST(RateBucketTest, ABurstAndThenTheRate) {
  const RateLimit limit(10, 5);
  EXPECT_TRUE(limit.limited());
  EXPECT_EQ(limit.span(), kSecond / 2);
  EXPECT_EQ(limit.Nanos(3), 3 * kSecond / 10);
  EXPECT_EQ(limit.Units(3 * kSecond / 10), 3);
  RateBucket bucket;
  EXPECT_EQ(TakeAll(bucket, limit, kStart), 5);
  EXPECT_EQ(bucket.WaitFor(limit, 1, kStart), kSecond / 10);
  EXPECT_EQ(bucket.WaitFor(limit, 5, kStart), kSecond / 2);
  EXPECT_EQ(TakeAll(bucket, limit, kStart + kSecond / 10 - 1), 0);
  EXPECT_EQ(bucket.WaitFor(limit, 1, kStart + kSecond / 10 - 1), 1);
  EXPECT_EQ(TakeAll(bucket, limit, kStart + kSecond / 10), 1);
  EXPECT_EQ(TakeAll(bucket, limit, kStart + 3 * kSecond / 10), 2);
  // No more than the burst, however long it was quiet.
  EXPECT_EQ(TakeAll(bucket, limit, kStart + 1000 * kSecond), 5);
}

TEST(RateBucketTest, AllOrNothing) {
  const RateLimit limit(100, 10);
  RateBucket bucket;
  EXPECT_FALSE(bucket.TryTake(limit, 11, kStart));
  EXPECT_TRUE(bucket.TryTake(limit, 0, kStart));
  EXPECT_TRUE(bucket.TryTake(limit, 7, kStart));
  EXPECT_FALSE(bucket.TryTake(limit, 4, kStart));
  EXPECT_TRUE(bucket.TryTake(limit, 3, kStart));
  EXPECT_TRUE(bucket.TryTake(limit, 0, kStart));
  EXPECT_EQ(bucket.WaitFor(limit, 0, kStart), 0);
  EXPECT_EQ(bucket.WaitFor(limit, 11, kStart), kForever) << "never fits";
}

TEST(RateBucketTest, AWaitIsJustLongEnough) {
  std::mt19937_64 random(1);
  for (const double rate : {0.001, 0.7, 3.0, 1000.0, 12'345.678, 3e6, 7e8}) {
    const RateLimit limit(rate, 1000);
    RateBucket bucket;
    int64_t now = kStart;
    for (int i = 0; i < 1000; ++i) {
      const int64_t n = 1 + static_cast<int64_t>(random() % 1000);
      const int64_t wait = bucket.WaitFor(limit, n, now);
      if (wait > 0) {
        ASSERT_FALSE(bucket.TryTake(limit, n, now)) << rate;
        ASSERT_FALSE(bucket.TryTake(limit, n, now + wait - 1)) << rate;
        now += wait;
      }
      ASSERT_TRUE(bucket.TryTake(limit, n, now)) << rate;
    }
  }
}

TEST(RateBucketTest, ChargingMakesDebt) {
  const RateLimit limit(1000, 100);
  RateBucket bucket;
  EXPECT_EQ(bucket.Charge(limit, 60, kStart), 0);
  EXPECT_EQ(bucket.Charge(limit, 40, kStart), 0);
  // 500 more than there are: half a second of debt.
  EXPECT_EQ(bucket.Charge(limit, 500, kStart), kSecond / 2);
  EXPECT_FALSE(bucket.TryTake(limit, 1, kStart + kSecond / 2));
  EXPECT_EQ(bucket.WaitFor(limit, 1, kStart + kSecond / 2), kSecond / 1000);
  EXPECT_EQ(bucket.Charge(limit, 0, kStart + kSecond / 4), kSecond / 4);
  EXPECT_EQ(bucket.Charge(limit, 0, kStart + kSecond / 2), 0);
  EXPECT_EQ(TakeAll(bucket, limit, kStart + kSecond), 100);
}

TEST(RateBucketTest, WhatIsGivenBackIsThereAgain) {
  const RateLimit limit(10, 5);
  RateBucket bucket;
  EXPECT_EQ(TakeAll(bucket, limit, kStart), 5);
  bucket.GiveBack(limit, 2);
  EXPECT_EQ(TakeAll(bucket, limit, kStart), 2);
  // Never more than the burst.
  bucket.GiveBack(limit, 1000);
  EXPECT_EQ(TakeAll(bucket, limit, kStart), 5);
  RateBucket fresh;
  fresh.GiveBack(limit, 1000);
  EXPECT_EQ(TakeAll(fresh, limit, 0), 5);
}

// A coarse clock, or another thread's: it may stand behind.
TEST(RateBucketTest, AClockThatGoesBackGivesNothingAway) {
  const RateLimit limit(10, 5);
  RateBucket bucket;
  EXPECT_EQ(TakeAll(bucket, limit, kStart), 5);
  EXPECT_EQ(TakeAll(bucket, limit, kStart - kSecond / 100), 0);
  EXPECT_EQ(TakeAll(bucket, limit, 0), 0);
  EXPECT_EQ(TakeAll(bucket, limit, kStart + kSecond / 10), 1);
}

// What gets through over a long time is the rate, whoever asks how often.
TEST(RateBucketTest, OverALongTimeItIsTheRate) {
  std::mt19937_64 random(2);
  for (const double rate : {0.3, 1.0, 7.0, 999.0, 33'333.0, 1e6}) {
    for (const double burst : {1.0, 1.5, 10.0}) {
      const RateLimit limit(rate, burst);
      RateBucket bucket;
      int64_t now = kStart;
      const double seconds = 20'000 / rate;
      const int64_t end =
          kStart + static_cast<int64_t>(seconds * double{kSecond});
      int64_t taken = 0;
      while (now < end) {
        if (bucket.TryTake(limit, 1, now)) ++taken;
        // Often enough that the bucket never overflows.
        now += 1 + static_cast<int64_t>(
                       random() % static_cast<uint64_t>(kSecond / rate / 4));
      }
      const double exact = rate * seconds;
      EXPECT_LE(static_cast<double>(taken), exact * 1.002 + burst)
          << rate << " " << burst;
      // Between two askings a bucket of one may be full for a while.
      EXPECT_GE(static_cast<double>(taken),
                burst > 1.4 ? exact * 0.998 : exact * 0.85)
          << rate << " " << burst;
    }
  }
}

// A burst of whole units is that many, whatever a unit's time rounds to.
TEST(RateBucketTest, NoBurstIsShortOfItsLastUnit) {
  for (const double rate : {0.001, 0.3, 3.0, 6.0, 7.0, 11.0, 77'777.0, 1e6}) {
    for (const int burst : {1, 2, 3, 7, 100}) {
      const RateLimit limit(rate, burst);
      RateBucket bucket;
      EXPECT_EQ(TakeAll(bucket, limit, kStart), burst) << rate;
    }
  }
}

TEST(RateBucketTest, NothingOverflows) {
  constexpr int64_t kMost = int64_t{1} << 40;
  for (const double rate : {0.001, 1.0, 1e3, 1e9}) {
    for (const double burst : {1.0, 1e6, double{kMost}}) {
      for (const int64_t now : {int64_t{0}, kStart, kForever}) {
        const RateLimit limit(rate, burst);
        EXPECT_GT(limit.span(), 0);
        EXPECT_LE(limit.span(), kForever);
        RateBucket bucket;
        EXPECT_TRUE(bucket.TryTake(limit, 1, now));
        for (int i = 0; i < 100; ++i) {
          const int64_t debt = bucket.Charge(limit, kMost, now);
          ASSERT_GE(debt, 0);
          ASSERT_LE(debt, kForever);
          ASSERT_GT(bucket.full_at, now);
          const int64_t wait = bucket.WaitFor(limit, 1, now);
          ASSERT_GE(wait, 0);
          ASSERT_GE(wait, debt);
        }
        EXPECT_FALSE(bucket.TryTake(limit, kMost, now));
        for (int i = 0; i < 101; ++i) bucket.GiveBack(limit, kMost);
        EXPECT_GE(bucket.full_at, 0);
        EXPECT_TRUE(bucket.TryTake(limit, 1, now));
      }
    }
  }
  // The whole of the largest burst that does not count as for ever.
  const RateLimit fast(1e9, double{kMost});
  RateBucket bucket;
  EXPECT_TRUE(bucket.TryTake(fast, kMost, kStart));
  EXPECT_FALSE(bucket.TryTake(fast, 1, kStart));
  EXPECT_EQ(bucket.WaitFor(fast, kMost, kStart), kMost);
}

// Threads that take from one bucket get what one thread would get.
TEST(SharedRateBucketTest, NoUnitIsTakenTwice) {
  const RateLimit limit(1000, 40'000);
  SharedRateBucket bucket;
  std::vector<int> taken(4);
  std::vector<std::thread> threads;
  for (int& mine : taken) {
    threads.emplace_back([&bucket, &limit, &mine] {
      for (int i = 0; i < 20'000; ++i) {
        if (!bucket.TryTake(limit, 1, kStart)) continue;
        // Every third one is not needed after all.
        if (i % 3 == 0) {
          bucket.GiveBack(limit, 1);
        } else {
          ++mine;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int sum = 0;
  for (const int mine : taken) sum += mine;
  EXPECT_LE(sum, 40'000);
  // A taking that found the bucket empty may have been given back since.
  EXPECT_EQ(sum + TakeAll(bucket, limit, kStart), 40'000);
  EXPECT_EQ(bucket.WaitFor(limit, 1, kStart), kSecond / 1000);
  EXPECT_EQ(bucket.Charge(limit, 1000, kStart), kSecond);
  EXPECT_FALSE(bucket.TryTake(limit, 1, kStart + kSecond));
  EXPECT_EQ(TakeAll(bucket, limit, kStart + 2 * kSecond), 1000);
}

}  // namespace
}  // namespace sluice::internal
