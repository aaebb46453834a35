#include "reactor/internal/connection_slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/process_info.h"
#include "test/support/sanitizers.h"

namespace sluice::internal {
namespace {

// Slot 0 of each chunk is its header.
constexpr uint32_t kUsable = ConnectionSlab::kSlotsPerChunk - 1;
constexpr size_t kChunk = ConnectionSlab::kChunkBytes;

class ConnectionSlabTest : public ::testing::Test {
 protected:
  void Reserve(size_t connections) {
    const absl::Status reserved = slab_.Reserve(nullptr, connections);
    ASSERT_TRUE(reserved.ok()) << reserved.ToString();
  }
  Connection* Add() { return slab_.Allocate(++generation_); }
  std::vector<Connection*> Add(size_t count) {
    std::vector<Connection*> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(Add());
      EXPECT_NE(all.back(), nullptr) << i;
    }
    return all;
  }
  void Free(const std::vector<Connection*>& all) {
    for (Connection* one : all) slab_.Free(one);
  }
  // As a walk finds them.
  std::vector<Connection*> Live() {
    std::vector<Connection*> live;
    uint32_t slot = 0;
    while (Connection* one = slab_.NextLive(&slot)) live.push_back(one);
    return live;
  }
  static uint32_t ChunkOf(uint32_t slot) {
    return slot / ConnectionSlab::kSlotsPerChunk;
  }

  ConnectionSlab slab_;
  uint32_t generation_ = 0;
};

TEST_F(ConnectionSlabTest, EmptyHoldsNothing) {
  EXPECT_EQ(slab_.live(), 0u);
  EXPECT_EQ(slab_.resident_bytes(), 0u);
  EXPECT_TRUE(Live().empty());
  EXPECT_FALSE(slab_.IsCurrent(1, 1));
  Reserve(1'000'000);
  EXPECT_EQ(slab_.resident_bytes(), 0u) << "addresses are not memory";
  EXPECT_TRUE(Live().empty());
  EXPECT_FALSE(slab_.IsCurrent(1, 1));
  EXPECT_FALSE(slab_.IsCurrent(UINT32_MAX, 1));
}

TEST_F(ConnectionSlabTest, GrowsChunkByChunk) {
  Reserve(10 * kUsable);
  std::set<Connection*> addresses;
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i < 5 * kUsable; ++i) {
    Connection* one = Add();
    ASSERT_NE(one, nullptr);
    ASSERT_TRUE(addresses.insert(one).second) << "given out twice";
    const uint32_t slot = slab_.SlotOf(*one);
    ASSERT_TRUE(slots.insert(slot).second);
    ASSERT_NE(slot % ConnectionSlab::kSlotsPerChunk, 0u) << "a chunk's header";
    ASSERT_EQ(slab_.At(slot), one);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(one) % 64, 0u);
    ASSERT_EQ(one->fd(), -1);
    ASSERT_FALSE(one->has_context());
    ASSERT_EQ(slab_.live(), i + 1);
    ASSERT_EQ(slab_.resident_bytes(), (i / kUsable + 1) * kChunk);
  }
  Free({addresses.begin(), addresses.end()});
}

TEST_F(ConnectionSlabTest, FullIsNull) {
  Reserve(2 * kUsable - 1);
  std::vector<Connection*> all;
  while (Connection* one = Add()) {
    all.push_back(one);
    ASSERT_LE(all.size(), 10 * kUsable) << "it has no end";
  }
  EXPECT_GE(all.size(), 2 * kUsable - 1) << "less than was reserved";
  EXPECT_EQ(Add(), nullptr);
  // One that goes makes room for one.
  slab_.Free(all.back());
  all.back() = Add();
  EXPECT_NE(all.back(), nullptr);
  EXPECT_EQ(Add(), nullptr);
  Free(all);
  EXPECT_EQ(slab_.live(), 0u);
}

TEST_F(ConnectionSlabTest, OneIsFoundByItsGenerationOnly) {
  Reserve(100);
  Connection* first = slab_.Allocate(7);
  const uint32_t slot = slab_.SlotOf(*first);
  EXPECT_TRUE(slab_.IsCurrent(slot, 7));
  EXPECT_EQ(slab_.Find(slot, 7), first);
  EXPECT_EQ(slab_.Find(slot, 6), nullptr);
  EXPECT_EQ(slab_.Find(slot, 8), nullptr);
  EXPECT_EQ(slab_.Find(slot, 0), nullptr);
  EXPECT_EQ(slab_.Find(slot + 1, 7), nullptr);
  EXPECT_EQ(slab_.Find(UINT32_MAX, 7), nullptr);
  slab_.Free(first);
  EXPECT_FALSE(slab_.IsCurrent(slot, 7));
  EXPECT_FALSE(slab_.IsCurrent(slot, 0)) << "generation 0 is nobody's";
  // The same place, another connection.
  Connection* second = slab_.Allocate(8);
  ASSERT_EQ(slab_.SlotOf(*second), slot) << "the slot freed last is used first";
  EXPECT_EQ(slab_.Find(slot, 7), nullptr);
  EXPECT_EQ(slab_.Find(slot, 8), second);
  slab_.Free(second);
}

