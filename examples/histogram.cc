#include "examples/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::examples {
namespace {

constexpr unsigned kLinearBits = 11;  // 2,048 buckets of one microsecond
constexpr uint64_t kLinear = 1u << kLinearBits;
constexpr uint64_t kHalf = kLinear / 2;
constexpr unsigned kDoublings =
    static_cast<unsigned>(std::bit_width(Histogram::kHighest)) - kLinearBits;
constexpr size_t kBuckets = kLinear + kDoublings * kHalf;

}  // namespace

Histogram::Histogram() : buckets_(new Cell[kBuckets]()) {}

size_t Histogram::BucketOf(uint64_t microseconds) {
  const uint64_t v = std::min(microseconds, kHighest);
  if (v < kLinear) return v;
  const unsigned shift = static_cast<unsigned>(std::bit_width(v)) - kLinearBits;
  return kLinear + (shift - 1) * kHalf + ((v >> shift) - kHalf);
}

uint64_t Histogram::UpperEdge(size_t bucket) {
  if (bucket < kLinear) return bucket;
  const uint64_t shift = (bucket - kLinear) / kHalf + 1;
  const uint64_t step = (bucket - kLinear) % kHalf + kHalf;
  return ((step + 1) << shift) - 1;
}

void Histogram::Record(uint64_t microseconds) {
  const size_t bucket = BucketOf(microseconds);
  Add(buckets_[bucket], 1);
  Add(count_, 1);
  if (bucket >= Load(used_)) {
    used_.store(bucket + 1, std::memory_order_relaxed);
  }
  if (microseconds > Load(max_)) {
    max_.store(microseconds, std::memory_order_relaxed);
  }
}

void Histogram::Merge(const Histogram& other) {
  const uint64_t used = Load(other.used_);
  uint64_t added = 0;
  for (size_t i = 0; i < used; ++i) {
    const uint64_t n = Load(other.buckets_[i]);
    if (n == 0) continue;
    Add(buckets_[i], n);
    added += n;
  }
  // The sum of the buckets, not other's count: while other's thread goes on,
  // the two may differ, and ours must agree with each other.
  Add(count_, added);
  used_.store(std::max(Load(used_), used), std::memory_order_relaxed);
  max_.store(std::max(Load(max_), other.max()), std::memory_order_relaxed);
}

uint64_t Histogram::Quantile(double quantile) const {
  const uint64_t total = count();
  if (total == 0) return 0;
  const double exact =
      std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(total));
  const uint64_t rank =
      std::clamp<uint64_t>(static_cast<uint64_t>(exact), 1, total);
  uint64_t seen = 0;
  const uint64_t used = Load(used_);
  for (size_t i = 0; i < used; ++i) {
    seen += Load(buckets_[i]);
    if (seen >= rank) {
      // The last bucket holds everything beyond kHighest.
      return i == BucketOf(kHighest) ? max() : std::min(UpperEdge(i), max());
    }
  }
  return max();
}

}  // namespace sluice::examples
