// Public header: what a worker pool counts.
#ifndef SLUICE_WORKER_POOL_STATS_H_
#define SLUICE_WORKER_POOL_STATS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice {

// Times in log-linear buckets: each power of two of nanoseconds is cut into 16,
// so what Percentile says is at most 1/16 above the truth. What is longer than
// 73 minutes counts in the last bucket; max() is exact.
class QueueTimes {
 public:
  static constexpr int kSubBits = 4;
  static constexpr int kTopBit = 42;
  static constexpr size_t kBuckets = size_t{kTopBit - kSubBits + 1} << kSubBits;

  // The bucket of a time, and the largest time of a bucket.
  static size_t Bucket(uint64_t ns) {
    if (ns < (uint64_t{1} << kSubBits)) return static_cast<size_t>(ns);
    const int shift = static_cast<int>(std::bit_width(ns)) - 1 - kSubBits;
    const size_t bucket = (static_cast<size_t>(shift) << kSubBits) +
                          static_cast<size_t>(ns >> shift);
    return std::min(bucket, kBuckets - 1);
  }
  static uint64_t UpperEdge(size_t bucket);

  // Jobs that were measured: one of WorkerPoolOptions::sample_every.
  uint64_t count() const { return count_; }
  std::chrono::nanoseconds max() const { return max_; }
  // The time that `fraction` (0 to 1) of the measured jobs did not exceed, as
  // the upper edge of its bucket; 0 if none was measured.
  std::chrono::nanoseconds Percentile(double fraction) const;
  // Jobs measured in a bucket, 0 <= bucket < kBuckets.
  uint64_t at(size_t bucket) const { return counts_.at(bucket); }

  void Add(size_t bucket, uint64_t jobs) {
    counts_.at(bucket) += jobs;
    count_ += jobs;
  }
  void RaiseMax(std::chrono::nanoseconds time) { max_ = std::max(max_, time); }

 private:
  std::array<uint64_t, kBuckets> counts_ = {};
  uint64_t count_ = 0;
  std::chrono::nanoseconds max_{0};
};

// Sums over all workers. Each number is exact once things are quiet, and then
//
//   submitted = queued + running + done + cancelled
//
// Read while jobs run they are not one moment's snapshot. Counters only rise.
struct WorkerPoolStats {
  int threads = 0;  // workers

  size_t queued = 0;   // accepted, not yet begun
  size_t running = 0;  // on a worker now

  uint64_t submitted = 0;  // Submit said OK
  uint64_t done = 0;       // work that ran, those that threw included
  uint64_t cancelled = 0;  // did not run: AtShutdown::kCancel
  uint64_t rejected = 0;   // Submit said ResourceExhausted
  uint64_t refused = 0;    // Submit said Unavailable

  uint64_t exceptions = 0;  // work that threw
  // `done` that was not called: by then the connection was gone or its engine
  // had stopped.
  uint64_t dropped = 0;

  QueueTimes queue_times;  // from Submit until the work began
};

}  // namespace sluice

#endif  // SLUICE_WORKER_POOL_STATS_H_
