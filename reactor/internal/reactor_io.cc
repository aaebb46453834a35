// Bytes in and out of a connection.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/engine_impl.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
namespace {

// Pieces of one sendmsg. Far below IOV_MAX (1,024): what they hold fills a
// socket buffer anyway.
constexpr size_t kGatherPieces = 64;
// The first read behind leftovers asks for so much.
constexpr size_t kSmallRead = size_t{4} << 10;
// What one connection may send before the others have their turn.
constexpr size_t kSendBudget = size_t{4} << 20;

}  // namespace

// --- What epoll is told.

bool ReactorImpl::ReadingWanted(const Connection& c) const {
  if (c.flags_ & kFlagFinSeen) return false;
  switch (StateOf(c.state_)) {
    case ConnectionState::kOpen:
      if (c.armed_ & kInterestHeldBack) return false;
      return c.active_ == nullptr ||
             (c.active_->pauses == 0 && !c.active_->rate_paused &&
              c.active_->in.size() < options_.limits.max_inbound);
    case ConnectionState::kFlushing:
    case ConnectionState::kLingering:
      return c.active_ == nullptr ||
             c.active_->thrown_away < options_.limits.linger_bytes;
    default:
      return false;
  }
}

uint8_t ReactorImpl::WantedInterest(const Connection& c) const {
  uint8_t wanted = c.armed_ & kInterestHeldBack;
  if (ReadingWanted(c)) {
    wanted |= kInterestRead;
    if (options_.trigger == Trigger::kEdge) {
      wanted |= kInterestEdge | kInterestHangup;
    }
  } else {
    // Errors and hang-ups are told even when nothing is asked for, and told
    // again for ever unless edge-triggered.
    wanted |= kInterestEdge;
    if (!(c.flags_ & kFlagFinSeen)) wanted |= kInterestHangup;
  }
  if (c.active_ != nullptr && !c.active_->out.empty()) {
    wanted |= kInterestWrite;
  }
  return wanted;
}

void ReactorImpl::UpdateInterest(Connection& c) {
  const uint8_t wanted = WantedInterest(c);
  if (wanted == c.armed_) [[likely]]
    return;
  const auto begun = static_cast<uint8_t>(wanted & ~c.armed_);
  c.armed_ = wanted;
  poller_.Modify(c.fd_, EpollEvents(wanted), KeyOf(c));
  if (begun & (kInterestRead | kInterestWrite)) WaitBegins(c, begun);
}

ActiveState& ReactorImpl::Activate(Connection& c) {
  if (c.active_ == nullptr) c.active_ = new ActiveState;
  return *c.active_;
}

void ReactorImpl::MarkDirty(Connection& c) {
  if (tracking_ && c.active_ != nullptr) Track(c);
  if (c.flags_ & kFlagDirty) return;
  c.flags_ |= kFlagDirty;
  dirty_.push_back(KeyOf(c));
}

// After anything that may have changed what the connection holds or wants, and
// never inside its callback: views into its input end here.
void ReactorImpl::Settle(Connection& c) {
  if (StateOf(c.state_) >= ConnectionState::kMarked) return;
  if (c.active_ != nullptr) {
    c.active_->in.Trim();
    if (c.active_->charged() || c.active_->rate_paused) LookAtRate(c);
    if (tracking_) Track(c);
    if (c.active_->idle()) {
      delete c.active_;
      c.active_ = nullptr;
    }
  }
  UpdateInterest(c);
}

// --- In.

