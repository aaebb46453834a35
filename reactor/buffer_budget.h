// Public header: one bound for what all connections buffer together.
#ifndef SLUICE_REACTOR_BUFFER_BUDGET_H_
#define SLUICE_REACTOR_BUFFER_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace sluice {

class BufferPool;
class Reactor;

namespace internal {
class ReactorImpl;
}  // namespace internal

// What a reactor does while a BufferBudget is exceeded.
enum class WhenOverBudget : uint8_t {
  // A connection that has something to read is not read; FIN and RST are
  // noticed. Goes on by itself below the mark. This holds what comes in back
  // and waits for what goes out: it needs peers that read, or a timeout that
  // ends those that do not (ConnectionLimits::write_timeout, idle_timeout).
  kPauseReaders,
  // At the end of a loop's turn the connections that hold the most bytes,
  // unread and unsent, end with CloseReason::kMemoryPressure until usage is
  // below the mark. With several reactors those above their equal share do so.
  kCloseWorst,
};

struct BufferBudgetOptions {
  size_t bytes = 0;  // >= 4,096, the smallest block
  WhenOverBudget when_over = WhenOverBudget::kPauseReaders;
};

// Counts the blocks of buffer pools in use: input a handler has not consumed,
// output the kernel has not taken, buffers a handler took from
// Reactor::buffers(). Whole blocks count, of 4 KiB at least. Exceeded once more
// than bytes() are in use, until resume_bytes(), 7/8 of them, are left.
// What one turn of a loop adds comes on top: nothing is refused. Payloads that
// output holds are not blocks: many connections may hold one.
// Thread: any.
// Lifetime: put into Options::buffer_budget, by several engines if they shall
//   share it; they keep it alive.
class BufferBudget {
 public:
  // InvalidArgument names the field and what is allowed.
  static absl::StatusOr<std::shared_ptr<BufferBudget>> Create(
      BufferBudgetOptions options);

  BufferBudget(const BufferBudget&) = delete;
  BufferBudget& operator=(const BufferBudget&) = delete;
  ~BufferBudget();

  size_t bytes() const { return options_.bytes; }
  size_t resume_bytes() const { return options_.bytes - options_.bytes / 8; }
  WhenOverBudget when_over() const { return options_.when_over; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  bool exceeded() const { return exceeded_.load(std::memory_order_relaxed); }

 private:
  friend class BufferPool;
  friend class internal::ReactorImpl;
  struct Reactors;  // whose connections count
  explicit BufferBudget(BufferBudgetOptions options);

  void Add(size_t bytes) {
    if (used_.fetch_add(bytes) + bytes > options_.bytes && !exceeded_.load())
        [[unlikely]]
      Look();
  }
  void Subtract(size_t bytes) {
    if (used_.fetch_sub(bytes) - bytes <= resume_bytes() && exceeded_.load())
        [[unlikely]]
      Look();
  }
  // Brings exceeded_ up to date and wakes the reactors if they shall act.
  void Look();

  void Join(Reactor* reactor);
  void Leave(Reactor* reactor);
  // What each reactor may hold when usage is at the mark. One has joined.
  size_t share() const {
    return resume_bytes() / joined_.load(std::memory_order_relaxed);
  }

  const BufferBudgetOptions options_;
  std::atomic<size_t> used_{0};
  std::atomic<bool> exceeded_{false};
  std::atomic<size_t> joined_{0};  // reactors
  const std::unique_ptr<Reactors> reactors_;
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_BUFFER_BUDGET_H_
