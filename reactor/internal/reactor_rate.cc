// How much a peer may send: ConnectionLimits::rate_limit.
//
// Two buckets in the active state. What was read or handled is charged; when
// there is not enough left for another byte and message, reading pauses (or the
// connection ends). The wheel's node comes up when there is, and once more when
// the buckets are full: then nothing has to be remembered.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "reactor/internal/clock.h"
#include "reactor/internal/engine_impl.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {

void Bounds::SetRate(const sluice::RateLimit& limit) {
  bytes = messages = RateLimit();
  read_most = SIZE_MAX;
  when_over = limit.when_over;
  if (limit.bytes_per_second != 0) {
    bytes = RateLimit(limit.bytes_per_second, limit.byte_burst);
    read_most = static_cast<size_t>(limit.byte_burst);
  }
  if (limit.messages_per_second != 0) {
    messages = RateLimit(limit.messages_per_second, limit.message_burst);
  }
}

absl::Status ReactorImpl::SetRateLimit(Connection& c,
                                       const sluice::RateLimit& limit) {
  if (absl::Status s = ValidateRateLimit(limit); !s.ok()) return s;
  if (StateOf(c.state_) >= ConnectionState::kMarked) return absl::OkStatus();
  ActiveState& active = Activate(c);
  if (active.own == nullptr) active.own = std::make_unique<Bounds>(bounds_);
  active.own->SetRate(limit);
  rate_limited_ |= active.own->rate_limited();
  active.bytes = active.messages = RateBucket();
  if (active.rate_paused) EndRatePause(c);
  if (in_callback_ != &c) MarkDirty(c);
  return absl::OkStatus();
}

// False if the connection has ended for it.
bool ReactorImpl::ChargeInput(Connection& c, size_t bytes) {
  const Bounds& bounds = BoundsOf(c);
  if (!bounds.bytes.limited()) return true;
  ActiveState& active = Activate(c);
  const bool first = !active.charged();
  const int64_t debt = active.bytes.Charge(
      bounds.bytes, static_cast<int64_t>(bytes), PreciseNow());
  if (debt > 0 && bounds.when_over == WhenOverRate::kClose) {
    CloseOverRate(c, bounds.bytes, "bytes");
    return false;
  }
  // A pause begins after the callback (Settle): what was read is delivered.
  if (first) Schedule(c);
  return true;
}

bool ReactorImpl::ChargeMessages(Connection& c, size_t n) {
  if (StateOf(c.state_) != ConnectionState::kOpen) return false;
  const Bounds& bounds = BoundsOf(c);
  if (!bounds.messages.limited()) return true;
  ActiveState& active = Activate(c);
  const bool first = !active.charged();
  const int64_t now = PreciseNow();
  const int64_t debt = active.messages.Charge(
      bounds.messages, static_cast<int64_t>(std::min<size_t>(n, INT64_MAX)),
      now);
  if (bounds.when_over == WhenOverRate::kClose) {
    if (debt > 0) {
      CloseOverRate(c, bounds.messages, "messages");
      return false;
    }
  } else if (active.messages.WaitFor(bounds.messages, 1, now) > 0 &&
             !active.rate_paused) {
    PauseForRate(c);
  }
  if (first) Schedule(c);
  if (in_callback_ != &c) MarkDirty(c);
  return !active.rate_paused;
}

void ReactorImpl::CloseOverRate(Connection& c, const RateLimit& limit,
                                const char* unit) {
  const auto whole = [](double x) {
    return std::to_string(static_cast<int64_t>(x));
  };
  CloseForLimit(c, CloseReason::kRateLimit,
                "the limit is " + whole(limit.Units(kNanosPerSecond)) + " " +
                    unit + " a second, burst " +
                    whole(limit.Units(limit.span())));
}

// Nanoseconds until another byte and message are allowed; 0: now.
int64_t ReactorImpl::RateWait(const Connection& c, int64_t now) const {
  const Bounds& bounds = BoundsOf(c);
  int64_t wait = 0;
  if (bounds.bytes.limited()) {
    wait = c.active_->bytes.WaitFor(bounds.bytes, 1, now);
  }
  if (bounds.messages.limited()) {
    wait = std::max(wait, c.active_->messages.WaitFor(bounds.messages, 1, now));
  }
  return wait;
}

// The first tick at which a pause ends, or else the buckets are full.
uint32_t ReactorImpl::RateTick(const Connection& c) const {
  // Farther than that no tick may be; it is looked at then.
  constexpr int64_t kFar = int64_t{365} * 24 * 3600 * kNanosPerSecond;
  const ActiveState& active = *c.active_;
  const int64_t now = PreciseNow();
  const int64_t left =
      active.rate_paused
          ? RateWait(c, now)
          : std::max(active.bytes.full_at, active.messages.full_at) - now;
  if (left <= 0) return tick_;
  return static_cast<uint32_t>(TickAt(now + std::min(left, kFar)) + 1);
}

void ReactorImpl::PauseForRate(Connection& c) {
  c.active_->rate_paused = true;
  counters_.rate_paused.Add(1);
  Schedule(c);
}

void ReactorImpl::EndRatePause(Connection& c) {
  c.active_->rate_paused = false;
  if (c.active_->in.size() == 0) return;
  c.active_->tell_again = true;
  if (in_callback_ != &c) MarkDirty(c);
}

// Of a connection that has charged something, not inside its callback.
void ReactorImpl::LookAtRate(Connection& c) {
  ActiveState& active = *c.active_;
  if (StateOf(c.state_) != ConnectionState::kOpen) {
    active.bytes = active.messages = RateBucket();
    active.rate_paused = false;
    return;
  }
  const int64_t now = PreciseNow();
  if (RateWait(c, now) > 0) {
    if (!active.rate_paused && BoundsOf(c).when_over == WhenOverRate::kPause) {
      PauseForRate(c);
    }
    return;
  }
  if (active.rate_paused) EndRatePause(c);
  if (active.bytes.full_at <= now) active.bytes = RateBucket();
  if (active.messages.full_at <= now) active.messages = RateBucket();
}

}  // namespace sluice::internal