void ReactorImpl::OnConnectionEvent(Connection& c, uint32_t events) {
  if (StateOf(c.state_) == ConnectionState::kDialing) {
    OnDialEvent(c);
    return;
  }
  if (StateOf(c.state_) >= ConnectionState::kMarked) return;
  if ((events & EPOLLOUT) && c.active_ != nullptr && !c.active_->out.empty()) {
    SendQueue(c);
    AfterOutput(c);
    if (StateOf(c.state_) >= ConnectionState::kMarked) return;
    if (c.active_ != nullptr && HasNews(c)) MarkDirty(c);
    Settle(c);
  }
  if ((events & ~uint32_t{EPOLLOUT}) == 0) return;
  if (ReadingWanted(c)) {
    OnReadable(c, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
  } else {
    // The event of a reader that was just paused is used up: ask again when
    // reading goes on, even if that is before this turn ends.
    UpdateInterest(c);
    OnHangupUnread(c, events);
  }
}

void ReactorImpl::OnReadable(Connection& c, bool end_expected) {
  if (StateOf(c.state_) == ConnectionState::kOpen) {
    ReadForHandler(c, end_expected);
  } else {
    ThrowInputAway(c);
  }
}

// `end_expected`: FIN or an error is there already, behind the data. An
// edge-triggered set will not tell of it again, so a short read is not the end.
void ReactorImpl::ReadForHandler(Connection& c, bool end_expected) {
  const bool edge = options_.trigger == Trigger::kEdge;
  size_t budget = edge ? options_.edge_chunk : SIZE_MAX;
  for (;;) {
    if (readers_wait()) [[unlikely]] {
      HoldBack(c);
      return;
    }
    // Behind what the handler has left there, or into the shared buffer.
    std::span<char> room;
    const bool behind = c.active_ != nullptr && c.active_->in.size() > 0;
    if (behind) {
      // What is there is a hint of what is to come: one stray byte does not
      // take a large block.
      const size_t unread = c.active_->in.size();
      const size_t most =
          std::min(options_.limits.max_inbound - unread, options_.read_buffer);
      room = c.active_->in.Room(pool_,
                                std::min(most, std::max(unread, kSmallRead)));
      room = room.first(std::min(room.size(), most));
    } else {
      room = {read_buffer_.get(),
              std::min(options_.read_buffer, options_.limits.max_inbound)};
    }
    room = room.first(std::min(room.size(), budget));
    if (rate_limited_) [[unlikely]]
      room = room.first(std::min(room.size(), BoundsOf(c).read_most));

    const ssize_t n = ::recv(c.fd_, room.data(), room.size(), 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) Fail(c, errno);
      return;
    }
    if (n == 0) {
      OnPeerFin(c);
      return;
    }
    const size_t bytes = static_cast<size_t>(n);
    counters_.bytes_in.Add(bytes);
    c.activity_tick_ = c.input_tick_ = tick_;
    if (rate_limited_ && !ChargeInput(c, bytes)) [[unlikely]]
      return;
    if (behind) {
      c.active_->in.Filled(bytes);
    } else {
      direct_ = {room.data(), bytes};
    }
    RunCallback(c, [this, &c] { return handler_.OnTraffic(c); });
    if (!edge || !ReadingWanted(c)) return;
    if (StateOf(c.state_) != ConnectionState::kOpen) {
      ThrowInputAway(c);
      return;
    }
    if (bytes < room.size() && !end_expected) return;  // it was all there was
    budget -= bytes;
    if (budget == 0) {
      ReadAgain(c);
      return;
    }
  }
}

// In the next turn, without an event.
void ReactorImpl::ReadAgain(Connection& c) {
  if (c.flags_ & kFlagReadyAgain) return;
  c.flags_ |= kFlagReadyAgain;
  ready_again_.push_back(KeyOf(c));
}

// Between Close(kFlush) and the peer's FIN.
void ReactorImpl::ThrowInputAway(Connection& c) {
  ActiveState& active = Activate(c);
  size_t budget = options_.edge_chunk;
  while (ReadingWanted(c)) {
    const ssize_t n =
        ::recv(c.fd_, read_buffer_.get(), options_.read_buffer, 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) MarkForClose(c, CloseReason::kNone, errno);
      break;
    }
    if (n == 0) {
      OnPeerFin(c);
      break;
    }
    counters_.bytes_in.Add(static_cast<uint64_t>(n));
    active.thrown_away += static_cast<size_t>(n);
    if (options_.trigger == Trigger::kLevel) break;
    if (static_cast<size_t>(n) >= budget) {
      ReadAgain(c);
      break;
    }
    budget -= static_cast<size_t>(n);
  }
  if (StateOf(c.state_) == ConnectionState::kLingering &&
      active.thrown_away >= options_.limits.linger_bytes) {
    MarkForClose(c, CloseReason::kNone, 0);
  }
  Settle(c);
}

