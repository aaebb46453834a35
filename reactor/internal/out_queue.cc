#include "reactor/internal/out_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::internal {
namespace {

constexpr size_t kCopiedBytes = 1024;

}  // namespace

void OutQueue::Append(BufferPool& pool, std::string_view bytes) {
  while (!bytes.empty()) {
    if (head_ == blocks_.size() || blocks_.back().room() == 0) {
      // A long queue gets large blocks: fewer of them, fewer system calls.
      const size_t want = std::clamp<size_t>(std::max(bytes.size(), bytes_), 1,
                                             BufferPool::kClasses[2]);
      blocks_.push_back(Block{pool.Allocate(want), Payload(), 0});
    }
    Block& last = blocks_.back();
    const size_t n = std::min(bytes.size(), last.room());
    std::memcpy(last.buffer.data() + last.end, bytes.data(), n);
    last.end += n;
    bytes_ += n;
    bytes.remove_prefix(n);
  }
}

void OutQueue::Append(BufferPool& pool, Payload payload, size_t sent) {
  const size_t size = payload.size();
  if (!empty() && size < kCopiedBytes) {
    Append(pool, payload.view());
    return;
  }
  if (empty()) begin_ = sent;
  blocks_.push_back(Block{Buffer(), std::move(payload), size});
  bytes_ += size - sent;
  held_bytes_ += size - sent;
}

size_t OutQueue::Gather(std::span<iovec> room) const {
  size_t count = 0;
  size_t begin = begin_;
  for (size_t i = head_; i < blocks_.size() && count < room.size(); ++i) {
    room[count].iov_base = const_cast<char*>(blocks_[i].data()) + begin;
    room[count].iov_len = blocks_[i].end - begin;
    ++count;
    begin = 0;
  }
  return count;
}

void OutQueue::Consume(size_t bytes) {
  bytes_ -= bytes;
  while (bytes > 0) {
    const size_t n = std::min(bytes, blocks_[head_].end - begin_);
    begin_ += n;
    bytes -= n;
    if (!blocks_[head_].buffer) held_bytes_ -= n;
    if (begin_ == blocks_[head_].end) {
      blocks_[head_].buffer.Release();
      blocks_[head_].payload = Payload();
      ++head_;
      begin_ = 0;
    }
  }
  if (head_ == blocks_.size()) {
    blocks_.clear();
    head_ = 0;
  } else if (head_ >= 64 && head_ * 2 >= blocks_.size()) {
    blocks_.erase(blocks_.begin(),
                  blocks_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
}

}  // namespace sluice::internal
