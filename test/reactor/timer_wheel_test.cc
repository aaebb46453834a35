#include "reactor/internal/timer_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace sluice::internal {
namespace {

constexpr uint32_t kNever = TimerWheel::kNever;

// The nodes, and how often the wheel asked for one.
struct Nodes {
  explicit Nodes(uint32_t slots) : nodes(slots + 1) {}
  static WheelNode& Find(void* context, uint32_t slot) {
    auto* self = static_cast<Nodes*>(context);
    ++self->finds;
    EXPECT_GT(slot, 0u);
    return self->nodes.at(slot);
  }
  std::vector<WheelNode> nodes;
  uint64_t finds = 0;
};

std::vector<uint32_t> Advance(TimerWheel& wheel, uint32_t now) {
  std::vector<uint32_t> expired;
  wheel.Advance(now, [&](uint32_t slot) { expired.push_back(slot); });
  return expired;
}

TEST(TimerWheel, StartsEmpty) {
  Nodes nodes(1);
  TimerWheel wheel(7, &Nodes::Find, &nodes);
  EXPECT_TRUE(wheel.empty());
  EXPECT_EQ(wheel.NextTick(), kNever);
  EXPECT_EQ(wheel.now(), 7u);
  wheel.Cancel(1);
  EXPECT_TRUE(Advance(wheel, 1'000'000).empty());
  EXPECT_EQ(wheel.now(), 1'000'000u);
}

TEST(TimerWheel, ExpiresAtItsTickAndNotBefore) {
  // Every edge between two levels, from starts at every kind of position.
  for (const uint32_t start : {0u, 1u, 63u, 64u, 4095u, 262'143u, 16'777'215u,
                               1'073'741'823u, 2'147'483'600u}) {
    for (const uint32_t edge : {1u, 64u, 4096u, 1u << 18, 1u << 24, 1u << 30}) {
      for (const int offset : {-65, -64, -63, -1, 0, 1, 63, 64, 65}) {
        const int64_t ahead = int64_t{edge} + offset;
        if (ahead < 1) continue;
        Nodes nodes(1);
        TimerWheel wheel(start, &Nodes::Find, &nodes);
        const uint32_t deadline = start + static_cast<uint32_t>(ahead);
        wheel.Set(1, deadline);
        ASSERT_EQ(nodes.nodes[1].deadline, deadline);
        ASSERT_TRUE(Advance(wheel, deadline - 1).empty())
            << start << " + " << ahead;
        ASSERT_EQ(Advance(wheel, deadline), std::vector<uint32_t>{1})
            << start << " + " << ahead;
        ASSERT_EQ(nodes.nodes[1].deadline, 0u);
        ASSERT_TRUE(wheel.empty());
      }
    }
  }
}

TEST(TimerWheel, WhatIsPastIsDueAtTheNextTick) {
  Nodes nodes(3);
  TimerWheel wheel(100, &Nodes::Find, &nodes);
  wheel.Set(1, 100);
  wheel.Set(2, 5);
  wheel.Set(3, 0);
  EXPECT_EQ(wheel.size(), 3u);
  EXPECT_EQ(wheel.NextTick(), 101u);
  EXPECT_TRUE(Advance(wheel, 100).empty());
  EXPECT_TRUE(Advance(wheel, 99).empty());  // time does not go back
  EXPECT_EQ(wheel.now(), 100u);
  EXPECT_EQ(Advance(wheel, 101).size(), 3u);
}

TEST(TimerWheel, TickZeroIsNotLost) {
  Nodes nodes(1);
  TimerWheel wheel(0, &Nodes::Find, &nodes);
  wheel.Set(1, 0);
  EXPECT_NE(nodes.nodes[1].deadline, 0u);
  EXPECT_EQ(wheel.size(), 1u);
  EXPECT_EQ(Advance(wheel, 1).size(), 1u);
}

TEST(TimerWheel, GoesOnWhenTicksWrapRound) {
  for (uint32_t back = 1; back <= 130; ++back) {
    for (uint32_t ahead = 1; ahead <= 200; ++ahead) {
      Nodes nodes(1);
      TimerWheel wheel(0u - back, &Nodes::Find, &nodes);
      uint32_t due = 0u - back + ahead;
      wheel.Set(1, due);
      if (due == kNever || due == 0) due = 1;  // these two are put off
      const uint32_t next = wheel.NextTick();
      ASSERT_NE(next, kNever);
      ASSERT_LE(next + back, due + back);
      ASSERT_TRUE(Advance(wheel, due - 1).empty()) << back << ' ' << ahead;
      ASSERT_EQ(Advance(wheel, due).size(), 1u) << back << ' ' << ahead;
    }
  }
}

TEST(TimerWheel, SetMovesAndCancelTakesOut) {
  Nodes nodes(2);
  TimerWheel wheel(1, &Nodes::Find, &nodes);
  wheel.Set(1, 10);
  wheel.Set(2, 10);
  wheel.Set(1, 100'000);
  EXPECT_EQ(wheel.size(), 2u);
  wheel.Cancel(2);
  wheel.Cancel(2);
  EXPECT_EQ(wheel.size(), 1u);
  EXPECT_TRUE(Advance(wheel, 99'999).empty());
  wheel.Set(1, 100'001);
  EXPECT_TRUE(Advance(wheel, 100'000).empty());
  EXPECT_EQ(Advance(wheel, 100'001).size(), 1u);
}

TEST(TimerWheel, CancelLooksAtNeighboursOnly) {
  constexpr uint32_t kSlots = 10'000;
  Nodes nodes(kSlots);
  TimerWheel wheel(1, &Nodes::Find, &nodes);
  for (uint32_t s = 1; s <= kSlots; ++s) wheel.Set(s, 5000);
  std::vector<uint32_t> order(kSlots);
  for (uint32_t s = 1; s <= kSlots; ++s) order[s - 1] = s;
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  for (const uint32_t s : order) {
    nodes.finds = 0;
    wheel.Cancel(s);
    ASSERT_LE(nodes.finds, 3u);
  }
  EXPECT_TRUE(wheel.empty());
  EXPECT_EQ(wheel.NextTick(), kNever);
}

TEST(TimerWheel, AnIdleStretchCostsAFewWakeUps) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t start = static_cast<uint32_t>(random());
    const uint32_t ahead = (static_cast<uint32_t>(random()) >> 1) >>
                           std::uniform_int_distribution<int>(0, 30)(random);
    Nodes nodes(1);
    TimerWheel wheel(start, &Nodes::Find, &nodes);
    wheel.Set(1, start + std::max(ahead, 1u));
    const uint32_t due = nodes.nodes[1].deadline;
    int wakes = 0;
    while (!wheel.empty()) {
      const uint32_t next = wheel.NextTick();
      ASSERT_NE(next, kNever);
      ASSERT_NE(next, wheel.now());
      ASSERT_LE(next - wheel.now(), due - wheel.now());
      Advance(wheel, next);
      // One a level, and up to 3 looks at a deadline beyond the last of them.
      ASSERT_LE(++wakes, TimerWheel::kLevels + 3) << start << " + " << ahead;
    }
    ASSERT_EQ(wheel.now(), due);
  }
}

TEST(TimerWheel, AJumpTouchesANodeOnceALevel) {
  constexpr uint32_t kSlots = 1000;
  Nodes nodes(kSlots);
  TimerWheel wheel(1, &Nodes::Find, &nodes);
  std::mt19937 random(9);
  for (uint32_t s = 1; s <= kSlots; ++s) {
    wheel.Set(s, 1 + (static_cast<uint32_t>(random()) >> 2));
  }
  nodes.finds = 0;
  EXPECT_EQ(Advance(wheel, 0x7fffffff).size(), kSlots);
  // Dealing out finds the node and the one it is put before, expiring the node
  // and the one behind it.
  EXPECT_LE(nodes.finds,
            uint64_t{kSlots} * (2 * (TimerWheel::kLevels - 1) + 2));
}

TEST(TimerWheel, ANodeThatIsSetAgainWhileItExpiresWaitsForTheNextCall) {
  Nodes nodes(1);
  TimerWheel wheel(1, &Nodes::Find, &nodes);
  wheel.Set(1, 2);
  int runs = 0;
  for (uint32_t now = 1'000'000; now <= 5'000'000; now += 1'000'000) {
    wheel.Advance(now, [&](uint32_t slot) {
      ++runs;
      EXPECT_EQ(wheel.now(), now);
      EXPECT_EQ(nodes.nodes[slot].deadline, 0u);  // already out
      wheel.Set(slot, runs % 2 == 0 ? 0 : now);
    });
    EXPECT_EQ(wheel.NextTick(), now + 1);
  }
  EXPECT_EQ(runs, 5);
}

TEST(TimerWheel, OneThatExpiresMayCancelOthersOfTheSameTick) {
  Nodes nodes(64);
  TimerWheel wheel(1, &Nodes::Find, &nodes);
  for (uint32_t s = 1; s <= 64; ++s) wheel.Set(s, 500);
  int runs = 0;
  wheel.Advance(500, [&](uint32_t slot) {
    ++runs;
    for (uint32_t s = 1; s <= 64; ++s) {
      if (s % 2 == slot % 2) wheel.Cancel(s);
    }
  });
  EXPECT_EQ(runs, 2);  // one odd, one even
  EXPECT_TRUE(wheel.empty());
}

// Random steps beside a multimap. Ticks count in 64 bits here, the wheel sees
// the low 32 of them.
class Model {
 public:
  static constexpr uint32_t kSlots = 200;

  Model(uint64_t start, uint32_t seed)
      : random_(seed),
        now_(start),
        nodes_(kSlots),
        wheel_(static_cast<uint32_t>(start), &Nodes::Find, &nodes_) {}

  void Step() {
    const uint32_t what = Below(10);
    if (what < 6) {
      Set(Slot());
    } else if (what < 8) {
      Cancel(Slot());
    } else {
      Advance();
    }
    Check();
  }

  uint64_t expired() const { return expired_; }
  uint64_t now() const { return now_; }

 private:
  uint32_t Below(uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_);
  }
  uint32_t Slot() { return 1 + Below(kSlots); }
  // Of any size from 0 to 2^31 - 1, each number of bits as likely.
  uint64_t Distance() {
    return (static_cast<uint32_t>(random_()) >> 1) >> Below(32);
  }

  void Erase(uint32_t slot) {
    const auto it = where_.find(slot);
    if (it == where_.end()) return;
    const auto [first, last] = model_.equal_range(it->second);
    for (auto at = first; at != last; ++at) {
      if (at->second == slot) {
        model_.erase(at);
        break;
      }
    }
    where_.erase(it);
  }

  void Set(uint32_t slot) {
    const uint64_t back = Below(4) == 0 ? Below(100) : 0;
    uint64_t deadline = now_ + Distance();
    if (back > 0) deadline = now_ - std::min(now_, back);
    wheel_.Set(slot, static_cast<uint32_t>(deadline));
    deadline = std::max(deadline, now_ + 1);
    if (static_cast<uint32_t>(deadline) == kNever) ++deadline;
    if (static_cast<uint32_t>(deadline) == 0) ++deadline;
    Erase(slot);
    model_.emplace(deadline, slot);
    where_[slot] = deadline;
  }

  void Cancel(uint32_t slot) {
    wheel_.Cancel(slot);
    Erase(slot);
  }

  void Advance() {
    uint64_t to = now_ + Distance();
    if (Below(3) == 0 && !model_.empty()) to = model_.begin()->first;
    if (Below(5) == 0 && !model_.empty()) to = model_.begin()->first - 1;
    if (to - now_ >= uint64_t{1} << 31) to = now_ + 1;
    now_ = to;
    wheel_.Advance(static_cast<uint32_t>(to), [&](uint32_t slot) {
      ++expired_;
      ASSERT_FALSE(model_.empty());
      ASSERT_EQ(where_.count(slot), 1u);
      ASSERT_LE(where_[slot], now_) << "early";
      ASSERT_EQ(where_[slot], model_.begin()->first) << "out of order";
      Erase(slot);
      if (Below(3) == 0) Set(slot);
      if (Below(3) == 0) Set(Slot());
      if (Below(3) == 0) Cancel(Slot());
    });
    if (!model_.empty()) {
      ASSERT_GT(model_.begin()->first, now_) << "late";
    }
  }

  void Check() {
    ASSERT_EQ(wheel_.now(), static_cast<uint32_t>(now_));
    ASSERT_EQ(wheel_.size(), model_.size());
    if (model_.empty()) {
      ASSERT_EQ(wheel_.NextTick(), kNever);
      return;
    }
    const uint32_t next = wheel_.NextTick();
    ASSERT_NE(next, kNever);
    ASSERT_GE(next - wheel_.now(), 1u);
    ASSERT_LE(next - wheel_.now(), model_.begin()->first - now_);
  }

  std::mt19937 random_;
  uint64_t now_;
  uint64_t expired_ = 0;
  std::multimap<uint64_t, uint32_t> model_;
  std::map<uint32_t, uint64_t> where_;
  Nodes nodes_;
  TimerWheel wheel_;
};

TEST(TimerWheel, AgreesWithAMultimap) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const uint64_t starts[] = {0, 1, 12'345, 0xffffff00};
    Model model(starts[seed % 4], seed);
    for (int step = 0; step < 5000; ++step) {
      ASSERT_NO_FATAL_FAILURE(model.Step())
          << "seed " << seed << " step " << step;
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(model.expired(), 500u);
    EXPECT_GT(model.now(), uint64_t{1} << 33);  // went round twice
  }
}

}  // namespace
}  // namespace sluice::internal
