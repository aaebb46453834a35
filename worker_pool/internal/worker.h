// Internal: what belongs to one worker.
#ifndef SLUICE_WORKER_POOL_INTERNAL_WORKER_H_
#define SLUICE_WORKER_POOL_INTERNAL_WORKER_H_

#include <semaphore.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "reactor/internal/counters.h"
#include "worker_pool/internal/batch.h"
#include "worker_pool/internal/pace.h"
#include "worker_pool/stats.h"

namespace sluice::internal {

// Where a worker sleeps. A Wake before the Sleep is not lost.
class Bed {
 public:
  Bed() { sem_init(&semaphore_, 0, 0); }
  ~Bed() { sem_destroy(&semaphore_); }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  void Sleep() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }
  void Wake() { sem_post(&semaphore_); }

 private:
  sem_t semaphore_;
};

// QueueTimes that one thread writes and any reads.
class QueueTimeRecorder {
 public:
  void Add(int64_t nanos) {
    const auto ns = static_cast<uint64_t>(nanos < 0 ? 0 : nanos);
    counts_[QueueTimes::Bucket(ns)].Add(1);
    if (ns > max_.Get()) max_.Set(ns);
  }
  void AddTo(QueueTimes* times) const {
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (const uint64_t jobs = counts_[i].Get()) times->Add(i, jobs);
    }
    times->RaiseMax(std::chrono::nanoseconds(static_cast<int64_t>(max_.Get())));
  }

 private:
  std::array<Counter, QueueTimes::kBuckets> counts_;
  Counter max_;
};

// One worker; a shutdown that cancels has one too, without a thread.
struct Worker {
  // Read by others.
  Batch batch;
  alignas(64) Counter claimed;  // jobs begun, or about to be cancelled
  Counter done;
  Counter cancelled;
  Counter exceptions;
  std::atomic<int64_t> batch_at{0};  // when the batch was taken
  QueueTimeRecorder queue_times;
  Bed bed;

  // Its own.
  alignas(64) Pace pace;
  uint64_t claimed_at = 0;  // claimed, when the pace was last looked at
  size_t neighbour = 0;     // whom to look at next
  bool must_look = false;   // left a job in the queue without waking anybody
  bool called = false;      // woken to search; written before the bed's Wake

  std::thread thread;
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_WORKER_H_
