#include "reactor/buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace sluice {
namespace {

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_TEST_ASAN 1
#endif
#endif

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kKeepAll = SIZE_MAX;

// Pages of [data, data + bytes) that hold memory; -1 if not mapped.
int ResidentPages(char* data, size_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (::mincore(data, bytes, pages.data()) != 0) return -1;
  return static_cast<int>(std::count_if(pages.begin(), pages.end(),
                                        [](auto p) { return (p & 1) != 0; }));
}

TEST(BufferPool, GivesTheSmallestClassThatFits) {
  BufferPool pool(kKeepAll);
  const std::pair<size_t, size_t> cases[] = {
      {1, 4 * kKiB},
      {4 * kKiB, 4 * kKiB},
      {4 * kKiB + 1, 16 * kKiB},
      {16 * kKiB, 16 * kKiB},
      {16 * kKiB + 1, 64 * kKiB},
      {64 * kKiB, 64 * kKiB},
      {64 * kKiB + 1, 256 * kKiB},
      {256 * kKiB, 256 * kKiB},
      {256 * kKiB + 1, kMiB},
      {kMiB, kMiB},
  };
  for (const auto& [bytes, capacity] : cases) {
    Buffer b = pool.Allocate(bytes);
    ASSERT_TRUE(b);
    EXPECT_EQ(b.capacity(), capacity) << bytes;
    std::memset(b.data(), 0xa5, b.capacity());
    EXPECT_EQ(pool.outstanding_bytes(), capacity);
  }
  EXPECT_EQ(pool.outstanding_bytes(), 0u);
}

TEST(BufferPool, BlocksInUseNeverOverlap) {
  BufferPool pool(kKeepAll);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 600; ++i) {
    buffers.push_back(
        pool.Allocate(BufferPool::kClasses[static_cast<size_t>(i % 3)]));
    std::memset(buffers.back().data(), i & 0xff, buffers.back().capacity());
  }
  for (int i = 0; i < 600; ++i) {
    const Buffer& b = buffers[static_cast<size_t>(i)];
    const char want = static_cast<char>(i & 0xff);
    ASSERT_TRUE(std::all_of(b.data(), b.data() + b.capacity(), [want](char c) {
      return c == want;
    })) << i;
  }
}

TEST(BufferPool, ReusesTheBlockReleasedLast) {
  BufferPool pool(kKeepAll);
  for (const size_t size : BufferPool::kClasses) {
    Buffer first = pool.Allocate(size);
    Buffer second = pool.Allocate(size);
    char* const address = first.data();
    second.Release();
    first.Release();
    Buffer again = pool.Allocate(size);
    EXPECT_EQ(again.data(), address) << size;
  }
}

TEST(BufferPool, MovingHandsTheBlockOnOnce) {
  BufferPool pool(kKeepAll);
  Buffer a = pool.Allocate(1);
  char* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.data(), data);
  Buffer c = pool.Allocate(1);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(pool.outstanding_bytes(), 4 * kKiB);
  EXPECT_EQ(pool.cached_bytes(), 4 * kKiB);
  c.Release();
  EXPECT_FALSE(c);
  EXPECT_EQ(c.capacity(), 0u);
  c.Release();
  EXPECT_EQ(pool.outstanding_bytes(), 0u);
  EXPECT_EQ(pool.cached_bytes(), 8 * kKiB);
}

TEST(BufferPool, WhatIsLargerThanAllClassesIsNotKept) {
  BufferPool pool(kKeepAll);
  Buffer b = pool.Allocate(3 * kMiB + 1);
  EXPECT_GE(b.capacity(), 3 * kMiB + 1);
  EXPECT_LT(b.capacity(), 3 * kMiB + kMiB);
  EXPECT_EQ(pool.outstanding_bytes(), b.capacity());
  std::memset(b.data(), 1, b.capacity());
  std::thread([&] { b.Release(); }).join();
  EXPECT_EQ(pool.outstanding_bytes(), 0u);
  EXPECT_EQ(pool.cached_bytes(), 0u);
}

