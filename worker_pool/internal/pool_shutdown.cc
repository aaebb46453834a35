// The end of a pool, and what it has counted.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "worker_pool/internal/pool_impl.h"

namespace sluice::internal {

void PoolImpl::BeginShutdown(AtShutdown policy) {
  if (policy == AtShutdown::kCancel) {
    cancel_.store(true, std::memory_order_relaxed);
  }
  {
    AdaptiveMutexLock lock(mutex_);
    closing_ = true;
  }
  WakeAll();
  if (policy == AtShutdown::kCancel) CancelQueued();
}

// They see by themselves whether there is something left to do.
void PoolImpl::WakeAll() {
  std::vector<Worker*> sleepers;
  {
    AdaptiveMutexLock lock(mutex_);
    sleepers.swap(sleepers_);
  }
  for (Worker* worker : sleepers) Wake(worker);
}

// Workers cancel what they come to, but all of them may be held up, and the
// clients of what is queued should not wait for that. Jobs that wait for one of
// their connection that runs are the exception: theirs would overtake it.
void PoolImpl::CancelQueued() {
  // One at a time: what is destroyed here may call BeginShutdown too.
  std::thread::id nobody;
  if (!cancelling_.compare_exchange_strong(nobody, std::this_thread::get_id(),
                                           std::memory_order_acquire)) {
    return;
  }
  for (;;) {
    JobBox job;
    {
      AdaptiveMutexLock lock(mutex_);
      if (!ready_.empty()) TakeLocked(canceller_, &job);
    }
    if (!job) job = Steal(INT64_MAX);
    if (!job) break;
    Execute(canceller_, job);
  }
  // If that was the last one, those who sleep may end.
  WakeAll();
  cancelling_.store(std::thread::id(), std::memory_order_release);
  cancelling_.notify_all();
}

void PoolImpl::Join() {
  std::lock_guard<std::mutex> lock(join_mutex_);
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  // Another thread may still be at the last job it cancels.
  std::thread::id who;
  while ((who = cancelling_.load(std::memory_order_acquire)) !=
         std::thread::id()) {
    cancelling_.wait(who, std::memory_order_acquire);
  }
}

WorkerPoolStats PoolImpl::stats() const {
  WorkerPoolStats s;
  s.threads = threads();
  s.dropped = drops_->drops();
  const auto add = [&s](const Worker& worker) {
    const uint64_t done = worker.done.Get();
    const uint64_t cancelled = worker.cancelled.Get();
    s.done += done;
    s.cancelled += cancelled;
    s.exceptions += worker.exceptions.Get();
    // It has one job at a time, however many go by while we look.
    if (worker.claimed.Get() > done + cancelled) ++s.running;
    worker.queue_times.AddTo(&s.queue_times);
  };
  for (const auto& worker : workers_) add(*worker);
  add(canceller_);
  AdaptiveMutexLock lock(mutex_);
  s.submitted = submitted_;
  s.rejected = rejected_;
  s.refused = refused_;
  s.queued = static_cast<size_t>(QueuedLocked());
  return s;
}

}  // namespace sluice::internal
