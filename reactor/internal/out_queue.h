// Internal: bytes that the kernel did not take at once.
#ifndef SLUICE_REACTOR_INTERNAL_OUT_QUEUE_H_
#define SLUICE_REACTOR_INTERNAL_OUT_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "reactor/buffer_pool.h"
#include "reactor/payload.h"

namespace sluice::internal {

// A queue of blocks: pooled ones, and payloads that others hold too.
//
//   head_                                     last
//   | sent |  unsent  |  | a payload ..... |  | unsent | free |
//          ^ begin_                                    ^ end
//
// Thread: the reactor's.
class OutQueue {
 public:
  // Copies.
  void Append(BufferPool& pool, std::string_view bytes);
  // Holds the payload, of which `sent` bytes (fewer than all) have left
  // already: 0 unless the queue is empty. A small one behind others is copied:
  // an entry for each would take more memory than its bytes.
  void Append(BufferPool& pool, Payload payload, size_t sent = 0);

  // Fills at most room.size() entries with the front of the queue; returns how
  // many.
  size_t Gather(std::span<iovec> room) const;

  // The first `bytes` were sent. Blocks go back as soon as they are empty.
  void Consume(size_t bytes);

  size_t bytes() const { return bytes_; }
  // Of them in pooled blocks; the others are in payloads.
  size_t pooled_bytes() const { return bytes_ - held_bytes_; }
  bool empty() const { return bytes_ == 0; }

 private:
  struct Block {
    const char* data() const {
      return buffer ? buffer.data() : payload.view().data();
    }
    // Of a payload: none.
    size_t room() const { return buffer ? buffer.capacity() - end : 0; }

    Buffer buffer;    // or
    Payload payload;  // one of the two
    size_t end = 0;   // of the bytes in it
  };
  std::vector<Block> blocks_;
  size_t head_ = 0;   // blocks before it were given back
  size_t begin_ = 0;  // in the head block
  size_t bytes_ = 0;
  size_t held_bytes_ = 0;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_OUT_QUEUE_H_
