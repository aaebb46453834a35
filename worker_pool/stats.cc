#include "worker_pool/stats.h"

#include <cmath>

namespace sluice {

uint64_t QueueTimes::UpperEdge(size_t bucket) {
  constexpr size_t kSub = size_t{1} << kSubBits;
  // Below 2 * kSub a bucket is one nanosecond wide.
  if (bucket < 2 * kSub) return bucket;
  const size_t shift = (bucket >> kSubBits) - 1;
  const uint64_t top = bucket - (shift << kSubBits);
  return ((top + 1) << shift) - 1;
}

std::chrono::nanoseconds QueueTimes::Percentile(double fraction) const {
  const double wanted =
      std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      // The last bucket has no edge.
      if (i == kBuckets - 1) return max_;
      return std::min(
          std::chrono::nanoseconds(static_cast<int64_t>(UpperEdge(i))), max_);
    }
  }
  return std::chrono::nanoseconds(0);
}

}  // namespace sluice