TEST_F(ConnectionSlabTest, TheHeaderOfAChunkIsNobody) {
  Reserve(3 * kUsable);
  const std::vector<Connection*> all = Add(3 * kUsable);
  for (uint32_t chunk = 0; chunk < 3; ++chunk) {
    const uint32_t slot = chunk * ConnectionSlab::kSlotsPerChunk;
    for (uint32_t generation = 0; generation < 3; ++generation) {
      EXPECT_FALSE(slab_.IsCurrent(slot, generation));
    }
  }
  Free(all);
}

TEST_F(ConnectionSlabTest, TheOwnerIsFoundFromTheConnection) {
  auto* owner = reinterpret_cast<ReactorImpl*>(uintptr_t{0x1000});
  ASSERT_TRUE(slab_.Reserve(owner, 3 * kUsable).ok());
  std::vector<Connection*> all = Add(3 * kUsable);
  for (Connection* one : all) ASSERT_EQ(&ConnectionSlab::OwnerOf(*one), owner);
  // In a chunk that came back, too.
  Free(all);
  all = Add(3 * kUsable);
  for (Connection* one : all) ASSERT_EQ(&ConnectionSlab::OwnerOf(*one), owner);
  Free(all);
}

TEST_F(ConnectionSlabTest, EmptyChunksGiveTheirMemoryBack) {
  constexpr size_t kChunks = 400;  // 26 MB
  Reserve(kChunks * kUsable);
  const std::vector<Connection*> all = Add(kChunks * kUsable);
  EXPECT_EQ(slab_.resident_bytes(), kChunks * kChunk);
  const size_t rss_full = test::RssBytes();
  // The first half, the last ones first.
  const std::vector<Connection*> half(all.begin(),
                                      all.begin() + all.size() / 2);
  for (auto one = half.rbegin(); one != half.rend(); ++one) slab_.Free(*one);
  EXPECT_EQ(slab_.live(), all.size() / 2);
  EXPECT_LE(slab_.resident_bytes(), (kChunks / 2 + 1) * kChunk);
  const size_t rss_half = test::RssBytes();
  // TSan's own memory grows meanwhile; the next test asks the kernel instead.
  if (!test::kTsan) {
    EXPECT_LT(rss_half + kChunks / 4 * kChunk, rss_full);
  }
  // In no order at all.
  std::vector<Connection*> rest(all.begin() + all.size() / 2, all.end());
  std::shuffle(rest.begin(), rest.end(), std::mt19937(1));
  Free(rest);
  EXPECT_EQ(slab_.live(), 0u);
  EXPECT_EQ(slab_.resident_bytes(), kChunk) << "one stays for the next";
  if (!test::kTsan) {
    EXPECT_LT(test::RssBytes() + kChunks / 4 * kChunk, rss_half);
  }
}

// The kernel says which pages of the mapping hold memory.
TEST_F(ConnectionSlabTest, AGivenBackChunkHoldsNoPage) {
  Reserve(4 * kUsable);
  const std::vector<Connection*> all = Add(4 * kUsable);
  Free(all);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_core(4 * kChunk / page);
  ASSERT_EQ(mincore(slab_.At(0), 4 * kChunk, in_core.data()), 0);
  size_t resident = 0;
  for (const unsigned char one : in_core) resident += one & 1;
  EXPECT_LE(resident * page, kChunk);
}

TEST_F(ConnectionSlabTest, GivenBackChunksAreUsedAgain) {
  constexpr size_t kChunks = 8;
  Reserve(kChunks * kUsable);
  for (int round = 0; round < 20; ++round) {
    std::vector<Connection*> all = Add(kChunks * kUsable);
    ASSERT_EQ(slab_.resident_bytes(), kChunks * kChunk);
    std::shuffle(all.begin(), all.end(),
                 std::mt19937(static_cast<unsigned>(round)));
    Free(all);
    ASSERT_EQ(slab_.live(), 0u);
    ASSERT_EQ(slab_.resident_bytes(), kChunk);
    for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      ASSERT_FALSE(slab_.IsCurrent(chunk * ConnectionSlab::kSlotsPerChunk + 5,
                                   generation_));
    }
  }
}

