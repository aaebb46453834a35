// Internal: the queue, the workers, and who of them is awake.
#ifndef SLUICE_WORKER_POOL_INTERNAL_POOL_IMPL_H_
#define SLUICE_WORKER_POOL_INTERNAL_POOL_IMPL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "reactor/internal/log.h"
#include "worker_pool/internal/adaptive_mutex.h"
#include "worker_pool/internal/drop_counter.h"
#include "worker_pool/internal/job_queue.h"
#include "worker_pool/internal/strands.h"
#include "worker_pool/internal/worker.h"
#include "worker_pool/job.h"
#include "worker_pool/job_box.h"
#include "worker_pool/options.h"
#include "worker_pool/stats.h"

namespace sluice::internal {

// Jobs wait in one queue under one mutex. A worker takes one job at a time, or
// a batch if jobs are so short that the mutex would cost more than they do;
// what it has not begun of its batch any other worker may take.
//
// Idle workers sleep, except for at most one, the searcher. The rule that keeps
// jobs from waiting beside sleepers:
//
//   Whoever leaves a job in the queue or in a batch, while a worker sleeps and
//   nobody searches, wakes one to search. The searcher stops only when it has
//   found a job (and then is such a one itself), or when, under the mutex,
//   there is none in the queue and in any batch.
//
// Batches are made under the mutex, so none can appear behind its back. And as
// only one is woken at a time, a burst of submissions costs few wake-ups.
// Thread: any, except Start.
class PoolImpl {
 public:
  explicit PoolImpl(WorkerPoolOptions options);
  // Joined before.
  ~PoolImpl() { drops_->Unref(); }
  PoolImpl(const PoolImpl&) = delete;
  PoolImpl& operator=(const PoolImpl&) = delete;

  // If it fails there is no worker left.
  absl::Status Start();

  absl::Status Submit(JobBox job) SLUICE_EXCLUDES(mutex_);
  // The same, behind the other jobs of its connection.
  absl::Status SubmitInOrder(std::unique_ptr<ConnectionJob> job)
      SLUICE_EXCLUDES(mutex_);

  // The calling thread helps to cancel.
  void BeginShutdown(AtShutdown policy) SLUICE_EXCLUDES(mutex_);
  // After BeginShutdown and not within a job: returns when all have ended.
  void Join();

  // Is the calling thread running a job, or destroying one that it cancels?
  bool WithinJob() const;

  WorkerPoolStats stats() const SLUICE_EXCLUDES(mutex_);
  int threads() const { return static_cast<int>(workers_.size()); }
  const WorkerPoolOptions& options() const { return options_; }

 private:
  enum class Admission : uint8_t { kOk, kFull, kClosing };

  // --- Submitting. Where a Worker* is returned it is to be woken, after the
  // lock.
  Admission AdmitLocked() SLUICE_REQUIRES(mutex_);
  absl::Status Refusal(Admission admission) const;
  // Now, for one job of WorkerPoolOptions::sample_every; 0 for the others.
  int64_t SampleTime() const;
  void PushLocked(JobBox& job) SLUICE_REQUIRES(mutex_);
  // The next job of a connection, admitted before. `me`: the worker that goes
  // to the queue after this, or nullptr. Without memory for it the program
  // ends: its connection's line could not go on.
  void PushNext(std::unique_ptr<ConnectionJob> next, Worker* me) noexcept
      SLUICE_EXCLUDES(mutex_);
  // Jobs that have not begun.
  uint64_t QueuedLocked() const SLUICE_REQUIRES(mutex_);
  // One to search, if there should be.
  Worker* CallSearcherLocked() SLUICE_REQUIRES(mutex_);
  static void Wake(Worker* worker) {
    if (worker != nullptr) worker->bed.Wake();
  }

  // --- Finding work.
  void Work(Worker& me, int index);
  // The next job; empty: the worker ends.
  JobBox Next(Worker& me) SLUICE_EXCLUDES(mutex_);
  JobBox TakeFromStalledNeighbour(Worker& me, int64_t now);
  // The same from the queue, for which it may have to wait.
  JobBox Wait(Worker& me) SLUICE_EXCLUDES(mutex_);
  enum class Sight : uint8_t { kJob, kNothing, kNight, kEnd };
  // One look at the queue. Gives *job, or says whether to search on, to sleep
  // or to end. A searcher that is tired goes to sleep if it can.
  Sight Look(Worker& me, bool tired, bool* searching, JobBox* job)
      SLUICE_EXCLUDES(mutex_);
  void TakeLocked(Worker& me, JobBox* job) SLUICE_REQUIRES(mutex_);
  // A job of a batch that was taken before that time.
  JobBox Steal(int64_t taken_before);
  bool AnyBatch() const;
  void EndSearch() SLUICE_EXCLUDES(mutex_);

  // --- One job. Without memory to tell how it ended (some hundred bytes) the
  // program ends: somebody would wait for ever.
  void Execute(Worker& me, JobBox& box) noexcept;
  void ExecutePlain(Worker& me, JobBox& box);
  void ExecuteForConnection(Worker& me, std::unique_ptr<ConnectionJob> job,
                            bool cancel);
  // False if it threw, and what.
  template <typename J>
  static bool RunCatching(Worker& me, J& job, std::string* what);

  // --- Shutting down (pool_shutdown.cc).
  void WakeAll() SLUICE_EXCLUDES(mutex_);
  void CancelQueued() SLUICE_EXCLUDES(mutex_);

  const WorkerPoolOptions options_;
  Logger logger_;
  DropCounter* const drops_ = new DropCounter;
  Strands strands_;  // JobOrder::kPerConnection
  int polls_ = 0;    // a searcher's, before it goes to sleep

  std::vector<std::unique_ptr<Worker>> workers_;
  Worker canceller_;  // of the thread that cancels
  std::atomic<bool> cancel_{false};
  std::atomic<std::thread::id> cancelling_{};  // that thread, if there is one
  std::mutex join_mutex_;

  alignas(64) mutable AdaptiveMutex mutex_;
  JobQueue ready_ SLUICE_GUARDED_BY(mutex_);
  uint64_t submitted_ SLUICE_GUARDED_BY(mutex_) = 0;
  // The sum of what was claimed, when it was last added up.
  uint64_t claimed_ SLUICE_GUARDED_BY(mutex_) = 0;
  bool closing_ SLUICE_GUARDED_BY(mutex_) = false;
  bool searching_ SLUICE_GUARDED_BY(mutex_) = false;
  std::vector<Worker*> sleepers_ SLUICE_GUARDED_BY(mutex_);
  uint64_t rejected_ SLUICE_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ SLUICE_GUARDED_BY(mutex_) = 0;
  // Is ready_ not empty? For a look without the lock.
  std::atomic<bool> has_ready_{false};
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_POOL_IMPL_H_
