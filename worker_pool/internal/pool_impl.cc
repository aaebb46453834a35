#include "worker_pool/internal/pool_impl.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reactor/internal/clock.h"
#include "reactor/internal/cpu_affinity.h"

namespace sluice::internal {
namespace {

constexpr int kThreadsPerCpu = 4;
constexpr int kLeastThreads = 8;

// A searcher looks this often, about a microsecond apart, before it sleeps: for
// about as long as it takes to wake one up. Shorter, and each job of a thread
// that submits one after the other costs it a system call; longer, and on a
// busy CPU it keeps others from submitting what it waits for.
constexpr int kPolls = 4;
// A batch is stalled when its owner has not finished it in twice the time it
// was meant to take.
constexpr int64_t kStalledNanos = 2 * Pace::kBatchNanos;

thread_local const PoolImpl* current_pool = nullptr;

void PauseAboutAMicrosecond() {
  for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
}

// No signal is delivered to threads that are started while it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

PoolImpl::PoolImpl(WorkerPoolOptions options)
    : options_(std::move(options)), logger_(options_.log) {}

absl::Status PoolImpl::Start() {
  const absl::StatusOr<std::vector<int>> cpus = AllowedCpus();
  if (!cpus.ok()) return cpus.status();
  // On a single CPU whoever searches keeps others from what he waits for.
  polls_ = cpus->size() > 1 ? kPolls : 0;
  int count = options_.threads;
  if (count == 0) {
    count = std::max(kLeastThreads,
                     static_cast<int>(cpus->size()) * kThreadsPerCpu);
  }
  // All of them before the first thread, which looks at its neighbours.
  for (int i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
  }
  {
    AdaptiveMutexLock lock(mutex_);
    sleepers_.reserve(workers_.size());
  }
  absl::Status status;
  {
    const SignalsBlocked blocked;
    for (int i = 0; i < count && status.ok(); ++i) {
      Worker& worker = *workers_[static_cast<size_t>(i)];
      try {
        worker.thread = std::thread([this, &worker, i] { Work(worker, i); });
      } catch (const std::exception& e) {
        status = absl::ResourceExhaustedError(
            absl::StrCat("thread ", i + 1, " of ", count,
                         " could not be started: ", e.what()));
      }
    }
  }
  if (!status.ok()) {
    BeginShutdown(AtShutdown::kCancel);
    Join();
  }
  return status;
}

// --- Submitting

uint64_t PoolImpl::QueuedLocked() const {
  uint64_t claimed = canceller_.claimed.Get();
  for (const auto& worker : workers_) claimed += worker->claimed.Get();
  return submitted_ - claimed;
}

PoolImpl::Admission PoolImpl::AdmitLocked() {
  if (closing_) {
    ++refused_;
    return Admission::kClosing;
  }
  // Workers count what they begin each for itself. The sum is made only when
  // the queue looks full.
  if (submitted_ - claimed_ >= options_.queue) {
    claimed_ = submitted_ - QueuedLocked();
    if (submitted_ - claimed_ >= options_.queue) {
      ++rejected_;
      return Admission::kFull;
    }
  }
  return Admission::kOk;
}

absl::Status PoolImpl::Refusal(Admission admission) const {
  if (admission == Admission::kFull) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the worker pool's queue is full: ", options_.queue, " jobs wait"));
  }
  return absl::UnavailableError("the worker pool has begun to shut down");
}

int64_t PoolImpl::SampleTime() const {
  // Counted for each thread, so that threads need not agree.
  static thread_local int since_sample = 0;
  if (options_.sample_every == 0 || ++since_sample < options_.sample_every) {
    return 0;
  }
  since_sample = 0;
  return PreciseNow();
}

void PoolImpl::PushLocked(JobBox& job) {
  ready_.Push(job);
  has_ready_.store(true, std::memory_order_relaxed);
}

absl::Status PoolImpl::Submit(JobBox job) {
  job.set_queued_at(SampleTime());
  Admission admission;
  Worker* wake = nullptr;
  {
    AdaptiveMutexLock lock(mutex_);
    admission = AdmitLocked();
    if (admission == Admission::kOk) {
      PushLocked(job);
      ++submitted_;
      wake = CallSearcherLocked();
    }
  }
  Wake(wake);
  return admission == Admission::kOk ? absl::OkStatus() : Refusal(admission);
}

absl::Status PoolImpl::SubmitInOrder(std::unique_ptr<ConnectionJob> job) {
  job->queued_at = SampleTime();
  Admission admission;
  {
    AdaptiveMutexLock lock(mutex_);
    admission = AdmitLocked();
    // From here on no worker ends before this job.
    if (admission == Admission::kOk) ++submitted_;
  }
  if (admission != Admission::kOk) return Refusal(admission);
  if (strands_.Begin(job)) PushNext(std::move(job), nullptr);
  return absl::OkStatus();
}

void PoolImpl::PushNext(std::unique_ptr<ConnectionJob> next,
                        Worker* me) noexcept {
  const int64_t queued_at = next->queued_at;
  JobBox job(std::move(next));
  job.set_queued_at(queued_at);
  Worker* wake = nullptr;
  {
    AdaptiveMutexLock lock(mutex_);
    PushLocked(job);
    if (me != nullptr && ready_.size() == 1 && me->batch.empty()) {
      // It will take this one itself.
      me->must_look = true;
    } else {
      wake = CallSearcherLocked();
    }
  }
  Wake(wake);
}

// --- Who is awake

Worker* PoolImpl::CallSearcherLocked() {
  if (searching_ || sleepers_.empty()) return nullptr;
  // The last one to fall asleep: the others may sleep on.
  Worker* worker = sleepers_.back();
  sleepers_.pop_back();
  searching_ = true;
  worker->called = true;
  return worker;
}

bool PoolImpl::AnyBatch() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return !worker->batch.empty(); });
}

