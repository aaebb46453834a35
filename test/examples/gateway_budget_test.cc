// How many packets a connection may send, by a clock of our own.
#include <gtest/gtest.h>

#include <chrono>

#include "examples/gateway/packet_budget.h"

namespace sluice::gateway {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr Clock::time_point kStart{hours(1)};

int TakeAll(PacketBudget& budget, const PacketRate& rate,
            Clock::time_point now) {
  int taken = 0;
  while (taken < 1'000'000 && budget.Take(rate, now)) ++taken;
  return taken;
}

TEST(PacketBudget, ABurstAndThenTheRate) {
  const PacketRate rate{.per_second = 100, .burst = 20};
  PacketBudget budget;
  EXPECT_EQ(TakeAll(budget, rate, kStart), 20);
  EXPECT_EQ(TakeAll(budget, rate, kStart + milliseconds(9)), 0);
  EXPECT_EQ(TakeAll(budget, rate, kStart + milliseconds(10)), 1);
  EXPECT_EQ(TakeAll(budget, rate, kStart + milliseconds(55)), 4);
  // Half a token was left; nothing is lost by asking often.
  EXPECT_EQ(TakeAll(budget, rate, kStart + milliseconds(60)), 1);
}

TEST(PacketBudget, KeepsNoMoreThanTheBurst) {
  const PacketRate rate{.per_second = 100, .burst = 20};
  PacketBudget budget;
  TakeAll(budget, rate, kStart);
  EXPECT_EQ(TakeAll(budget, rate, kStart + hours(10)), 20);
}

TEST(PacketBudget, TheLongRunIsTheRate) {
  const PacketRate rate{.per_second = 100, .burst = 7};
  PacketBudget budget;
  int taken = 0;
  for (int ms = 0; ms <= 10'000; ms += 2) {  // 500 tries a second
    taken += budget.Take(rate, kStart + milliseconds(ms)) ? 1 : 0;
  }
  EXPECT_EQ(taken, 7 + 1'000);
}

TEST(PacketBudget, SaysHowLongToWait) {
  const PacketRate rate{.per_second = 100, .burst = 20};
  PacketBudget budget;
  EXPECT_EQ(budget.Wait(rate, 20, kStart), nanoseconds(0));
  TakeAll(budget, rate, kStart);
  EXPECT_EQ(budget.Wait(rate, 1, kStart), milliseconds(10));
  EXPECT_EQ(budget.Wait(rate, 5, kStart), milliseconds(50));
  EXPECT_EQ(budget.Wait(rate, 5, kStart + milliseconds(20)), milliseconds(30));
  EXPECT_EQ(budget.Wait(rate, 5, kStart + seconds(1)), milliseconds(0));
  // More than there ever are: until the bucket is full.
  EXPECT_EQ(budget.Wait(rate, 1'000, kStart), milliseconds(200));
  // What it says is exact.
  EXPECT_FALSE(budget.Take(rate, kStart + milliseconds(10) - nanoseconds(1)));
  EXPECT_TRUE(budget.Take(rate, kStart + milliseconds(10)));
}

TEST(PacketBudget, ABurstOfOne) {
  const PacketRate rate{.per_second = 1, .burst = 1};
  PacketBudget budget;
  EXPECT_EQ(TakeAll(budget, rate, kStart), 1);
  EXPECT_EQ(TakeAll(budget, rate, kStart + milliseconds(999)), 0);
  EXPECT_EQ(TakeAll(budget, rate, kStart + seconds(1)), 1);
}

TEST(PacketBudget, NoLimit) {
  const PacketRate rate{.per_second = 0, .burst = 1};
  PacketBudget budget;
  EXPECT_EQ(TakeAll(budget, rate, kStart), 1'000'000);
  EXPECT_EQ(budget.Wait(rate, 1, kStart), nanoseconds(0));
}

}  // namespace
}  // namespace sluice::gateway
