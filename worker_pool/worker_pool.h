// Public header: threads for work that blocks or computes, shared by all loops.
#ifndef SLUICE_WORKER_POOL_WORKER_POOL_H_
#define SLUICE_WORKER_POOL_WORKER_POOL_H_

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/connection_ref.h"
#include "worker_pool/job.h"
#include "worker_pool/job_box.h"
#include "worker_pool/options.h"
#include "worker_pool/stats.h"

namespace sluice {

namespace internal {
class PoolImpl;
}

// Workers and a bounded queue before them. A handler gives away what would hold
// its loop up, and gets the result on that loop:
//
//   absl::Status s = pool.Submit(
//       c.ref(), [query = std::string(c.Next())] { return Ask(query); },
//       [](Connection& c, absl::StatusOr<Answer> answer) { ... });
//
// Thread: any, where nothing else is said.
// Lifetime: independent of the engine's, either may end first. While the pool
//   lives after the engine, jobs run and their results are dropped and counted.
//   When the pool ends first, results it has posted still arrive.
// Errors: Submit answers a status and never blocks or waits for a worker. An
//   exception out of work ends that job alone: `done` is told Internal with its
//   text; of a plain job it is counted and logged. Submit throws what moving
//   its arguments throws, and std::bad_alloc if there is no memory for the job,
//   and has then queued nothing. Memory that is missing later (a few bytes for
//   the place in a line, for a result's way) ends the program.
//
// A result is given to `done` exactly once, or dropped and counted because the
// connection was gone or its engine had stopped; in every case work and `done`
// are destroyed. `done` has no pool left to wait for: it may be called after
// Shutdown, and after the pool's end.
class WorkerPool {
 public:
  // Starts the workers. InvalidArgument names the option and the value;
  // ResourceExhausted: the system gave no thread, and then none is left.
  //
  // They block all signals, and inherit from the calling thread the CPUs it may
  // run on and its table of descriptors: create the pool before Engine::Run or
  // on a thread of your own, not in a callback.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(
      WorkerPoolOptions options = {});

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Shutdown() with WorkerPoolOptions::at_shutdown, so it waits for the jobs
  // that run, and with kFinish for those that are queued. Within one of the
  // pool's own jobs it would wait for itself, and ends the program.
  ~WorkerPool();

  // Runs `work()` on a worker, then `done(connection, result)` on the
  // connection's loop. What work returns decides the result:
  //
  //   R                 absl::StatusOr<R>
  //   void              absl::Status
  //   absl::Status      absl::Status, as it is
  //   absl::StatusOr<T> absl::StatusOr<T>, as it is
  //
  // It is moved, never copied; moving it should not throw, as within a StatusOr
  // that ends the program. `work` is destroyed on the worker before `done`
  // is called. Besides what work answers, a result is Internal (it threw) or
  // Cancelled (AtShutdown::kCancel, it did not run).
  //
  // OK: queued. ResourceExhausted: the queue is full. Unavailable: shutdown has
  // begun. NotFound: `ref` refers to nothing. If it is not OK, both were
  // destroyed without having run. That the connection is gone is not looked at:
  // the work may matter for itself. Callable on workers too.
  template <typename Work, typename Done>
  absl::Status Submit(ConnectionRef ref, Work&& work, Done&& done) {
    using W = std::decay_t<Work>;
    using D = std::decay_t<Done>;
    static_assert(std::is_invocable_v<W>, "work is called without arguments");
    using ResultJob = internal::ResultJob<W, D>;
    static_assert(
        std::is_invocable_v<D, Connection&, typename ResultJob::Outcome>,
        "done is called with (Connection&, absl::StatusOr<R>), or with "
        "(Connection&, absl::Status) for work that returns void or a Status");
    return QueueFor(std::make_unique<ResultJob>(ref, std::forward<Work>(work),
                                                std::forward<Done>(done)));
  }

  // The same without a connection: there is nobody to tell a result to.
  template <typename Work>
  absl::Status Submit(Work&& work) {
    using W = std::decay_t<Work>;
    static_assert(std::is_invocable_r_v<void, W>,
                  "work is called without arguments");
    static_assert(std::is_void_v<std::invoke_result_t<W>>,
                  "nobody would hear what this work returns: let it return "
                  "void, or submit it with a connection and a done");
    if constexpr (internal::JobBox::kFits<W>) {
      return Queue(internal::JobBox(W(std::forward<Work>(work))));
    } else {
      return Queue(internal::JobBox(
          std::make_unique<internal::PlainJob<W>>(std::forward<Work>(work))));
    }
  }

  // From here on Submit answers Unavailable, and the jobs that have not begun
  // run or are cancelled. Returns without waiting for jobs; with kCancel, when
  // those in the queue are cancelled (or another thread is already at it). A
  // second call can only turn kFinish into kCancel.
  void BeginShutdown();
  void BeginShutdown(AtShutdown policy);

  // BeginShutdown, and waits until every job is over and every worker has
  // ended. On a loop it holds that loop up, and a job that waits for the loop
  // would wait for ever: call it elsewhere. FailedPrecondition: called by one
  // of the pool's own jobs (or a destructor of one that is cancelled), which
  // has only begun the shutdown.
  absl::Status Shutdown();
  absl::Status Shutdown(AtShutdown policy);

  WorkerPoolStats stats() const;
  int threads() const;
  const WorkerPoolOptions& options() const;

 private:
  explicit WorkerPool(std::unique_ptr<internal::PoolImpl> impl);

  absl::Status Queue(internal::JobBox job);
  absl::Status QueueFor(std::unique_ptr<internal::ConnectionJob> job);

  const std::unique_ptr<internal::PoolImpl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_WORKER_POOL_WORKER_POOL_H_