// --- Working

void PoolImpl::Work(Worker& me, int index) {
  current_pool = this;
  const std::string name = absl::StrCat(options_.thread_name, "-", index);
  pthread_setname_np(pthread_self(), name.c_str());
  me.neighbour = static_cast<size_t>(index);
  while (JobBox job = Next(me)) Execute(me, job);
  current_pool = nullptr;
}

bool PoolImpl::WithinJob() const {
  return current_pool == this || cancelling_.load(std::memory_order_relaxed) ==
                                     std::this_thread::get_id();
}

JobBox PoolImpl::Next(Worker& me) {
  if (JobBox job = me.batch.Take()) return job;
  const int64_t now = PreciseNow();
  me.pace.Ran(me.claimed.Get() - me.claimed_at,
              now - me.batch_at.load(std::memory_order_relaxed));
  me.claimed_at = me.claimed.Get();
  me.batch_at.store(now, std::memory_order_relaxed);
  if (!std::exchange(me.must_look, false)) {
    if (JobBox job = TakeFromStalledNeighbour(me, now)) return job;
  }
  return Wait(me);
}

// Jobs in the batch of a worker that is held up are older than those in the
// queue. One neighbour each time: it is soon found, and costs next to nothing.
JobBox PoolImpl::TakeFromStalledNeighbour(Worker& me, int64_t now) {
  if (++me.neighbour >= workers_.size()) me.neighbour = 0;
  Worker& other = *workers_[me.neighbour];
  if (other.batch.empty() ||
      now - other.batch_at.load(std::memory_order_relaxed) < kStalledNanos) {
    return JobBox();
  }
  return other.batch.Take();
}

JobBox PoolImpl::Steal(int64_t taken_before) {
  for (const auto& worker : workers_) {
    if (worker->batch.empty() ||
        worker->batch_at.load(std::memory_order_relaxed) > taken_before) {
      continue;
    }
    if (JobBox job = worker->batch.Take()) return job;
  }
  return JobBox();
}

JobBox PoolImpl::Wait(Worker& me) {
  bool searching = false;
  for (int polls = 0;; ++polls) {
    const bool tired = polls >= polls_;
    if (!searching || tired || has_ready_.load(std::memory_order_relaxed)) {
      JobBox job;
      switch (Look(me, tired, &searching, &job)) {
        case Sight::kJob:
          return job;
        case Sight::kEnd:
          return JobBox();
        case Sight::kNothing:
          break;
        case Sight::kNight:
          me.bed.Sleep();
          searching = std::exchange(me.called, false);
          polls = -1;
          me.batch_at.store(PreciseNow(), std::memory_order_relaxed);
          continue;
      }
    }
    const int64_t now = PreciseNow();
    me.batch_at.store(now, std::memory_order_relaxed);
    if (JobBox job = Steal(now - kStalledNanos)) {
      EndSearch();
      return job;
    }
    if (!tired) {
      PauseAboutAMicrosecond();
    } else {
      // Only while a batch of another worker is not empty.
      sched_yield();
    }
  }
}

