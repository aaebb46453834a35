// Internal: a histogram of times with buckets at most 1/64 wide.
#ifndef SLUICE_BENCH_LATENCY_HISTOGRAM_H_
#define SLUICE_BENCH_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::bench {

// Counts nanoseconds. Each power of two is cut into 64 buckets, so a percentile
// is at most 1.6 % above the true one; the maximum is exact.
class LatencyHistogram {
 public:
  LatencyHistogram() : counts_(kBuckets) {}

  void Add(uint64_t ns) {
    ++counts_[Bucket(ns)];
    ++total_;
    max_ = std::max(max_, ns);
  }

  void Merge(const LatencyHistogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    max_ = std::max(max_, other.max_);
  }

  // The smallest bucket's upper edge that `fraction` (0 to 1) of the times do
  // not exceed; 0 if there are none.
  uint64_t Percentile(double fraction) const {
    const auto wanted = static_cast<uint64_t>(
        fraction * static_cast<double>(total_) + 0.999999);
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen > 0 && seen >= wanted) return std::min(UpperEdge(i), max_);
    }
    return 0;
  }

  // Calls visit(upper edge in ns, count) for each bucket that has any, in
  // order.
  template <typename Visitor>
  void ForEachBucket(Visitor visit) const {
    for (size_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] > 0) visit(std::min(UpperEdge(i), max_), counts_[i]);
    }
  }

  uint64_t total() const { return total_; }
  uint64_t max() const { return max_; }

 private:
  static constexpr int kSubBits = 6;
  static constexpr size_t kSub = size_t{1} << kSubBits;
  // Below 2 * kSub a bucket is 1 ns wide, above it kSub of them a doubling.
  static constexpr size_t kBuckets = (64 - kSubBits + 1) * kSub;

  static size_t Bucket(uint64_t ns) {
    if (ns < kSub) return ns;
    const int shift = static_cast<int>(std::bit_width(ns)) - 1 - kSubBits;
    return (static_cast<size_t>(shift) << kSubBits) + (ns >> shift);
  }
  static uint64_t UpperEdge(size_t bucket) {
    if (bucket < 2 * kSub) return bucket;
    const size_t shift = (bucket >> kSubBits) - 1;
    const uint64_t top = bucket - (shift << kSubBits);
    return ((top + 1) << shift) - 1;
  }

  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
  uint64_t max_ = 0;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LATENCY_HISTOGRAM_H_
