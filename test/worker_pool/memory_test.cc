// What a job that waits costs: at most 200 bytes each, 100,000 of them.

#include <malloc.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

constexpr size_t kJobs = 100'000;
constexpr double kLimit = 200;

// Bytes in use in all arenas of malloc, its own included.
size_t Used() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

template <typename Submit>
double BytesPerJob(WorkerPool& pool, size_t jobs, Submit submit) {
  WorkerBlock block(pool, pool.threads());
  const size_t before = Used();
  for (size_t i = 0; i < jobs; ++i) {
    const absl::Status s = submit(i);
    EXPECT_TRUE(s.ok()) << s.ToString();
    if (!s.ok()) break;
  }
  const size_t after = Used();
  EXPECT_EQ(pool.stats().queued, jobs);
  return static_cast<double>(after - before) / static_cast<double>(jobs);
}

void Check(const char* what, double bytes) {
  if (kSanitized) return;  // the sanitizer's malloc is another one
  std::printf("%s: %.1f bytes\n", what, bytes);
  EXPECT_GE(bytes, 16) << what << ": that cannot be";
  EXPECT_LE(bytes, kLimit) << what;
}

TEST(Memory, PlainJobs) {
  auto pool = MakePool(PoolOptions(1, kJobs));
  std::atomic<size_t> ran{0};
  Check("inside a box", BytesPerJob(*pool, kJobs, [&](size_t) {
          return pool->Submit([&ran] { ++ran; });
        }));
  ASSERT_TRUE(WaitUntil([&] { return ran == kJobs; }));
  Check("with 40 bytes of captures", BytesPerJob(*pool, kJobs, [&](size_t) {
          return pool->Submit([&ran, bytes = std::array<char, 32>()] {
            ran += 1 + static_cast<size_t>(bytes[0]);
          });
        }));
}

TEST(Memory, JobsOfConnections) {
  // One after the other: each ticket is another connection's.
  constexpr size_t kConnections = kSanitized ? 200 : 4'000;
  RefHandler handler;
  TestServer server(handler, {UniqueUnixAddress()}, TestOptions(1));
  std::vector<ConnectionRef> refs;
  for (size_t i = 0; i < kConnections; ++i) {
    const Client client = Client::Connect(server.address());
    refs.push_back(handler.WaitFor(i));
  }
  ASSERT_TRUE(server.WaitForNoConnections());

  using Row = std::array<char, 32>;
  for (const JobOrder order :
       {JobOrder::kUnordered, JobOrder::kPerConnection}) {
    WorkerPoolOptions options = PoolOptions(1, kJobs);
    options.order = order;
    options.at_shutdown = AtShutdown::kCancel;
    auto pool = MakePool(options);
    const auto submit = [&](size_t i) {
      return pool->Submit(
          refs[i % refs.size()], [row = Row()] { return row; },
          [i](Connection&, const absl::StatusOr<Row>&) { (void)i; });
    };
    const bool in_order = order == JobOrder::kPerConnection;
    // The table of connections is largest for its jobs when each has one.
    Check(in_order ? "in order, one a connection" : "unordered, a few",
          BytesPerJob(*pool, refs.size(), submit));
    ASSERT_TRUE(WaitUntil([&] {
      return pool->stats().queued == 0 && pool->stats().running == 0;
    }));
    Check(in_order ? "in order" : "unordered",
          BytesPerJob(*pool, kJobs, submit));
  }
}

}  // namespace
}  // namespace sluice::test
