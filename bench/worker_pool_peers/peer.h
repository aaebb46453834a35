// Internal: what the programs that are measured beside each other share. Plain
// C++17, so that a peer needs nothing but its own library.
//
//   PROGRAM MEASURE TASKS ROUNDS THREADS REPEATS
//
// prints REPEATS lines "WALL CPU", both in nanoseconds, each for TASKS tasks
// from the first submission until all are done:
//   empty    tasks that do nothing, submitted one by one by one thread
//   compute  tasks of ROUNDS rounds of arithmetic
//   single   empty tasks, each submitted when the one before is done
#ifndef SLUICE_BENCH_WORKER_POOL_PEERS_PEER_H_
#define SLUICE_BENCH_WORKER_POOL_PEERS_PEER_H_

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace peer {

struct Arguments {
  const char* measure = "";
  int tasks = 0;
  int rounds = 0;
  int threads = 0;
  int repeats = 0;
};

// Ends the program with a message if they are wrong.
inline Arguments Parse(int argc, char** argv) {
  Arguments a;
  if (argc == 6) {
    a.measure = argv[1];
    a.tasks = std::atoi(argv[2]);
    a.rounds = std::atoi(argv[3]);
    a.threads = std::atoi(argv[4]);
    a.repeats = std::atoi(argv[5]);
  }
  if (a.tasks < 1 || a.rounds < 0 || a.threads < 1 || a.repeats < 1) {
    std::fprintf(stderr, "usage: %s MEASURE TASKS ROUNDS THREADS REPEATS\n",
                 argc > 0 ? argv[0] : "peer");
    std::exit(2);
  }
  return a;
}

// The work of a task. The compiler may neither know what it starts with, as it
// could then do it once for all, nor leave it out.
inline void Arithmetic(int rounds) {
  uint64_t x = static_cast<uint64_t>(rounds);
  asm volatile("" : "+r"(x));
  for (int i = 0; i < rounds; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
  }
  asm volatile("" : : "r"(x));
}

struct alignas(64) Shard {
  std::atomic<long long> done{0};
};

// For those who have no way of their own to wait for all tasks. Each thread
// counts for itself: one counter of all, on its way from CPU to CPU, would be a
// tenth of a task of "compute". One countdown at a time.
class Countdown {
 public:
  explicit Countdown(int count)
      : begin_(std::chrono::steady_clock::now()),
        end_(Sum() + count),
        count_(count) {}
  void Done() {
    thread_local Shard* const mine = NewShard();
    mine->done.store(mine->done.load(std::memory_order_relaxed) + 1,
                     std::memory_order_release);
  }
  // On CPUs that have something to do, waiting must not cost what is measured:
  // sleeps for an eighth of what the rest should take, and looks again.
  void Wait() const {
    using std::chrono::microseconds;
    using std::chrono::nanoseconds;
    for (int i = 0;; ++i) {
      const long long left = end_ - Sum();
      if (left == 0) return;
      if (i > 1000) {
        const nanoseconds passed = std::chrono::steady_clock::now() - begin_;
        const nanoseconds rest = passed * left / (count_ - left + 1);
        std::this_thread::sleep_for(std::clamp<nanoseconds>(
            rest / 8, microseconds(20), microseconds(2000)));
      } else if (i > 50) {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int kMost = 2048;

  static Shard* NewShard() {
    const int index = used_.fetch_add(1);
    if (index >= kMost) std::abort();
    return &shards_[index];
  }
  static long long Sum() {
    long long sum = 0;
    for (int i = 0; i < used_.load(); ++i) {
      sum += shards_[i].done.load(std::memory_order_acquire);
    }
    return sum;
  }

  static inline std::atomic<int> used_{0};
  static inline Shard shards_[kMost];

  const std::chrono::steady_clock::time_point begin_;
  const long long end_;
  const long long count_;
};

inline long long Clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<long long>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Runs `function()` once to warm up, then `repeats` times, and prints.
template <typename Function>
void Measure(int repeats, Function function) {
  function();
  for (int i = 0; i < repeats; ++i) {
    const long long wall = Clock(CLOCK_MONOTONIC);
    const long long cpu = Clock(CLOCK_PROCESS_CPUTIME_ID);
    function();
    const long long cpu_end = Clock(CLOCK_PROCESS_CPUTIME_ID);
    const long long wall_end = Clock(CLOCK_MONOTONIC);
    std::printf("%lld %lld\n", wall_end - wall, cpu_end - cpu);
  }
}

// The three measures, made of `run(tasks, task)`, which returns when `tasks`
// copies of `task` have run. Gives the exit code.
template <typename Run>
int Main(const Arguments& a, Run run) {
  if (std::strcmp(a.measure, "empty") == 0) {
    Measure(a.repeats, [&] { run(a.tasks, [] {}); });
  } else if (std::strcmp(a.measure, "compute") == 0) {
    const int rounds = a.rounds;
    Measure(a.repeats, [&] { run(a.tasks, [rounds] { Arithmetic(rounds); }); });
  } else if (std::strcmp(a.measure, "single") == 0) {
    Measure(a.repeats, [&] {
      for (int i = 0; i < a.tasks; ++i) run(1, [] {});
    });
  } else {
    std::fprintf(stderr, "%s: not a measure\n", a.measure);
    return 2;
  }
  return 0;
}

}  // namespace peer

#endif  // SLUICE_BENCH_WORKER_POOL_PEERS_PEER_H_
