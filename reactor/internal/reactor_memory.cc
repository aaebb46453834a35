// What a reactor does about the BufferBudget.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {

// At the end of a turn, when there is a budget.
void ReactorImpl::MindBudget() {
  if (!budget_->exceeded()) {
    if (!held_back_.empty()) ReadHeldBack();
  } else if (tracking_) {
    CloseWorst();
  }
}

// --- WhenOverBudget::kPauseReaders

// An event was to be read.
void ReactorImpl::HoldBack(Connection& c) {
  c.armed_ |= kInterestHeldBack;
  held_back_.push_back(KeyOf(c));
  counters_.readers_paused.Add(1);
  UpdateInterest(c);
}

// In slices: all at once would only exceed the budget again.
void ReactorImpl::ReadHeldBack() {
  for (size_t i = 0; i < kFlushesPerTurn && held_back_done_ < held_back_.size();
       ++i) {
    Connection* c = FindKey(held_back_[held_back_done_++]);
    if (c == nullptr) continue;
    c->armed_ &= static_cast<uint8_t>(~kInterestHeldBack);
    if (StateOf(c->state_) < ConnectionState::kMarked) UpdateInterest(*c);
  }
  if (held_back_done_ == held_back_.size()) {
    held_back_.clear();
    held_back_done_ = 0;
  }
}

// --- WhenOverBudget::kCloseWorst

// Keeps the list of those with buffers; after anything that may have changed
// what the connection, which has an active state, holds.
void ReactorImpl::Track(Connection& c) {
  ActiveState& active = *c.active_;
  const bool holds = active.in.size() > 0 || !active.out.empty();
  if (holds == active.listed) return;
  if (!holds) {
    Unlist(c);
    return;
  }
  active.listed = true;
  active.listed_previous = 0;
  active.listed_next = listed_;
  const uint32_t slot = slab_.SlotOf(c);
  if (listed_ != 0) slab_.At(listed_)->active_->listed_previous = slot;
  listed_ = slot;
}

void ReactorImpl::Unlist(Connection& c) {
  ActiveState& active = *c.active_;
  active.listed = false;
  const uint32_t next = active.listed_next;
  const uint32_t previous = active.listed_previous;
  if (next != 0) slab_.At(next)->active_->listed_previous = previous;
  if (previous != 0) {
    slab_.At(previous)->active_->listed_next = next;
  } else {
    listed_ = next;
  }
}

// A walk over those that hold something. Each turn anew while the budget is
// exceeded: a reactor that is at its share leaves the rest to the others and
// may grow above it again.
void ReactorImpl::CloseWorst() {
  if (pool_.outstanding_bytes() <= budget_->share()) return;
  std::vector<std::pair<size_t, uint32_t>> worst;  // bytes, slot
  for (uint32_t slot = listed_; slot != 0;) {
    Connection& c = *slab_.At(slot);
    ActiveState& active = *c.active_;
    if (StateOf(c.state_) < ConnectionState::kMarked) {
      worst.emplace_back(active.in.size() + active.out.pooled_bytes(), slot);
    } else {
      // It ends anyhow, perhaps some turns from now.
      DropOutput(active);
    }
    slot = active.listed_next;
  }
  std::make_heap(worst.begin(), worst.end());
  while (!worst.empty() && budget_->exceeded() &&
         pool_.outstanding_bytes() > budget_->share()) {
    std::pop_heap(worst.begin(), worst.end());
    CloseForMemory(*slab_.At(worst.back().second));
    worst.pop_back();
  }
}

void ReactorImpl::DropOutput(ActiveState& active) {
  active.unsent += active.out.bytes();
  active.out = OutQueue();
}

// The blocks go back at once, so that the usage tells who else has to go.
void ReactorImpl::CloseForMemory(Connection& c) {
  c.reason_ = CloseReason::kMemoryPressure;  // also if it was flushing
  CloseForLimit(c, CloseReason::kMemoryPressure,
                "the BufferBudget is " + std::to_string(budget_->bytes()) +
                    " bytes, " + std::to_string(budget_->used()) +
                    " are in use");
  DropOutput(*c.active_);
  c.active_->in = InBuffer();
  Unlist(c);
}

}  // namespace sluice::internal