// A connection that comes and goes at the border of a chunk.
TEST_F(ConnectionSlabTest, AtTheBorderNothingIsGivenBackEachTime) {
  Reserve(3 * kUsable);
  const std::vector<Connection*> all = Add(kUsable);
  for (int i = 0; i < 1000; ++i) {
    Connection* one = Add();
    ASSERT_NE(one, nullptr);
    ASSERT_EQ(slab_.resident_bytes(), 2 * kChunk);
    slab_.Free(one);
    ASSERT_EQ(slab_.resident_bytes(), 2 * kChunk);
  }
  Free(all);
}

TEST_F(ConnectionSlabTest, AWalkFindsTheLiveOnesInOrder) {
  Reserve(5 * kUsable);
  std::vector<Connection*> all = Add(5 * kUsable);
  EXPECT_EQ(Live(), all);
  // The whole of chunks 1 and 3, and every other one of the rest.
  std::vector<Connection*> left;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t chunk = ChunkOf(slab_.SlotOf(*all[i]));
    if (chunk == 1 || chunk == 3 || i % 2 == 0) {
      slab_.Free(all[i]);
    } else {
      left.push_back(all[i]);
    }
  }
  EXPECT_EQ(Live(), left);
  Free(left);
  EXPECT_TRUE(Live().empty());
}

TEST_F(ConnectionSlabTest, AWalkMayBeInterruptedAndItsFindsFreed) {
  Reserve(4 * kUsable);
  const std::vector<Connection*> all = Add(4 * kUsable);
  uint32_t slot = 0;
  size_t seen = 0;
  while (Connection* one = slab_.NextLive(&slot)) {
    ASSERT_EQ(one, all[seen]);
    ++seen;
    slab_.Free(one);
    // What is behind it may go meanwhile, with its chunk.
    if (seen == 10) {
      for (size_t i = kUsable; i < 2 * kUsable; ++i) slab_.Free(all[i]);
    }
    if (seen == kUsable) seen += kUsable;
  }
  EXPECT_EQ(seen, all.size());
  EXPECT_EQ(slab_.live(), 0u);
}

TEST_F(ConnectionSlabTest, AgreesWithAPlainModel) {
  Reserve(6 * kUsable);
  std::mt19937 random(20);
  std::unordered_map<uint32_t, uint32_t> model;  // slot -> generation
  std::vector<std::pair<uint32_t, uint32_t>> gone;
  for (int step = 0; step < 60'000; ++step) {
    // Waves: it fills up, it empties, with chunks that come and go.
    const bool filling = step / 6'000 % 2 == 0;
    if (random() % 10 < (filling ? 8u : 2u)) {
      Connection* one = Add();
      ASSERT_NE(one, nullptr);
      ASSERT_TRUE(model.emplace(slab_.SlotOf(*one), generation_).second);
    } else if (!model.empty()) {
      const auto found = model.begin();
      slab_.Free(slab_.At(found->first));
      gone.push_back(*found);
      model.erase(found);
    }
    ASSERT_EQ(slab_.live(), model.size());
    ASSERT_GE(slab_.resident_bytes() / kChunk * kUsable, model.size());
  }
  for (const auto& [slot, generation] : gone) {
    ASSERT_FALSE(slab_.IsCurrent(slot, generation));
  }
  for (const auto& [slot, generation] : model) {
    ASSERT_EQ(slab_.Find(slot, generation), slab_.At(slot));
  }
  const std::vector<Connection*> live = Live();
  ASSERT_EQ(live.size(), model.size());
  Free(live);
}

// Other threads hold refs: to live ones, to old ones, into chunks that are just
// given back.
TEST_F(ConnectionSlabTest, OtherThreadsMayAskAtAnyTime) {
  constexpr uint32_t kSlots = 4 * ConnectionSlab::kSlotsPerChunk;
  Reserve(3 * kUsable);
  Connection* lasting = Add();
  const uint32_t lasting_slot = slab_.SlotOf(*lasting);
  const uint32_t lasting_generation = generation_;
  std::atomic<bool> over{false};
  std::atomic<uint32_t> newest{generation_};
  std::atomic<uint32_t> asked{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!over) {
        const uint32_t dice = static_cast<uint32_t>(random());
        (void)slab_.IsCurrent(dice % kSlots, newest - (dice >> 16) % 100);
        // What stays is seen by all, all the time.
        EXPECT_TRUE(slab_.IsCurrent(lasting_slot, lasting_generation));
        EXPECT_FALSE(slab_.IsCurrent(lasting_slot, lasting_generation + 1));
        ++asked;
      }
    });
  }
  for (int round = 0; round < 200 || asked < 10'000; ++round) {
    const std::vector<Connection*> all = Add(2 * kUsable + 100);
    newest = generation_;
    Free(all);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  slab_.Free(lasting);
}

}  // namespace
}  // namespace sluice::internal
