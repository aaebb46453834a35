// Internal: bytes a handler has not consumed yet.
#ifndef SLUICE_REACTOR_INTERNAL_IN_BUFFER_H_
#define SLUICE_REACTOR_INTERNAL_IN_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "reactor/buffer_pool.h"

namespace sluice::internal {

// One contiguous block, so that Peek never has to glue:
//
//   | consumed |  unread  |  free  |
//              ^ begin_   ^ end_   ^ capacity
//
// It grows by doubling and slides back to the front when half is consumed, so
// the bytes of a large frame are moved a bounded number of times.
// Thread: the reactor's.
class InBuffer {
 public:
  std::string_view view() const {
    return {buffer_.data() + begin_, end_ - begin_};
  }
  size_t size() const { return end_ - begin_; }

  // Room for at least `bytes` (> 0) more; all the free room is returned.
  // Invalidates views.
  std::span<char> Room(BufferPool& pool, size_t bytes) {
    if (buffer_.capacity() - end_ < bytes) {
      const size_t unread = size();
      if (buffer_.capacity() >= unread + bytes && begin_ >= unread) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, unread);
      } else {
        Buffer larger = pool.Allocate(std::max(unread + bytes, 2 * unread));
        if (unread > 0) {
          std::memcpy(larger.data(), buffer_.data() + begin_, unread);
        }
        buffer_ = std::move(larger);
      }
      begin_ = 0;
      end_ = unread;
    }
    return {buffer_.data() + end_, buffer_.capacity() - end_};
  }
  void Filled(size_t bytes) { end_ += bytes; }

  void Append(BufferPool& pool, std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(Room(pool, bytes.size()).data(), bytes.data(), bytes.size());
    Filled(bytes.size());
  }

  // The bytes stay where they are until Room or Trim: views stay good.
  void Consume(size_t bytes) { begin_ += bytes; }

  // Gives the block back if nothing is unread. Invalidates views.
  void Trim() {
    if (size() == 0) {
      buffer_.Release();
      begin_ = end_ = 0;
    }
  }

 private:
  Buffer buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_IN_BUFFER_H_
