// Example support: durations with three significant digits.
#ifndef SLUICE_EXAMPLES_HISTOGRAM_H_
#define SLUICE_EXAMPLES_HISTOGRAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::examples {

// Counts microseconds from 0 to 60 s in log-linear buckets, as HdrHistogram
// does (Debian 12 packages no C or C++ version of that):
//
//   0 ... 2047       one bucket a microsecond
//   2048 ... 4095    1,024 buckets of 2
//   4096 ... 8191    1,024 buckets of 4, and so on
//
// so a bucket is at most 1/1024 of its value wide. Larger values count in the
// last bucket; max() has them exactly.
// Thread: Record and Merge on one thread at a time; the rest on any, at the
//   same time, and then not one moment's picture.
class Histogram {
 public:
  static constexpr uint64_t kHighest = 60'000'000;

  Histogram();
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  void Record(uint64_t microseconds);
  // Adds what `other` counted; nothing is lost.
  void Merge(const Histogram& other);

  uint64_t count() const { return Load(count_); }
  uint64_t max() const { return Load(max_); }

  // The smallest value that at least `quantile` (0 to 1) of the values do not
  // exceed, to the upper edge of its bucket; never above max(). 0 if empty.
  uint64_t Quantile(double quantile) const;

  // For tests: the bucket of a value, and the largest value in a bucket.
  static size_t BucketOf(uint64_t microseconds);
  static uint64_t UpperEdge(size_t bucket);

 private:
  using Cell = std::atomic<uint64_t>;
  static uint64_t Load(const Cell& cell) {
    return cell.load(std::memory_order_relaxed);
  }
  // One writer: a plain add, without the cost of a locked one.
  static void Add(Cell& cell, uint64_t n) {
    cell.store(Load(cell) + n, std::memory_order_relaxed);
  }

  std::unique_ptr<Cell[]> buckets_;
  Cell used_{0};  // buckets from this one on are empty
  Cell count_{0};
  Cell max_{0};
};

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_HISTOGRAM_H_