// Reading is off, and the socket has something to tell all the same.
void ReactorImpl::OnHangupUnread(Connection& c, uint32_t events) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(c.fd_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
      error != 0) {
    Fail(c, error);
    return;
  }
  if (c.flags_ & kFlagFinSeen) {
    // Now a hang-up without an error: a Unix peer that is gone altogether, or
    // both FINs are out. Nothing can come or go any more.
    if ((events & EPOLLHUP) || (c.flags_ & kFlagFinSent)) {
      MarkForClose(c, CloseReason::kPeerClosed, 0);
    }
    return;
  }
  // FIN counts once no byte is left before it, nor anything that the rate limit
  // has kept from being handled; else it is found when reading resumes.
  if (c.active_ != nullptr && c.active_->rate_paused &&
      c.active_->in.size() > 0) {
    return;
  }
  char byte;
  const ssize_t n = ::recv(c.fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 0) {
    OnPeerFin(c);
  } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
    Fail(c, errno);
  }
}

// Does a handler that paused reading still have to be told of input again?
bool ReactorImpl::OwesInput(const Connection& c) const {
  return StateOf(c.state_) == ConnectionState::kOpen && c.active_ != nullptr &&
         c.active_->in.size() > 0 &&
         (c.active_->pauses > 0 || c.active_->tell_again);
}

void ReactorImpl::OnPeerFin(Connection& c) {
  if (OwesInput(c)) {
    // First that. Paused (still, or again), the FIN is found when reading goes
    // on.
    if (c.active_->pauses == 0) {
      c.active_->tell_again = false;
      Wake(c);
    }
    if (OwesInput(c) || StateOf(c.state_) >= ConnectionState::kMarked) return;
  }
  c.flags_ |= kFlagFinSeen;
  switch (StateOf(c.state_)) {
    case ConnectionState::kOpen:
      RunCallback(c, [this, &c] {
        const Action action = handler_.OnPeerShutdown(c);
        if (action == Action::kClose) {
          Close(c, CloseMode::kFlush, CloseReason::kPeerClosed);
        }
        return action;
      });
      if (StateOf(c.state_) == ConnectionState::kOpen &&
          (c.flags_ & kFlagFinSent)) {
        MarkForClose(c, CloseReason::kPeerClosed, 0);
      }
      return;
    case ConnectionState::kFlushing:
      Settle(c);
      return;
    default:
      MarkForClose(c, CloseReason::kPeerClosed, 0);
  }
}

// --- The callback of a connection.

void ReactorImpl::RunCallback(Connection& c,
                              absl::FunctionRef<Action()> callback) {
  SLUICE_CHECK(in_callback_ == nullptr, "callbacks of connections were nested");
  in_callback_ = &c;
  Action action = Action::kNone;
  const bool fine =
      Guard("a connection's callback", [&] { action = callback(); });
  if (!fine) Close(c, CloseMode::kNow, CloseReason::kHandlerException);
  FinishCallback(c, action);
}

void ReactorImpl::FinishCallback(Connection& c, Action action) {
  in_callback_ = nullptr;
  RefreshTick();
  if (!direct_.empty()) {
    if (StateOf(c.state_) == ConnectionState::kOpen) {
      Activate(c).in.Append(pool_, direct_);
    }
    direct_ = {};
  }
  if (action == Action::kClose) {
    Close(c, CloseMode::kFlush, CloseReason::kLocal);
  } else if (action == Action::kShutdown) {
    engine_.Stop();
  }
  if (cork_size_ > 0) SendCork(c);
  AfterOutput(c);
  if (c.active_ != nullptr && HasNews(c)) MarkDirty(c);
  Settle(c);
}

void ReactorImpl::RunFor(Connection& c,
                         absl::FunctionRef<void(Connection&)> function) {
  RunCallback(c, [&] {
    function(c);
    return Action::kNone;
  });
}

void ReactorImpl::Wake(Connection& c) {
  if (StateOf(c.state_) != ConnectionState::kOpen) return;
  RunCallback(c, [this, &c] { return handler_.OnTraffic(c); });
}

std::string_view ReactorImpl::Peek(Connection& c, size_t n) {
  std::string_view all;
  if (c.active_ != nullptr && c.active_->in.size() > 0) {
    all = c.active_->in.view();
  } else if (in_callback_ == &c) {
    all = direct_;
  }
  if (n == Connection::kAll) return all;
  return n <= all.size() ? all.substr(0, n) : std::string_view();
}

