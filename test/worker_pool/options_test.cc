// What Create accepts, and what its workers are like.

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reactor/internal/cpu_affinity.h"
#include "test/support/sanitizers.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

TEST(WorkerPoolOptionsTest, TheDefaultsAreValid) {
  EXPECT_TRUE(ValidateWorkerPoolOptions(WorkerPoolOptions()).ok());
}

struct Refused {
  const char* field;
  const char* value;
  void (*spoil)(WorkerPoolOptions&);
};

class RefusedOptions : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, TheErrorNamesFieldAndValue) {
  WorkerPoolOptions options;
  GetParam().spoil(options);
  const absl::Status status = WorkerPool::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr(GetParam().field));
  EXPECT_THAT(status.ToString(), HasSubstr(GetParam().value));
  EXPECT_THAT(status.ToString(), HasSubstr("must be"));
}

INSTANTIATE_TEST_SUITE_P(
    Each, RefusedOptions,
    ::testing::Values(
        Refused{"threads", "-1", [](WorkerPoolOptions& o) { o.threads = -1; }},
        Refused{"threads", "1025",
                [](WorkerPoolOptions& o) { o.threads = 1025; }},
        Refused{"queue", "0", [](WorkerPoolOptions& o) { o.queue = 0; }},
        Refused{
            "order", "9",
            [](WorkerPoolOptions& o) { o.order = static_cast<JobOrder>(9); }},
        Refused{"at_shutdown", "7",
                [](WorkerPoolOptions& o) {
                  o.at_shutdown = static_cast<AtShutdown>(7);
                }},
        Refused{"sample_every", "-3",
                [](WorkerPoolOptions& o) { o.sample_every = -3; }},
        Refused{"thread_name", "\"\"",
                [](WorkerPoolOptions& o) { o.thread_name = ""; }},
        Refused{"thread_name", "much_too_long",
                [](WorkerPoolOptions& o) { o.thread_name = "much_too_long"; }},
        Refused{"thread_name", "\\x00", [](WorkerPoolOptions& o) {
                  o.thread_name = std::string("a\0b", 3);
                }}));

TEST(WorkerPoolOptionsTest, ThreadsByDefault) {
  const auto cpus = internal::AllowedCpus();
  ASSERT_TRUE(cpus.ok());
  auto pool = MakePool(PoolOptions(0));
  EXPECT_EQ(pool->threads(), std::max(8, 4 * static_cast<int>(cpus->size())));
  EXPECT_EQ(pool->stats().threads, pool->threads());
}

TEST(WorkerPoolOptionsTest, WorkersHaveNamesAndBlockSignals) {
  WorkerPoolOptions options = PoolOptions(3);
  options.thread_name = "db";
  auto pool = MakePool(options);
  std::mutex mutex;
  std::set<std::string> names;
  std::atomic<int> open_signals{0};
  {
    // One job on each worker at the same time.
    std::atomic<int> standing{0};
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(pool->Submit([&] {
                        char name[16] = "";
                        pthread_getname_np(pthread_self(), name, sizeof(name));
                        sigset_t blocked;
                        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
                        for (const int signal : {SIGINT, SIGTERM, SIGHUP,
                                                 SIGPIPE, SIGUSR1, SIGCHLD}) {
                          if (sigismember(&blocked, signal) != 1) {
                            ++open_signals;
                          }
                        }
                        {
                          std::lock_guard<std::mutex> lock(mutex);
                          names.insert(name);
                        }
                        ++standing;
                        EXPECT_TRUE(WaitUntil([&] { return standing == 3; }));
                      })
                      .ok());
    }
    ASSERT_TRUE(pool->Shutdown().ok());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("db-0", "db-1", "db-2"));
  EXPECT_EQ(open_signals, 0);
  // The thread that created the pool is as it was.
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

TEST(WorkerPoolOptionsTest, SamplingAllNoneAndSome) {
  for (const int every : {0, 1, 10}) {
    WorkerPoolOptions options = PoolOptions(2, 1000);
    options.sample_every = every;
    auto pool = MakePool(options);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(pool->Submit([] {}).ok());
    }
    ASSERT_TRUE(pool->Shutdown().ok());
    const QueueTimes times = pool->stats().queue_times;
    if (every == 0) {
      EXPECT_EQ(times.count(), 0u);
      EXPECT_EQ(times.max().count(), 0);
    } else {
      // The count of a thread goes on from pool to pool.
      EXPECT_NEAR(static_cast<double>(times.count()), 1000.0 / every, 1.0);
      EXPECT_GE(times.max(), times.Percentile(0.5));
      EXPECT_GT(times.Percentile(0.5).count(), 0);
    }
  }
}

// What a job waited is in the histogram, not what it ran.
TEST(WorkerPoolOptionsTest, QueueTimeIsTheTimeInTheQueue) {
  WorkerPoolOptions options = PoolOptions(1);
  options.sample_every = 1;
  auto pool = MakePool(options);
  const auto begin = std::chrono::steady_clock::now();
  WorkerBlock block(*pool);
  ASSERT_TRUE(pool->Submit([] {}).ok());
  const auto submitted = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto released = std::chrono::steady_clock::now();
  block.Release();
  ASSERT_TRUE(pool->Shutdown().ok());
  const auto end = std::chrono::steady_clock::now();
  const QueueTimes times = pool->stats().queue_times;
  EXPECT_EQ(times.count(), 2u);
  EXPECT_GE(times.max(), released - submitted);
  EXPECT_LE(times.max(), end - begin);
}

// Those that were cancelled waited for nothing.
TEST(WorkerPoolOptionsTest, QueueTimesAreOfJobsThatRan) {
  WorkerPoolOptions options = PoolOptions(1);
  options.sample_every = 1;
  auto pool = MakePool(options);
  {
    WorkerBlock block(*pool);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool->Submit([] {}).ok());
    pool->BeginShutdown(AtShutdown::kCancel);
  }
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(pool->stats().cancelled, 10u);
  EXPECT_EQ(pool->stats().queue_times.count(), 1u);
}

// Threads of this process.
std::ptrdiff_t CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// A process that may not have so many threads is told how far it came, and then
// there is none.
TEST(WorkerPoolOptionsTest, NoThreadsToBeHad) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // Room for a few of the stacks, 8 MiB each by default.
        rlimit limit = {};
        limit.rlim_cur = limit.rlim_max = rlim_t{1} << 30;
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
        const absl::Status s = WorkerPool::Create(PoolOptions(1024)).status();
        std::fprintf(stderr, "%s\n", s.ToString().c_str());
        if (!absl::IsResourceExhausted(s)) _exit(3);
        // The kernel lists a thread a moment longer than join waits for it.
        _exit(WaitUntil([] { return CountThreads() == 1; }) ? 0 : 4);
      },
      ::testing::ExitedWithCode(0), "thread [0-9]+ of 1024 could not");
}

}  // namespace
}  // namespace sluice::test
