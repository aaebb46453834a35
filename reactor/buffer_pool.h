// Public header: recycled buffers of a few sizes, one pool a reactor.
#ifndef SLUICE_REACTOR_BUFFER_POOL_H_
#define SLUICE_REACTOR_BUFFER_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace sluice {

class BufferBudget;
class BufferPool;

// One block of a pool; gives it back when destroyed. Movable.
// Thread: any one at a time; it may be released on another than its pool's.
// Lifetime: must end before its pool.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Release();
      pool_ = std::exchange(other.pool_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      capacity_ = std::exchange(other.capacity_, 0);
    }
    return *this;
  }
  ~Buffer() { Release(); }

  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  explicit operator bool() const { return data_ != nullptr; }
  void Release();  // empty afterwards; harmless when empty

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, char* data, size_t capacity)
      : pool_(pool), data_(data), capacity_(capacity) {}

  BufferPool* pool_ = nullptr;
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

// Free lists of 4, 16, 64, 256 and 1,024 KiB blocks; what is larger comes from
// the system and goes back to it at once. Blocks are pages of their own
// mapping, so a free one can give its memory back without moving anything.
// Thread: Allocate and Trim on the thread that made the pool (or that called
//   BindToThisThread), Buffer's release and the counters on any.
// Lifetime: outlives its buffers; a buffer still out when it dies is a bug and
//   ends the program.
// Errors: memory that cannot be had ends the program, as operator new would
//   throw into a loop that could not go on.
class BufferPool {
 public:
  static constexpr std::array<size_t, 5> kClasses = {
      size_t{4} << 10, size_t{16} << 10, size_t{64} << 10, size_t{256} << 10,
      size_t{1} << 20};

  // Trim lowers the free bytes to `keep_bytes`. Blocks in use count in
  // `budget`, if there is one, which must outlive the pool.
  explicit BufferPool(size_t keep_bytes, BufferBudget* budget = nullptr);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  void BindToThisThread();

  // A block of at least `bytes` bytes (> 0), contents undefined.
  Buffer Allocate(size_t bytes);

  // True if more than keep_bytes are free: time for a Trim.
  bool wants_trim() const;

  // Gives the memory of free blocks above keep_bytes back to the system
  // (madvise(2), MADV_DONTNEED; the addresses stay reserved for reuse).
  void Trim();

  // [any] Bytes of blocks in use, and of free ones that hold memory.
  size_t outstanding_bytes() const {
    return outstanding_.load(std::memory_order_relaxed);
  }
  size_t cached_bytes() const {
    return cached_.load(std::memory_order_relaxed);
  }

 private:
  friend class Buffer;
  struct Rep;  // the free lists

  void Return(char* data, size_t capacity);

  std::unique_ptr<Rep> rep_;
  BufferBudget* const budget_;
  std::atomic<size_t> outstanding_{0};
  std::atomic<size_t> cached_{0};
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_BUFFER_POOL_H_
