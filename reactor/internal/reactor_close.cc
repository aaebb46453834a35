// From Close to OnClose to the released descriptor.
//
//   kOpen --Close(kFlush)--> kFlushing --output gone, FIN--> kLingering --.
//     |                          |  (peer's FIN seen already) |           |
//     |  Close(kNow, kReset),    v                            v  peer's FIN,
//     '------error-----------> kMarked <----------------------'  time, bytes
//                                | end of the turn
//                                v
//                              kClosed: OnClose, then close(2), then kFree
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
void ReactorImpl::Close(Connection& c, CloseMode mode, CloseReason reason) {
  const ConnectionState state = StateOf(c.state_);
  if (state >= ConnectionState::kMarked) return;
  if (mode == CloseMode::kReset) {
    const linger reset{1, 0};
    setsockopt(c.fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  if (mode != CloseMode::kFlush) {
    MarkForClose(c, reason, 0);
    return;
  }
  if (state != ConnectionState::kOpen) return;
  c.reason_ = reason;
  c.state_ = static_cast<uint8_t>(ConnectionState::kFlushing);
  if (in_callback_ != &c) {
    MarkDirty(c);
    // Nothing is queued, so FlushDirty will not wait. A task may close very
    // many in one turn: no memory and no deadline for each of them here.
    if (c.active_ == nullptr) return;
  }
  Activate(c).deadline = TickAfter(options_.limits.flush_timeout);
  Schedule(c);
}

void ReactorImpl::ShutdownWrite(Connection& c) {
  if (StateOf(c.state_) != ConnectionState::kOpen) return;
  c.flags_ |= kFlagShutdownWrite;
  if (in_callback_ != &c) MarkDirty(c);
}

void ReactorImpl::Fail(Connection& c, int error) {
  const bool gone = error == ECONNRESET || error == EPIPE;
  MarkForClose(c, gone ? CloseReason::kReset : CloseReason::kError, error);
}

void ReactorImpl::MarkForClose(Connection& c, CloseReason reason, int error) {
  if (StateOf(c.state_) >= ConnectionState::kMarked) return;
  if (c.reason_ == CloseReason::kNone) c.reason_ = reason;
  if (c.error_ == 0) c.error_ = static_cast<uint16_t>(error);
  c.state_ = static_cast<uint8_t>(ConnectionState::kMarked);
  wheel_.Cancel(slab_.SlotOf(c));
  marked_.push_back(KeyOf(c));
}

// kFlushing, and nothing is left to send.
void ReactorImpl::AdvanceClose(Connection& c) {
  // After the peer's FIN nothing unread can be there to turn our close into a
  // reset.
  if (c.flags_ & kFlagFinSeen) {
    MarkForClose(c, CloseReason::kNone, 0);
    return;
  }
  if (!(c.flags_ & kFlagFinSent)) {
    c.flags_ |= kFlagFinSent;
    if (::shutdown(c.fd_, SHUT_WR) != 0) {
      MarkForClose(c, CloseReason::kNone, errno);
      return;
    }
  }
  ActiveState& active = Activate(c);
  if (active.thrown_away >= options_.limits.linger_bytes) {
    MarkForClose(c, CloseReason::kNone, 0);
    return;
  }
  c.state_ = static_cast<uint8_t>(ConnectionState::kLingering);
  active.deadline = TickAfter(options_.limits.linger_timeout);
  Schedule(c);
}

void ReactorImpl::CloseMarked() {
  // OnClose may mark more; they are behind in the same list.
  for (size_t i = 0; i < kClosesPerTurn && marked_done_ < marked_.size(); ++i) {
    if (Connection* c = FindKey(marked_[marked_done_++])) RunOnClose(*c);
  }
  if (marked_done_ == marked_.size()) {
    marked_.clear();
    marked_done_ = 0;
  }
}

void ReactorImpl::RunOnClose(Connection& c) {
  c.state_ = static_cast<uint8_t>(ConnectionState::kClosed);
  // By hand, although close(2) would do it: a child of fork(2) that holds the
  // descriptor keeps its socket, and so its place in the set, alive.
  poller_.Remove(c.fd_);
  if (!shards_.empty()) TellShardsEnded(c);
  if (c.active_ != nullptr && c.active_->watch != nullptr) TellUnsent(c);
  if (c.flags_ & kFlagOpened) {
    CloseInfo info;
    info.reason = c.reason_;
    info.error = c.error_;
    if (c.active_ != nullptr) {
      info.unsent_bytes = c.active_->unsent + c.active_->out.bytes();
    }
    counters_.closed.Add(1);
    // A handler may have made up a reason (CloseFor).
    if (const auto i = static_cast<size_t>(c.reason_); i < kCloseReasons) {
      counters_.closed_by_reason[i].Add(1);
    }
    Guard("OnClose", [&] { handler_.OnClose(c, info); });
  } else if (c.active_ != nullptr && c.active_->dial != nullptr) {
    std::unique_ptr<DialState> dial = std::move(c.active_->dial);
    const absl::Status status =
        c.error_ != 0 ? ErrnoStatus(c.error_, "connect to " + dial->address)
                      : absl::CancelledError("connect to " + dial->address +
                                             ": the engine stops");
    DialFailed(std::move(dial->done), status);
  }
  delete std::exchange(c.context_, nullptr);
  graveyard_.push_back(&c);
}

void ReactorImpl::ReleaseClosed() {
  for (Connection* c : graveyard_) Release(*c);
  graveyard_.clear();
}

void ReactorImpl::Release(Connection& c) {
  // The number may be a stranger's from here on.
  ::close(c.fd_);
  const uint16_t listener = c.listener_;
  const PeerName peer = engine_.sources() != nullptr ? PeerOf(c) : PeerName();
  if (c.active_ != nullptr && c.active_->listed) Unlist(c);
  delete c.active_;
  if (c.flags_ & kFlagPeerBoxed) delete c.peer_box_;
  slab_.Free(&c);
  engine_.ConnectionReleased(load_, listener, peer);
}

void ReactorImpl::BeginStop(CloseReason reason) {
  if (stopping_) return;
  stopping_ = true;
  stop_reason_ = reason;
}

// A slice of the walk over all connections. No new ones come: accepted ones
// are refused and dials fail from BeginStop on.
void ReactorImpl::StopSome() {
  if (stop_walk_done_) return;
  for (size_t i = 0; i < kClosesPerTurn; ++i) {
    Connection* c = slab_.NextLive(&stop_cursor_);
    if (c == nullptr) {
      stop_walk_done_ = true;
      return;
    }
    // One attempt for what is queued, without waiting.
    if (StateOf(c->state_) < ConnectionState::kMarked &&
        c->active_ != nullptr && !c->active_->out.empty()) {
      SendQueue(*c);
    }
    MarkForClose(*c, stop_reason_, 0);
  }
}

}  // namespace sluice::internal