size_t ReactorImpl::Consume(Connection& c, size_t n) {
  n = std::min(n, Peek(c, Connection::kAll).size());
  if (c.active_ != nullptr && c.active_->in.size() > 0) {
    c.active_->in.Consume(n);
    // Reading may go on, and the block can go back.
    if (in_callback_ != &c && n > 0) MarkDirty(c);
  } else if (n > 0) {
    direct_.remove_prefix(n);
  }
  return n;
}

void ReactorImpl::Pause(Connection& c) {
  if (StateOf(c.state_) >= ConnectionState::kMarked) return;
  ++Activate(c).pauses;
  if (in_callback_ != &c) MarkDirty(c);
}

void ReactorImpl::Unpause(Connection& c) {
  if (c.active_ == nullptr || c.active_->pauses == 0) return;
  if (--c.active_->pauses == 0 && c.active_->in.size() > 0) {
    c.active_->tell_again = true;
  }
  if (in_callback_ != &c) MarkDirty(c);
}

// --- Out.

size_t ReactorImpl::Outbound(const Connection& c) const {
  size_t bytes = in_callback_ == &c ? cork_size_ : 0;
  if (c.active_ != nullptr) bytes += c.active_->out.bytes();
  return bytes;
}

absl::Status ReactorImpl::CheckWrite(Connection& c, size_t total) {
  if (!TakesOutput(c)) {
    return absl::FailedPreconditionError("the connection is closing");
  }
  if (total == 0) return absl::OkStatus();
  const size_t limit = options_.limits.max_outbound;
  const size_t queued = Outbound(c);
  if (limit != 0 && (total > limit || queued > limit - total)) {
    if (options_.limits.when_overflow == WhenOverflow::kClose) {
      CloseForLimit(c, CloseReason::kSlowConsumer,
                    std::to_string(total) +
                        " bytes more to write, max_outbound is " +
                        std::to_string(limit));
    }
    return absl::ResourceExhaustedError(
        std::to_string(total) + " bytes on top of " + std::to_string(queued) +
        " unsent ones are more than max_outbound, " + std::to_string(limit));
  }
  return absl::OkStatus();
}

absl::Status ReactorImpl::Write(Connection& c,
                                std::span<const std::string_view> pieces) {
  size_t total = 0;
  for (std::string_view piece : pieces) total += piece.size();
  if (absl::Status s = CheckWrite(c, total); !s.ok()) return s;
  if (total == 0) return absl::OkStatus();

  const bool queue_empty = c.active_ == nullptr || c.active_->out.empty();
  const bool corked = in_callback_ == &c;
  if (queue_empty && corked && total < kDirectBytes &&
      cork_size_ + total <= kCorkBytes) {
    for (std::string_view piece : pieces) {
      if (piece.empty()) continue;
      std::memcpy(cork_.get() + cork_size_, piece.data(), piece.size());
      cork_size_ += piece.size();
    }
    return absl::OkStatus();
  }
  if (queue_empty && pieces.size() < kGatherPieces &&
      (corked || total >= kDirectBytes)) {
    SendDirect(c, pieces);
    if (StateOf(c.state_) != ConnectionState::kOpen) {
      return absl::FailedPreconditionError("the connection has failed");
    }
    return absl::OkStatus();
  }
  OutQueue& out = Activate(c).out;
  if (corked && cork_size_ > 0) {
    out.Append(pool_, {cork_.get(), cork_size_});
    cork_size_ = 0;
  }
  for (std::string_view piece : pieces) out.Append(pool_, piece);
  if (!(c.armed_ & kInterestWrite) || HasNews(c)) MarkDirty(c);
  return absl::OkStatus();
}

// Bytes the kernel took, 0 if it takes none now, -1 if the connection failed
// (it is marked then).
ssize_t ReactorImpl::Send(Connection& c, std::span<iovec> pieces) {
  ssize_t n;
  do {
    if (pieces.size() == 1) {
      n = ::send(c.fd_, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL);
    } else {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      n = ::sendmsg(c.fd_, &message, MSG_NOSIGNAL);
    }
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    counters_.bytes_out.Add(static_cast<uint64_t>(n));
    c.activity_tick_ = tick_;
    if (c.active_ != nullptr) {
      c.active_->output_tick = tick_;
      if (c.active_->watch != nullptr) {
        c.active_->watch->taken += static_cast<uint64_t>(n);
      }
    }
    return n;
  }
  // No memory for it now is no fault of the connection.
  if (n == 0 || errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
    return 0;
  }
  Fail(c, errno);
  return -1;
}