TEST(BufferPool, TrimGivesTheMemoryOfSmallBlocksBack) {
  constexpr size_t kCount = 1000;
  constexpr size_t kSize = 4 * kKiB;
  BufferPool pool(10 * kSize);
  std::vector<Buffer> buffers;
  std::vector<char*> addresses;
  for (size_t i = 0; i < kCount; ++i) {
    buffers.push_back(pool.Allocate(kSize));
    addresses.push_back(buffers.back().data());
    std::memset(addresses.back(), 1, kSize);
  }
  EXPECT_FALSE(pool.wants_trim());
  std::shuffle(buffers.begin(), buffers.end(), std::mt19937(1));
  buffers.clear();
  EXPECT_EQ(pool.cached_bytes(), kCount * kSize);
  EXPECT_TRUE(pool.wants_trim());
  pool.Trim();
  EXPECT_FALSE(pool.wants_trim());
  EXPECT_EQ(pool.cached_bytes(), 10 * kSize);
  int warm = 0;
  for (char* address : addresses) warm += ResidentPages(address, kSize) > 0;
  EXPECT_EQ(warm, 10);

  // The addresses are used again before any new ones.
  std::sort(addresses.begin(), addresses.end());
  for (size_t i = 0; i < kCount; ++i) {
    buffers.push_back(pool.Allocate(kSize));
    ASSERT_TRUE(std::binary_search(addresses.begin(), addresses.end(),
                                   buffers.back().data()));
    std::memset(buffers.back().data(), 2, kSize);
  }
  EXPECT_EQ(pool.cached_bytes(), 0u);
}

TEST(BufferPool, TrimUnmapsLargeBlocks) {
  for (const size_t size : {256 * kKiB, kMiB}) {
    BufferPool pool(0);
    Buffer b = pool.Allocate(size);
    char* const data = b.data();
    std::memset(data, 1, size);
    EXPECT_GT(ResidentPages(data, size), 0);
    b.Release();
    EXPECT_EQ(pool.cached_bytes(), size);
    pool.Trim();
    EXPECT_EQ(ResidentPages(data, size), -1) << size;
    EXPECT_EQ(pool.cached_bytes(), 0u);
  }
}

TEST(BufferPool, TrimTakesNoMoreThanItMust) {
  BufferPool pool(kMiB);
  {
    Buffer large = pool.Allocate(kMiB);
    Buffer small1 = pool.Allocate(4 * kKiB);
    Buffer small2 = pool.Allocate(4 * kKiB);
  }
  pool.Trim();  // the two small ones go, not the large one
  EXPECT_EQ(pool.cached_bytes(), kMiB);
  {
    Buffer large = pool.Allocate(kMiB);
    Buffer middle1 = pool.Allocate(256 * kKiB);
    Buffer small = pool.Allocate(16 * kKiB);
  }
  pool.Trim();
  EXPECT_EQ(pool.cached_bytes(), kMiB);

  // A part of a block cannot stay; the smallest one that is enough goes.
  BufferPool keeps_odd(kMiB + 8 * kKiB);
  {
    Buffer large = keeps_odd.Allocate(kMiB);
    Buffer small = keeps_odd.Allocate(16 * kKiB);
  }
  keeps_odd.Trim();
  EXPECT_EQ(keeps_odd.cached_bytes(), kMiB);

  BufferPool keeps_little(100 * kKiB);
  { Buffer large = keeps_little.Allocate(256 * kKiB); }
  keeps_little.Trim();
  EXPECT_EQ(keeps_little.cached_bytes(), 0u);
  keeps_little.Trim();
  EXPECT_EQ(keeps_little.cached_bytes(), 0u);
}

TEST(BufferPool, AReleaseOnAnotherThreadIsPickedUp) {
  BufferPool pool(0);
  for (const size_t size : BufferPool::kClasses) {
    Buffer b = pool.Allocate(size);
    char* const data = b.data();
    std::thread([&] { b.Release(); }).join();
    EXPECT_EQ(pool.outstanding_bytes(), 0u);
    EXPECT_EQ(pool.cached_bytes(), size);
    EXPECT_TRUE(pool.wants_trim());
    Buffer again = pool.Allocate(size);
    EXPECT_EQ(again.data(), data);
    EXPECT_EQ(pool.cached_bytes(), 0u);
    std::thread([&] { again.Release(); }).join();
    pool.Trim();
    EXPECT_EQ(pool.cached_bytes(), 0u);
  }
}

