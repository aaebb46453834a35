// Internal: how many jobs a worker takes at a time.
#ifndef SLUICE_WORKER_POOL_INTERNAL_PACE_H_
#define SLUICE_WORKER_POOL_INTERNAL_PACE_H_

#include <algorithm>
#include <cstdint>

#include "worker_pool/internal/batch.h"

namespace sluice::internal {

// As many as would take kBatchNanos if the next jobs are like the last ones:
// one at a time for all but the shortest, so that the queue stays the only line
// there is, and many when going to the queue would cost more than the jobs.
// Thread: its worker's.
class Pace {
 public:
  static constexpr int64_t kBatchNanos = 10'000;

  // `jobs` were run in `nanos`.
  void Ran(uint64_t jobs, int64_t nanos) {
    if (jobs == 0) return;
    const int64_t each = nanos / static_cast<int64_t>(jobs);
    const int64_t fit = kBatchNanos / std::max<int64_t>(each, 1);
    // Slowly up, at once down.
    const int64_t most =
        std::min<int64_t>(Batch::kCapacity, int64_t{limit_} * 2);
    limit_ = static_cast<uint32_t>(std::clamp<int64_t>(fit, 1, most));
  }
  uint32_t limit() const { return limit_; }

 private:
  uint32_t limit_ = 1;
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_PACE_H_