void ReactorImpl::SendCork(Connection& c) {
  const size_t size = std::exchange(cork_size_, 0);
  if (StateOf(c.state_) >= ConnectionState::kMarked) {
    Activate(c).unsent += size;
    return;
  }
  iovec piece{cork_.get(), size};
  const ssize_t n = Send(c, {&piece, 1});
  if (n == static_cast<ssize_t>(size)) [[likely]]
    return;
  if (n < 0) {
    Activate(c).unsent += size;
  } else {
    const size_t sent = static_cast<size_t>(n);
    Activate(c).out.Append(pool_, {cork_.get() + sent, size - sent});
  }
}

// The cork and `pieces` in one system call; the rest is queued.
void ReactorImpl::SendDirect(Connection& c,
                             std::span<const std::string_view> pieces) {
  RefreshTick();
  std::array<iovec, kGatherPieces> all;
  size_t count = 0;
  if (in_callback_ == &c && cork_size_ > 0) {
    all[count++] = {cork_.get(), std::exchange(cork_size_, 0)};
  }
  for (std::string_view piece : pieces) {
    if (piece.empty()) continue;
    all[count++] = {const_cast<char*>(piece.data()), piece.size()};
  }
  const ssize_t n = Send(c, std::span(all).first(count));
  size_t skip = n > 0 ? static_cast<size_t>(n) : 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t sent = std::min(skip, all[i].iov_len);
    skip -= sent;
    if (sent == all[i].iov_len) continue;
    const std::string_view rest(static_cast<char*>(all[i].iov_base) + sent,
                                all[i].iov_len - sent);
    if (n < 0) {
      Activate(c).unsent += rest.size();
    } else {
      Activate(c).out.Append(pool_, rest);
    }
  }
  if (in_callback_ != &c) MarkDirty(c);
}

void ReactorImpl::SendQueue(Connection& c) {
  OutQueue& out = c.active_->out;
  std::array<iovec, kGatherPieces> pieces;
  size_t budget = kSendBudget;
  while (!out.empty()) {
    const size_t count = out.Gather(pieces);
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) offered += pieces[i].iov_len;
    const ssize_t n = Send(c, std::span(pieces).first(count));
    if (n <= 0) return;
    const size_t sent = static_cast<size_t>(n);
    out.Consume(sent);
    if (sent < offered) return;
    if (sent >= budget) {
      // Ask again, whatever the trigger.
      if (!out.empty()) c.armed_ &= static_cast<uint8_t>(~kInterestWrite);
      return;
    }
    budget -= sent;
  }
}

// What waits for the output to have left.
void ReactorImpl::AfterOutput(Connection& c) {
  if (c.active_ != nullptr) {
    if (!c.active_->out.empty()) return;
    if (c.active_->group_waits) TellShardsDrained(c);
  }
  const ConnectionState state = StateOf(c.state_);
  if (state == ConnectionState::kFlushing) {
    AdvanceClose(c);
  } else if (state == ConnectionState::kOpen &&
             (c.flags_ & (kFlagShutdownWrite | kFlagFinSent)) ==
                 kFlagShutdownWrite) {
    c.flags_ |= kFlagFinSent;
    ::shutdown(c.fd_, SHUT_WR);
    if (c.flags_ & kFlagFinSeen) MarkForClose(c, CloseReason::kPeerClosed, 0);
  }
}

void ReactorImpl::FlushDirty() {
  RefreshTick();  // a task may have been slow
  for (size_t i = 0; i < kFlushesPerTurn && dirty_done_ < dirty_.size(); ++i) {
    Connection* c = FindKey(dirty_[dirty_done_++]);
    if (c == nullptr) continue;
    c->flags_ &= static_cast<uint8_t>(~kFlagDirty);
    if (StateOf(c->state_) >= ConnectionState::kMarked) continue;
    if (c->active_ != nullptr && !c->active_->out.empty() &&
        !(c->armed_ & kInterestWrite)) {
      SendQueue(*c);
    }
    AfterOutput(*c);
    if (c->active_ != nullptr && HasNews(*c)) TellNews(*c);
    Settle(*c);
  }
  if (dirty_done_ == dirty_.size()) {
    dirty_.clear();
    dirty_done_ = 0;
  }
}

}  // namespace sluice::internal
