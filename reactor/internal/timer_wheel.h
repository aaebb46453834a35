// Internal: deadlines of connections, O(1), with links inside the records.
#ifndef SLUICE_REACTOR_INTERNAL_TIMER_WHEEL_H_
#define SLUICE_REACTOR_INTERNAL_TIMER_WHEEL_H_

#include <array>
#include <bit>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "reactor/connection.h"

namespace sluice::internal {

// A hierarchical wheel: level l has 64 lists, each 64^l ticks wide.
//
//   level 0   |.|.|#|.|.|. ... |   1 tick a list, the next 64 ticks
//   level 1   |.|#|.|.|.|. ... |   64 ticks a list, the next 4,096
//   level 2   |.|.|.|.|.|. ... |   ...
//
// A node lies in the list of its deadline on the lowest level that reaches it.
// When the level below has come round, the list is dealt out again, so a node
// is touched at most once a level. A bit for each list says which are in use:
// an empty stretch costs nothing, and the next wake-up is found in O(levels).
//
// Nodes are named by a slot (> 0, < 2^31) and found through `find`: the links
// are 4-byte slots, not pointers.
//
// Ticks wrap round: of two, the later one is at most 2^31 - 1 ahead. So compare
// them by the sign of their difference, and set no deadline, and make no jump,
// farther than that.
// Thread: one.
class TimerWheel {
 public:
  static constexpr int kLevels = 5;
  static constexpr uint32_t kNever = UINT32_MAX;

  using Find = WheelNode& (*)(void* context, uint32_t slot);

  // Starts at tick `now`. find(context, slot) is the node of `slot`.
  TimerWheel(uint32_t now, Find find, void* context)
      : find_(find), context_(context), now_(now), cursor_(now) {}

  // Puts `slot` in at `deadline`; a deadline not after now() is due at the next
  // tick, one beyond kLevels levels is looked at again on the way. Ticks 0 and
  // kNever, each met once in 2^32, are put off to tick 1. A slot that is in
  // already moves.
  void Set(uint32_t slot, uint32_t deadline);

  // Takes it out; harmless if it is not in.
  void Cancel(uint32_t slot);

  // Moves on to `now`; calls expired(slot) for each node whose deadline is at
  // or before it, already taken out, in the order of the deadlines. `expired`
  // may Set or Cancel any slot: for it now() is `now` already, so nothing that
  // it sets comes up in the same call. It must not throw or Advance.
  void Advance(uint32_t now, absl::FunctionRef<void(uint32_t slot)> expired);

  // The earliest tick at which Advance may have work; kNever if empty. Never
  // later than the first deadline, perhaps earlier (a list to deal out).
  uint32_t NextTick() const;

  uint32_t now() const { return now_; }
  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }

 private:
  static constexpr int kBits = 6;
  static constexpr uint32_t kLists = 1u << kBits;
  // A link with this bit names the list itself: level << kBits | index.
  static constexpr uint32_t kHead = 1u << 31;
  static constexpr uint32_t kReach = 1u << (kLevels * kBits);

  // Links a node whose deadline is set into the list where it belongs.
  void Insert(uint32_t slot, WheelNode& node);
  // Moves the list of `level` that begins at the cursor to lower levels.
  void DealOut(uint32_t level);

  Find find_;
  void* context_;
  uint32_t now_;
  uint32_t cursor_;  // the lists up to here are done; now_ outside of Advance
  uint32_t size_ = 0;
  std::array<uint64_t, kLevels> used_{};
  std::array<std::array<uint32_t, kLists>, kLevels> heads_{};  // 0: empty
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_TIMER_WHEEL_H_
