// Internal: the programs worker_pool_bench runs in turns, as child processes.
#ifndef SLUICE_BENCH_WORKER_POOL_PROGRAMS_H_
#define SLUICE_BENCH_WORKER_POOL_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/worker_pool_peers/peer.h"

namespace sluice::bench {

// What is measured, for each of `tasks` tasks, nanoseconds.
struct PoolTurn {
  double wall_ns = 0;  // from the first submission until all are done
  double cpu_ns = 0;   // of the whole process
};

// One turn of a program that speaks as worker_pool_peers/peer.h says, in a
// process of its own: the median of its repeats. The error names the program
// and what it printed, or how it ended.
absl::StatusOr<PoolTurn> RunPoolProgram(const std::vector<std::string>& command,
                                        const peer::Arguments& arguments);

// Being such a program: sluice's pool, or plain threads with static shares of
// the tasks, which have no queue and only do "compute". Returns the exit code.
int BeSluice(const peer::Arguments& arguments, int sample_every);
int BePlainThreads(const peer::Arguments& arguments);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_WORKER_POOL_PROGRAMS_H_
