// Internal: the lines of jobs that wait for another job of their connection.
#ifndef SLUICE_WORKER_POOL_INTERNAL_STRANDS_H_
#define SLUICE_WORKER_POOL_INTERNAL_STRANDS_H_

#include <array>
#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "reactor/connection_ref.h"
#include "reactor/internal/mutex.h"
#include "worker_pool/job.h"

namespace sluice::internal {

// A connection is in it while it has a job in the queue or on a worker. Its
// other jobs wait here, linked by ConnectionJob::next, and hold no worker.
// Thread: any. Calls for different connections hardly meet (16 locks).
class Strands {
 public:
  Strands() = default;
  Strands(const Strands&) = delete;
  Strands& operator=(const Strands&) = delete;

  // True if no job of this connection is under way: the caller queues `job`.
  // Otherwise it was taken and waits; `job` is then empty. Without memory for
  // it the program ends: abseil's tables are broken once an allocation has
  // failed.
  [[nodiscard]] bool Begin(std::unique_ptr<ConnectionJob>& job) noexcept;

  // The job under way is over. The next one, which the caller queues, or
  // nullptr.
  std::unique_ptr<ConnectionJob> End(const ConnectionRef& ref);

 private:
  // Two tables, as most connections have one job under way and none that waits:
  // that costs 17 bytes of a table's slot instead of 25.
  using Busy = absl::flat_hash_set<ConnectionRef>;
  // The last job of a ring, whose next is the first.
  using Waiting = absl::flat_hash_map<ConnectionRef, ConnectionJob*>;
  struct alignas(64) Shard {
    Mutex mutex;
    Busy busy SLUICE_GUARDED_BY(mutex);
    Waiting waiting SLUICE_GUARDED_BY(mutex);
  };

  Shard& ShardOf(const ConnectionRef& ref);

  std::array<Shard, 16> shards_;
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_STRANDS_H_
