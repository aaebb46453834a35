// Public header: every setting of a worker pool, each with its default, its
// unit and what follows from it.
#ifndef SLUICE_WORKER_POOL_OPTIONS_H_
#define SLUICE_WORKER_POOL_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "reactor/options.h"

namespace sluice {

// In which order the jobs of one connection run. Either way the pool begins
// jobs in about the order of their submission.
enum class JobOrder : uint8_t {
  // As workers are free: jobs of one connection may run at the same time and
  // finish in any order.
  kUnordered,
  // Jobs of one connection run one at a time, in the order of Submit, and their
  // `done` are called in that order. A job that waits for another one of its
  // connection holds no worker. Connections take turns: however many jobs one
  // has queued, another's job waits for at most one of them at a time. Plain
  // jobs, without a connection, stay unordered.
  kPerConnection,
};

// What becomes of the jobs that have not begun when the pool shuts down.
enum class AtShutdown : uint8_t {
  kFinish,  // they run
  // They do not: `done` is called with Cancelled, and the work of a plain
  // Submit is destroyed. Each is counted (WorkerPoolStats::cancelled).
  kCancel,
};

struct WorkerPoolOptions {
  // Workers. 0: four for each CPU this process may run on (sched_getaffinity),
  // at least 8: right for work that mostly waits. For work that computes, set
  // the number of CPUs. At most 1024. A worker that waits for work costs a
  // thread's stack (address space, and a few KiB of memory) and no CPU.
  int threads = 0;

  // Jobs that may wait for a worker; at least 1. Beyond that Submit answers
  // ResourceExhausted. A job that waits takes 32 bytes and, unless its captures
  // are at most 16 bytes of references and numbers, a block of memory with
  // them: 144 bytes in all with a connection and captures of 40 bytes, and up
  // to 40 more with JobOrder::kPerConnection.
  size_t queue = 10'000;

  JobOrder order = JobOrder::kUnordered;

  // For the destructor and for a Shutdown that does not say.
  AtShutdown at_shutdown = AtShutdown::kFinish;

  // Of this many jobs one has its time in the queue measured
  // (WorkerPoolStats::queue_times). 1: every job, about 50 ns each. 0: none.
  int sample_every = 16;

  // Workers are called NAME-0, NAME-1, ... in ps, top and debuggers. 1 to 10
  // bytes.
  std::string thread_name = "worker";

  // Where it is told that a plain job threw. Called from the workers, at most a
  // few lines a second. Unset: standard error.
  std::function<void(LogLevel, std::string_view)> log;
};

// Checks every field. The error names the field, its value and what is allowed.
absl::Status ValidateWorkerPoolOptions(const WorkerPoolOptions& options);

}  // namespace sluice

#endif  // SLUICE_WORKER_POOL_OPTIONS_H_