TEST(BufferPool, NotPickedUpAtTheEndIsNoLeak) {
  char* small_data;
  char* large_data;
  {
    BufferPool pool(0);
    Buffer small = pool.Allocate(1);
    Buffer large = pool.Allocate(kMiB);
    small_data = small.data();
    large_data = large.data();
    std::thread([&] {
      small.Release();
      large.Release();
    }).join();
    EXPECT_NE(ResidentPages(large_data, kMiB), -1);
  }
  EXPECT_EQ(ResidentPages(small_data, 4 * kKiB), -1);
  EXPECT_EQ(ResidentPages(large_data, kMiB), -1);
}

TEST(BufferPool, ManyThreadsReleaseWhileTheOwnerAllocates) {
  constexpr int kRounds = 20000;
  BufferPool pool(256 * kKiB);
  struct Item {
    Buffer buffer;
    size_t used = 0;
    char mark = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Item> queue;
  bool done = false;
  size_t damaged = 0;

  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        Item item;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return done || !queue.empty(); });
          if (queue.empty()) return;
          item = std::move(queue.back());
          queue.pop_back();
          changed.notify_all();
        }
        const char* data = item.buffer.data();
        if (data[0] != item.mark || data[item.used - 1] != item.mark) {
          std::lock_guard lock(mutex);
          ++damaged;
        }
      }
    });
  }
  std::mt19937 random(7);
  for (int i = 0; i < kRounds; ++i) {
    Item item;
    item.used = std::uniform_int_distribution<size_t>(1, 80 * kKiB)(random);
    item.mark = static_cast<char>(i);
    item.buffer = pool.Allocate(item.used);
    item.buffer.data()[0] = item.mark;
    item.buffer.data()[item.used - 1] = item.mark;
    if (i % 5 == 0) continue;  // released here
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < 64; });
    queue.push_back(std::move(item));
    changed.notify_all();
    lock.unlock();
    if (pool.wants_trim()) pool.Trim();
  }
  {
    std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(damaged, 0u);
  EXPECT_EQ(pool.outstanding_bytes(), 0u);
  pool.Trim();
  EXPECT_LE(pool.cached_bytes(), 256 * kKiB);
}

TEST(BufferPool, BelongsToTheThreadItIsBoundTo) {
  BufferPool pool(kKeepAll);
  std::thread([&] {
    pool.BindToThisThread();
    Buffer b = pool.Allocate(1);
  }).join();
  pool.BindToThisThread();
  Buffer b = pool.Allocate(1);
  EXPECT_EQ(pool.cached_bytes(), 0u);  // the block of the other thread
}

class BufferPoolDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BufferPoolDeathTest, ABufferMustNotOutliveItsPool) {
  EXPECT_DEATH(
      {
        Buffer b;
        BufferPool pool(0);
        b = pool.Allocate(5000);
      },
      "BufferPool destroyed while 16384 bytes");
}

TEST_F(BufferPoolDeathTest, AllocateAndTrimCheckTheirThread) {
  BufferPool pool(0);
  EXPECT_DEATH(std::thread([&] { pool.Allocate(1); }).join(),
               "BufferPool::Allocate on thread .* belongs to thread");
  EXPECT_DEATH(std::thread([&] { pool.Trim(); }).join(),
               "BufferPool::Trim on thread .* belongs to thread");
}

TEST_F(BufferPoolDeathTest, MemoryThatCannotBeHadNamesTheSize) {
  BufferPool pool(0);
  EXPECT_DEATH(pool.Allocate(SIZE_MAX), "no memory for 18446744073709551615");
  EXPECT_DEATH(pool.Allocate(size_t{1} << 60),
               "no memory for 1152921504606846976 bytes: ");
}

TEST_F(BufferPoolDeathTest, AddressSanitizerSeesAUseAfterRelease) {
#ifdef SLUICE_TEST_ASAN
  for (const size_t size : BufferPool::kClasses) {
    BufferPool pool(kKeepAll);
    EXPECT_DEATH(
        {
          Buffer b = pool.Allocate(size);
          volatile char* data = b.data();
          b.Release();
          data[size / 2] = 1;
        },
        "use-after-poison");
  }
  // Neighbours in a span that were never handed out are closed as well.
  BufferPool pool(kKeepAll);
  Buffer b = pool.Allocate(4 * kKiB);
  volatile char* data = b.data();
  EXPECT_DEATH(data[4 * kKiB] = 1, "use-after-poison");
#else
  GTEST_SKIP() << "free blocks are poisoned under AddressSanitizer only";
#endif
}

}  // namespace
}  // namespace sluice
