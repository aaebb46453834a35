// Public header: one job of a worker pool as it lies in the queue. Templates
// need it; there is nothing here to use by itself.
#ifndef SLUICE_WORKER_POOL_JOB_BOX_H_
#define SLUICE_WORKER_POOL_JOB_BOX_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "worker_pool/job.h"

namespace sluice::internal {

// A job in 32 bytes. Work that is small and can be copied as bytes (captured
// references, pointers, numbers) lies inside:
//
//   | function that calls it | captures, at most 16 bytes | time |
//   | nullptr                | Job*                       | time |   others
//
// so that it costs no allocation, and lies in line with its neighbours when a
// worker on another CPU comes for it.
class JobBox {
 public:
  static constexpr size_t kWords = 4;
  static constexpr size_t kInline = 2 * sizeof(uint64_t);

  template <typename Work>
  static constexpr bool kFits = std::is_trivially_copyable_v<Work>&&
                                    std::is_trivially_destructible_v<Work> &&
                                sizeof(Work) <= kInline &&
                                alignof(Work) <= alignof(uint64_t);

  JobBox() = default;
  explicit JobBox(std::unique_ptr<Job> job) { SetJob(job.release()); }
  template <typename Work>
  requires kFits<Work>
  explicit JobBox(const Work& work) : call_(&Call<Work>) {
    std::memcpy(data_, &work, sizeof(Work));
  }
  JobBox(JobBox&& other) noexcept { Take(other); }
  JobBox& operator=(JobBox&& other) noexcept {
    if (this != &other) {
      delete job();
      Take(other);
    }
    return *this;
  }
  ~JobBox() { delete job(); }

  explicit operator bool() const {
    return call_ != nullptr || job() != nullptr;
  }
  // When it was submitted, PreciseNow; 0: not measured.
  int64_t queued_at() const { return queued_at_; }
  void set_queued_at(int64_t time) { queued_at_ = time; }
  // nullptr: the work lies inside.
  Job* job() const {
    if (call_ != nullptr) return nullptr;
    Job* job;
    std::memcpy(&job, data_, sizeof(job));
    return job;
  }
  std::unique_ptr<Job> ReleaseJob() {
    std::unique_ptr<Job> released(job());
    SetJob(nullptr);
    return released;
  }
  // Calls the work, once. It may throw.
  void Run() {
    if (call_ != nullptr) {
      call_(data_);
    } else {
      job()->Run();
    }
  }

  // The box as words, for places whose slots are atomic or not constructed.
  // Whoever has the words owns the job.
  void ReleaseTo(uint64_t (&words)[kWords]) {
    words[0] = reinterpret_cast<uintptr_t>(call_);
    std::memcpy(&words[1], data_, kInline);
    words[3] = static_cast<uint64_t>(queued_at_);
    call_ = nullptr;
    SetJob(nullptr);
  }
  static JobBox FromWords(const uint64_t (&words)[kWords]) {
    JobBox box;
    box.call_ =
        reinterpret_cast<void (*)(void*)>(static_cast<uintptr_t>(words[0]));
    std::memcpy(box.data_, &words[1], kInline);
    box.queued_at_ = static_cast<int64_t>(words[3]);
    return box;
  }

 private:
  template <typename Work>
  static void Call(void* data) {
    std::move (*std::launder(static_cast<Work*>(data)))();
  }
  void SetJob(Job* job) { std::memcpy(data_, &job, sizeof(job)); }
  void Take(JobBox& other) {
    call_ = std::exchange(other.call_, nullptr);
    std::memcpy(data_, other.data_, kInline);
    queued_at_ = other.queued_at_;
    other.SetJob(nullptr);
  }

  void (*call_)(void*) = nullptr;
  alignas(uint64_t) unsigned char data_[kInline] = {};
  int64_t queued_at_ = 0;
};
static_assert(sizeof(JobBox) == 32);
static_assert(sizeof(uintptr_t) <= sizeof(uint64_t));

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_JOB_BOX_H_
