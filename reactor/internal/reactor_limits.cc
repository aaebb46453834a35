// Deadlines of connections. All of them on one node of the wheel, which stands
// at the earliest or before it: it is looked at then and put in again. Traffic
// never touches the wheel, it stores a tick.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {

// What is first in time; of two at once what says more.
ReactorImpl::Due ReactorImpl::NextDue(const Connection& c) const {
  Due due;
  const auto at = [&](uint32_t tick, CloseReason reason) {
    const auto left = static_cast<int32_t>(tick - tick_);
    if (left < due.left) due = {left, reason};
  };
  const ActiveState* const active = c.active_;
  const ConnectionState state = StateOf(c.state_);
  if (state != ConnectionState::kOpen) {
    if (state < ConnectionState::kMarked && active != nullptr &&
        active->deadline != 0) {
      at(active->deadline, CloseReason::kNone);
    }
    return due;
  }
  const Bounds& bounds = BoundsOf(c);
  if (active != nullptr) {
    if (active->handshake != 0) {
      at(active->handshake, CloseReason::kHandshakeTimeout);
    }
    // Output that nobody has offered to the kernel yet does not wait for it.
    if (bounds.write_ticks != 0 && (c.armed_ & kInterestWrite) &&
        !active->out.empty()) {
      at(active->output_tick + bounds.write_ticks, CloseReason::kWriteTimeout);
    }
    if (active->rate_paused || active->charged()) {
      at(RateTick(c), CloseReason::kNone);
    }
  }
  if (bounds.read_ticks != 0 && (c.armed_ & kInterestRead) &&
      ReadingWanted(c)) {
    at(c.input_tick_ + bounds.read_ticks, CloseReason::kReadTimeout);
  }
  if (c.idle_ticks_ != 0) {
    at(c.activity_tick_ + c.idle_ticks_, CloseReason::kIdleTimeout);
  }
  return due;
}

void ReactorImpl::Schedule(Connection& c) {
  const Due due = NextDue(c);
  if (due.left == INT32_MAX) return;
  const uint32_t tick = tick_ + static_cast<uint32_t>(due.left);
  if (c.wheel_.deadline != 0 &&
      static_cast<int32_t>(tick - c.wheel_.deadline) >= 0) {
    return;
  }
  wheel_.Set(slab_.SlotOf(c), tick);
  wheel_changed_ = true;
}

void ReactorImpl::OnDeadline(Connection& c) {
  const Due due = NextDue(c);
  if (due.left > 0) {
    Schedule(c);
    return;
  }
  const ConnectionState state = StateOf(c.state_);
  if (state != ConnectionState::kOpen) {
    if (state == ConnectionState::kFlushing) {
      c.reason_ = CloseReason::kWriteTimeout;  // not kLocal: bytes are lost
    }
    MarkForClose(c, CloseReason::kNone,
                 state == ConnectionState::kLingering ? 0 : ETIMEDOUT);
    return;
  }
  switch (due.reason) {
    case CloseReason::kNone:
      LookAtRate(c);
      MarkDirty(c);  // there may be input to tell of, or a state to give up
      break;
    case CloseReason::kReadTimeout:
    case CloseReason::kIdleTimeout:
      // A loop that was kept from reading in time does not count.
      if (ReadingWanted(c) && InputWaits(c)) {
        c.activity_tick_ = c.input_tick_ = tick_;
        break;
      }
      [[fallthrough]];
    default:
      MarkForClose(c, due.reason, 0);
      return;
  }
  Schedule(c);
}

bool ReactorImpl::InputWaits(const Connection& c) const {
  char byte;
  return ::recv(c.fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

// epoll was told of an `interest` that it did not have before: from now on
// there may be something to wait for.
void ReactorImpl::WaitBegins(Connection& c, uint8_t interest) {
  RefreshTick();
  if (interest & kInterestRead) c.input_tick_ = tick_;
  if ((interest & kInterestWrite) && c.active_ != nullptr) {
    c.active_->output_tick = tick_;
  }
  Schedule(c);
}

Bounds ReactorImpl::BoundsFrom(const ConnectionLimits& limits) {
  Bounds bounds;
  if (limits.read_timeout.count() > 0) {
    bounds.read_ticks = TicksFor(limits.read_timeout);
  }
  if (limits.write_timeout.count() > 0) {
    bounds.write_ticks = TicksFor(limits.write_timeout);
  }
  bounds.SetRate(limits.rate_limit);
  return bounds;
}

// Of a new connection.
void ReactorImpl::ApplyLimits(Connection& c) {
  const ConnectionLimits& limits = options_.limits;
  RefreshTick();
  if (limits.handshake_timeout.count() > 0) {
    Activate(c).handshake = TickAfter(limits.handshake_timeout);
  }
  c.input_tick_ = tick_;
  SetIdleTimeout(c, limits.idle_timeout);
}

void ReactorImpl::SetIdleTimeout(Connection& c,
                                 std::chrono::milliseconds timeout) {
  c.idle_ticks_ = timeout.count() > 0 ? TicksFor(timeout) : 0;
  RefreshTick();
  c.activity_tick_ = tick_;
  Schedule(c);
}

absl::Status ReactorImpl::SetOwn(Connection& c, const char* name,
                                 std::chrono::milliseconds timeout,
                                 uint32_t Bounds::*ticks) {
  if (timeout.count() < 0) {
    return absl::InvalidArgumentError(std::string(name) + " of " +
                                      std::to_string(timeout.count()) +
                                      " ms: must be 0 (never) or more");
  }
  if (StateOf(c.state_) >= ConnectionState::kMarked) return absl::OkStatus();
  const uint32_t value = timeout.count() > 0 ? TicksFor(timeout) : 0;
  if (value != BoundsOf(c).*ticks) {
    ActiveState& active = Activate(c);
    if (active.own == nullptr) active.own = std::make_unique<Bounds>(bounds_);
    (*active.own).*ticks = value;
  }
  if (in_callback_ != &c) MarkDirty(c);
  return absl::OkStatus();
}

absl::Status ReactorImpl::SetReadTimeout(Connection& c,
                                         std::chrono::milliseconds timeout) {
  absl::Status set = SetOwn(c, "SetReadTimeout", timeout, &Bounds::read_ticks);
  if (set.ok()) WaitBegins(c, kInterestRead);
  return set;
}

absl::Status ReactorImpl::SetWriteTimeout(Connection& c,
                                          std::chrono::milliseconds timeout) {
  absl::Status set =
      SetOwn(c, "SetWriteTimeout", timeout, &Bounds::write_ticks);
  if (set.ok()) WaitBegins(c, kInterestWrite);
  return set;
}

void ReactorImpl::HandshakeDone(Connection& c) {
  if (c.active_ == nullptr || c.active_->handshake == 0) return;
  c.active_->handshake = 0;
  if (in_callback_ != &c) MarkDirty(c);
}

void ReactorImpl::CloseForLimit(Connection& c, CloseReason reason,
                                const std::string& detail) {
  const size_t held = Peek(c, Connection::kAll).size() + Outbound(c);
  Log(LogLevel::kWarning, "closing " + c.peer().ToString() + " (" +
                              std::string(CloseReasonName(reason)) + "): " +
                              std::to_string(held) + " bytes held, " + detail);
  Close(c, CloseMode::kNow, reason);
}

}  // namespace sluice::internal
