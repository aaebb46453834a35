#include "reactor/internal/timer_wheel.h"

#include <algorithm>

namespace sluice::internal {

void TimerWheel::Set(uint32_t slot, uint32_t deadline) {
  Cancel(slot);
  if (static_cast<int32_t>(deadline - now_) <= 0) deadline = now_ + 1;
  // Two values are taken: kNever, and 0, which marks a node that is not in.
  if (deadline == kNever || deadline == 0) deadline = 1;
  WheelNode& node = find_(context_, slot);
  node.deadline = deadline;
  Insert(slot, node);
  ++size_;
}

void TimerWheel::Cancel(uint32_t slot) {
  WheelNode& node = find_(context_, slot);
  if (node.deadline == 0) return;
  if ((node.previous & kHead) != 0) {
    const uint32_t level = (node.previous & ~kHead) >> kBits;
    const uint32_t index = node.previous & (kLists - 1);
    heads_[level][index] = node.next;
    if (node.next == 0) used_[level] &= ~(uint64_t{1} << index);
  } else {
    find_(context_, node.previous).next = node.next;
  }
  if (node.next != 0) find_(context_, node.next).previous = node.previous;
  node = WheelNode{};
  --size_;
}

void TimerWheel::Insert(uint32_t slot, WheelNode& node) {
  // A node that no level reaches goes into the last list of the last one.
  const uint32_t ahead = std::min(node.deadline - cursor_, kReach - 1);
  const uint32_t level =
      ahead < kLists ? 0
                     : static_cast<uint32_t>(std::bit_width(ahead) - 1) /
                           static_cast<uint32_t>(kBits);
  const uint32_t index = ((cursor_ + ahead) >> (level * kBits)) & (kLists - 1);
  uint32_t& head = heads_[level][index];
  node.next = head;
  node.previous = kHead | level << kBits | index;
  if (head != 0) find_(context_, head).previous = slot;
  head = slot;
  used_[level] |= uint64_t{1} << index;
}

void TimerWheel::Advance(uint32_t now,
                         absl::FunctionRef<void(uint32_t slot)> expired) {
  if (static_cast<int32_t>(now - now_) <= 0) return;
  now_ = now;
  while (size_ > 0) {
    const uint32_t next = NextTick();
    if (next - cursor_ > now - cursor_) break;
    cursor_ = next;
    // In any order: what is dealt out goes to lists ahead of the cursor's own,
    // or to the one of level 0 that is worked off below.
    for (uint32_t level = 1; level < kLevels; ++level) {
      const uint32_t below = (1u << (level * kBits)) - 1;
      if ((cursor_ & below) == 0) DealOut(level);
    }
    // Nothing is put into this list while it is worked off: what expired sets
    // is due after now_, and 64 ticks on belongs to level 1.
    const uint32_t index = cursor_ & (kLists - 1);
    while (heads_[0][index] != 0) {
      const uint32_t slot = heads_[0][index];
      Cancel(slot);
      expired(slot);
    }
  }
  cursor_ = now;
}

void TimerWheel::DealOut(uint32_t level) {
  const uint32_t index = (cursor_ >> (level * kBits)) & (kLists - 1);
  uint32_t slot = heads_[level][index];
  heads_[level][index] = 0;
  used_[level] &= ~(uint64_t{1} << index);
  while (slot != 0) {
    WheelNode& node = find_(context_, slot);
    const uint32_t next = node.next;
    Insert(slot, node);
    slot = next;
  }
}

uint32_t TimerWheel::NextTick() const {
  if (size_ == 0) return kNever;
  uint32_t nearest = UINT32_MAX;
  for (uint32_t level = 0; level < kLevels; ++level) {
    if (used_[level] == 0) continue;
    // Lists in use lie 1 to 64 steps ahead of the cursor's own.
    const uint32_t block = cursor_ >> (level * kBits);
    const int first = static_cast<int>((block + 1) & (kLists - 1));
    const uint32_t steps =
        1u +
        static_cast<uint32_t>(std::countr_zero(std::rotr(used_[level], first)));
    const uint32_t tick = (block + steps) << (level * kBits);
    nearest = std::min(nearest, tick - cursor_);
  }
  return cursor_ + nearest;
}

}  // namespace sluice::internal
