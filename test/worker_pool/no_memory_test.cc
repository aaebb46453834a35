// Submit without memory: it throws, and the pool is as if it had not been
// called.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "gtest/gtest.h"
#include "test/support/loop_block.h"
#include "test/worker_pool/pool_support.h"

namespace {

// Of this thread: the allocation that fails, counted from 1; 0: none.
thread_local size_t fail_at = 0;

bool FailsNow() { return fail_at > 0 && --fail_at == 0; }

}  // namespace

// All that may be mixed with each other. Not inlined, or GCC takes free for the
// wrong counterpart of new.
[[gnu::noinline]] void* operator new(size_t size) {
  void* block = FailsNow() ? nullptr : std::malloc(size > 0 ? size : 1);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept {
  std::free(block);
}

namespace sluice::test {
namespace {

// Calls `submit` until it does not reach the allocation that would fail: then
// it must succeed. How often it threw.
template <typename Submit>
int FailEachAllocation(Submit submit) {
  for (int throws = 0;; ++throws) {
    fail_at = static_cast<size_t>(throws) + 1;
    bool thrown = false;
    absl::Status s;
    try {
      s = submit();
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    const bool reached = fail_at == 0;
    fail_at = 0;
    EXPECT_EQ(thrown, reached);
    EXPECT_TRUE(thrown || s.ok()) << s.ToString();
    if (!reached || !thrown) return throws;
  }
}

TEST(NoMemory, EachAllocationOfSubmitFailsOnce) {
  constexpr int kRounds = 300;  // some chunks of the queue
  ConnectedServer side(1);
  auto pool = MakePool(PoolOptions(1));
  auto captured = std::make_shared<int>(1);
  std::atomic<int> ran{0};
  std::atomic<int> told{0};
  const auto small = [&ran] { ++ran; };
  const auto work = [&ran, captured] { ++ran; };
  const auto done = [&told, captured](Connection&, absl::Status) { ++told; };
  {
    WorkerBlock block(*pool);
    int chunks = 0;
    for (int i = 0; i < kRounds; ++i) {
      chunks += FailEachAllocation([&] { return pool->Submit(small); });
      EXPECT_GE(FailEachAllocation([&] { return pool->Submit(work); }), 1);
      EXPECT_GE(FailEachAllocation(
                    [&] { return pool->Submit(side.ref(), work, done); }),
                1);
    }
    EXPECT_GE(chunks, 1) << "the queue was never out of memory";
    EXPECT_EQ(pool->stats().queued, size_t{3} * kRounds);
    EXPECT_EQ(captured.use_count(), 3 + 3 * kRounds);
  }
  EXPECT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(ran, 3 * kRounds);
  EXPECT_TRUE(WaitUntil([&] { return told == kRounds; }));
  TurnOver(side.loop());
  EXPECT_EQ(captured.use_count(), 3) << "ours, and those of work and done";
  ExpectBalanced(pool->stats());
}

// In order, the job's own block is the one that may fail.
TEST(NoMemory, NoBlockForAJobInOrder) {
  ConnectedServer side(1);
  WorkerPoolOptions options = PoolOptions(2);
  options.order = JobOrder::kPerConnection;
  auto pool = MakePool(options);
  std::atomic<int> told{0};
  const auto submit = [&] {
    return pool->Submit(
        side.ref(), [bytes = std::array<char, 100>()] { (void)bytes; },
        [&told](Connection&, absl::Status) { ++told; });
  };
  for (int i = 0; i < 100; ++i) {
    fail_at = 1;
    EXPECT_THROW((void)submit(), std::bad_alloc);
    ASSERT_TRUE(submit().ok());
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_TRUE(WaitUntil([&] { return told == 100; }));
  EXPECT_EQ(pool->stats().submitted, 100u);
  ExpectBalanced(pool->stats());
}

}  // namespace
}  // namespace sluice::test
