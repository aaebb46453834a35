// Internal: the jobs that wait, first in, first out.
#ifndef SLUICE_WORKER_POOL_INTERNAL_JOB_QUEUE_H_
#define SLUICE_WORKER_POOL_INTERNAL_JOB_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "worker_pool/job_box.h"

namespace sluice::internal {

// A list of chunks of 4 KiB, so jobs lie one behind the other and memory
// follows what is queued; one empty chunk is kept. std::deque's chunks hold 16
// boxes, and it would go to malloc for each.
// Thread: one at a time.
class JobQueue {
 public:
  using Words = uint64_t[JobBox::kWords];

  JobQueue() = default;
  ~JobQueue() {
    while (!empty()) (void)Pop();
    delete front_;
    delete spare_;
  }
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // Throws std::bad_alloc, and `box` is then as it was.
  void Push(JobBox& box) {
    if (back_ == nullptr || end_ == kBoxes) AddChunk();
    box.ReleaseTo(back_->boxes[end_++]);
    ++size_;
  }
  // Not empty. Whoever takes the words owns the job; they are good until the
  // next call.
  const Words& PopWords() {
    if (begin_ == kBoxes) DropChunk();
    --size_;
    return front_->boxes[begin_++];
  }
  JobBox Pop() { return JobBox::FromWords(PopWords()); }

 private:
  static constexpr size_t kBoxes = 127;
  struct Chunk {
    Chunk* next;
    Words boxes[kBoxes];
  };

  void AddChunk() {
    Chunk* chunk = std::exchange(spare_, nullptr);
    if (chunk == nullptr) chunk = new Chunk;
    chunk->next = nullptr;
    if (back_ == nullptr) {
      front_ = chunk;
    } else {
      back_->next = chunk;
    }
    back_ = chunk;
    end_ = 0;
  }
  void DropChunk() {
    Chunk* chunk = std::exchange(front_, front_->next);
    begin_ = 0;
    if (spare_ == nullptr) {
      spare_ = chunk;
    } else {
      delete chunk;
    }
  }

  size_t size_ = 0;
  Chunk* front_ = nullptr;
  size_t begin_ = 0;  // in front_
  Chunk* back_ = nullptr;
  size_t end_ = 0;  // in back_
  Chunk* spare_ = nullptr;
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_JOB_QUEUE_H_
