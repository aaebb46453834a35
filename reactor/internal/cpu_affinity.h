// Internal: which CPUs we may use, and pinning a thread to one.
#ifndef SLUICE_REACTOR_INTERNAL_CPU_AFFINITY_H_
#define SLUICE_REACTOR_INTERNAL_CPU_AFFINITY_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/options.h"

namespace sluice::internal {

// The CPUs the calling thread may run on, ascending (sched_getaffinity(2), so
// cpusets and taskset count). Works beyond 1,024 CPUs. Never empty on OK.
absl::StatusOr<std::vector<int>> AllowedCpus();

// The CPU for each of `reactors` reactors, -1 for "not pinned". kAuto pins only
// if there are at least as many allowed CPUs as reactors. InvalidArgument names
// a listed CPU that is not allowed, an empty list, or cpus set without kList.
absl::StatusOr<std::vector<int>> AssignCpus(const CpuPinning& pinning,
                                            int reactors,
                                            const std::vector<int>& allowed);

// Pins the calling thread.
absl::Status PinThisThread(int cpu);

// Restores the affinity the calling thread had at construction.
class ScopedAffinity {
 public:
  ScopedAffinity();
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  std::vector<unsigned long> mask_;  // empty: could not be read
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_CPU_AFFINITY_H_
