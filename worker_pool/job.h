// Public header: what WorkerPool::Submit makes of its arguments. Templates need
// it; there is nothing here to use by itself.
#ifndef SLUICE_WORKER_POOL_JOB_H_
#define SLUICE_WORKER_POOL_JOB_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/utility/utility.h"
#include "reactor/connection_ref.h"

namespace sluice {

class Connection;

namespace internal {

class ConnectionJob;
class DropCounter;

// Work that waits for a worker, and what the pool must know of it.
class Job {
 public:
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  // Calls the work. It may throw.
  virtual void Run() = 0;

  // nullptr: a plain job.
  virtual ConnectionJob* for_connection() { return nullptr; }

 protected:
  Job() = default;
};

// A job whose result goes to a connection's loop.
class ConnectionJob : public Job {
 public:
  // There is no result: the work threw, or was cancelled. Instead of Run, or
  // after Run has thrown. Destroys the work.
  virtual void Fail(absl::Status why) = 0;
  // [loop] Calls `done` with the result.
  virtual void Finish(Connection& connection) = 0;

  ConnectionJob* for_connection() final { return this; }
  const ConnectionRef& ref() const { return ref_; }

  // Posts the result; the job ends where it is called, or dropped and counted.
  static void Deliver(std::unique_ptr<ConnectionJob> job, DropCounter* drops);

  union {
    ConnectionJob* next = nullptr;  // while it waits for one of its connection
    DropCounter* drops;             // while its result is under way
  };
  int64_t queued_at = 0;  // JobBox::queued_at

 protected:
  explicit ConnectionJob(ConnectionRef ref) : ref_(ref) {}

 private:
  class Delivery;

  const ConnectionRef ref_;
};

template <typename Work>
class PlainJob final : public Job {
 public:
  template <typename W>
  explicit PlainJob(W&& work) : work_(std::forward<W>(work)) {}
  void Run() override { std::move(work_)(); }

 private:
  Work work_;
};

// What `done` is given for work that returns R: a status and, if there is one,
// the value. A Status or StatusOr is passed on as it is.
template <typename R>
struct OutcomeOf {
  using Type = absl::StatusOr<R>;
};
template <>
struct OutcomeOf<void> {
  using Type = absl::Status;
};
template <>
struct OutcomeOf<absl::Status> {
  using Type = absl::Status;
};
template <typename T>
struct OutcomeOf<absl::StatusOr<T>> {
  using Type = absl::StatusOr<T>;
};

template <typename Work, typename Done>
class ResultJob final : public ConnectionJob {
 public:
  using R = std::remove_cvref_t<std::invoke_result_t<Work>>;
  using Outcome = typename OutcomeOf<R>::Type;

  template <typename W, typename D>
  ResultJob(ConnectionRef ref, W&& work, D&& done)
      : ConnectionJob(ref),
        state_(std::in_place_index<0>, std::forward<W>(work)),
        done_(std::forward<D>(done)) {}

  void Run() override {
    Work& work = std::get<0>(state_);
    if constexpr (std::is_void_v<R>) {
      std::move(work)();
      state_.template emplace<1>();
    } else if constexpr (std::is_same_v<R, Outcome>) {
      Outcome outcome = std::move(work)();
      state_.template emplace<1>(std::move(outcome));
    } else {
      Outcome outcome(absl::in_place, std::move(work)());
      state_.template emplace<1>(std::move(outcome));
    }
  }
  void Fail(absl::Status why) override {
    state_.template emplace<1>(std::move(why));
  }
  void Finish(Connection& connection) override {
    std::move(done_)(connection, std::get<1>(std::move(state_)));
  }

 private:
  // The work until it has run, then what came of it.
  std::variant<Work, Outcome> state_;
  Done done_;
};

}  // namespace internal
}  // namespace sluice

#endif  // SLUICE_WORKER_POOL_JOB_H_