PoolImpl::Sight PoolImpl::Look(Worker& me, bool tired, bool* searching,
                               JobBox* job) {
  Worker* wake = nullptr;
  std::vector<Worker*> wake_all;
  Sight sight = Sight::kNothing;
  {
    AdaptiveMutexLock lock(mutex_);
    if (!ready_.empty()) {
      TakeLocked(me, job);
      if (std::exchange(*searching, false)) searching_ = false;
      if (!ready_.empty() || !me.batch.empty()) wake = CallSearcherLocked();
      sight = Sight::kJob;
    } else if (closing_ && QueuedLocked() == 0) {
      if (std::exchange(*searching, false)) searching_ = false;
      wake_all.swap(sleepers_);
      sight = Sight::kEnd;
    } else if (!*searching && !searching_) {
      *searching = searching_ = true;
    } else if (!*searching || (tired && !AnyBatch())) {
      if (std::exchange(*searching, false)) searching_ = false;
      sleepers_.push_back(&me);
      sight = Sight::kNight;
    }
  }
  Wake(wake);
  for (Worker* worker : wake_all) Wake(worker);
  return sight;
}

void PoolImpl::TakeLocked(Worker& me, JobBox* job) {
  // No more than a fair share: the others want some too.
  const size_t most =
      std::min<size_t>(me.pace.limit(), ready_.size() / workers_.size());
  *job = ready_.Pop();
  uint32_t more = 0;
  while (more + 1 < most) me.batch.Put(more++, ready_.PopWords());
  if (more > 0) me.batch.Publish(more);
  if (ready_.empty()) has_ready_.store(false, std::memory_order_relaxed);
}

void PoolImpl::EndSearch() {
  Worker* wake = nullptr;
  {
    AdaptiveMutexLock lock(mutex_);
    searching_ = false;
    if (!ready_.empty() || AnyBatch()) wake = CallSearcherLocked();
  }
  Wake(wake);
}

// --- One job

void PoolImpl::Execute(Worker& me, JobBox& box) noexcept {
  me.claimed.Add(1);
  const bool cancel = cancel_.load(std::memory_order_relaxed);
  if (!cancel && box.queued_at() != 0) {
    me.queue_times.Add(PreciseNow() - box.queued_at());
  }
  if (Job* job = box.job()) {
    if (ConnectionJob* c = job->for_connection()) {
      (void)box.ReleaseJob().release();
      ExecuteForConnection(me, std::unique_ptr<ConnectionJob>(c), cancel);
    } else {
      if (!cancel) ExecutePlain(me, box);
      box = JobBox();
    }
  } else if (!cancel) {
    ExecutePlain(me, box);
  }
  (cancel ? me.cancelled : me.done).Add(1);
}

void PoolImpl::ExecutePlain(Worker& me, JobBox& box) {
  std::string what;
  if (!RunCatching(me, box, &what)) {
    logger_.Log(LogLevel::kError, absl::StrCat("a plain job threw: ", what));
  }
}

void PoolImpl::ExecuteForConnection(Worker& me,
                                    std::unique_ptr<ConnectionJob> job,
                                    bool cancel) {
  std::string what;
  if (cancel) {
    job->Fail(absl::CancelledError("the worker pool was shut down"));
  } else if (!RunCatching(me, *job, &what)) {
    job->Fail(absl::InternalError(absl::StrCat("the work threw: ", what)));
  }
  const ConnectionRef ref = job->ref();
  ConnectionJob::Deliver(std::move(job), drops_);
  if (options_.order != JobOrder::kPerConnection) return;
  // Only now: the next one's result must not overtake this one's.
  if (std::unique_ptr<ConnectionJob> next = strands_.End(ref)) {
    PushNext(std::move(next), &me == &canceller_ ? nullptr : &me);
  }
}

template <typename J>
bool PoolImpl::RunCatching(Worker& me, J& job, std::string* what) {
  try {
    job.Run();
    return true;
  } catch (const std::exception& e) {
    *what = e.what();
  } catch (...) {
    *what = "something that is no std::exception";
  }
  me.exceptions.Add(1);
  return false;
}

}  // namespace sluice::internal
