// Connections in the making: accepted ones and dialed ones.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/reactor_impl.h"
#include "reactor/internal/socket.h"

namespace sluice::internal {

// Takes `fd` over. nullptr if there is no room: then it was closed.
Connection* ReactorImpl::NewConnection(int fd, uint16_t listener,
                                       const PeerName& peer) {
  Connection* c = slab_.Allocate(mailbox_->NextGeneration());
  if (c == nullptr) {
    Log(LogLevel::kError, "reactor " + std::to_string(index_) +
                              " has no room for another connection");
    ::close(fd);
    return nullptr;
  }
  c->fd_ = fd;
  c->listener_ = listener;
  switch (peer.kind) {
    case PeerName::Kind::kNone:
      break;
    case PeerName::Kind::kIpv4:
      std::memcpy(&c->peer4_.ip, peer.ip, 4);
      c->peer4_.port = peer.port;
      break;
    case PeerName::Kind::kIpv6: {
      auto* box = new PeerBox{{}, peer.scope_id, peer.port};
      std::memcpy(box->ip, peer.ip, sizeof(box->ip));
      c->peer_box_ = box;
      c->flags_ |= kFlagPeerBoxed;
      break;
    }
    case PeerName::Kind::kUnix:
      c->flags_ |= kFlagPeerUnix;
      break;
  }
  return c;
}

// What NewConnection was given.
PeerName ReactorImpl::PeerOf(const Connection& c) {
  PeerName peer;
  if (c.flags_ & kFlagPeerUnix) {
    peer.kind = PeerName::Kind::kUnix;
  } else if (c.flags_ & kFlagPeerBoxed) {
    peer.kind = PeerName::Kind::kIpv6;
    peer.port = c.peer_box_->port;
    peer.scope_id = c.peer_box_->scope_id;
    std::memcpy(peer.ip, c.peer_box_->ip, sizeof(peer.ip));
  } else {
    peer.kind = PeerName::Kind::kIpv4;
    peer.port = c.peer4_.port;
    std::memcpy(peer.ip, &c.peer4_.ip, 4);
  }
  return peer;
}

void ReactorImpl::OpenAccepted(const AcceptedSocket& socket) {
  absl::Status hook;
  const bool stopping = stopping_ || engine_.stop_requested();
  const auto& after_accept = engine_.AfterAccept(socket.listener);
  if (after_accept && !stopping) {
    if (!Guard("after_accept", [&] { hook = after_accept(socket.fd); })) {
      hook = absl::InternalError("after_accept threw");
    }
  }
  Connection* c = nullptr;
  if (stopping || !hook.ok()) {
    ::close(socket.fd);
  } else {
    c = NewConnection(socket.fd, socket.listener, socket.peer);
  }
  if (c == nullptr) {
    if (!stopping) counters_.rejected.Add(1);
    engine_.ConnectionReleased(load_, socket.listener, socket.peer);
    return;
  }
  c->state_ = static_cast<uint8_t>(ConnectionState::kOpen);
  c->armed_ = WantedInterest(*c);
  const int error = poller_.Add(c->fd_, EpollEvents(c->armed_), KeyOf(*c));
  if (error != 0) {
    // ENOSPC: fs.epoll.max_user_watches. Nobody has seen the connection.
    Log(LogLevel::kError,
        "epoll_ctl(ADD): " + std::string(std::strerror(error)) +
            (error == ENOSPC ? " (fs.epoll.max_user_watches is reached)" : ""));
    counters_.rejected.Add(1);
    Release(*c);
    return;
  }
  ApplyLimits(*c);
  GreetConnection(*c);
}

void ReactorImpl::GreetConnection(Connection& c) {
  c.flags_ |= kFlagOpened;
  counters_.opened.Add(1);
  // Unless it was done before, in a dial's callback.
  if (c.active_ != nullptr && c.active_->handshake != 0) {
    c.active_->handshake = TickAfter(options_.limits.handshake_timeout);
  }
  RunCallback(c, [this, &c] { return handler_.OnOpen(c); });
}

// The caller has counted the dial in load_ and in the engine.
void ReactorImpl::StartDial(const Address& address, const DialOptions& options,
                            DialDone done) {
  absl::StatusOr<UniqueFd> fd = stopping_
                                    ? absl::UnavailableError("the engine stops")
                                    : StartConnect(address, options);
  if (!fd.ok()) {
    engine_.ConnectionReleased(load_, kDialed, PeerName());
    DialFailed(std::move(done), fd.status());
    return;
  }
  sockaddr_storage peer;
  address.ToSockaddr(&peer);
  Connection* c =
      NewConnection(fd->Release(), kDialed, PeerName::FromSockaddr(peer));
  if (c == nullptr) {
    engine_.ConnectionReleased(load_, kDialed, PeerName());
    DialFailed(std::move(done),
               absl::ResourceExhaustedError("the reactor is full"));
    return;
  }
  c->state_ = static_cast<uint8_t>(ConnectionState::kDialing);
  c->armed_ = kInterestWrite;
  const int error = poller_.Add(c->fd_, EPOLLOUT, KeyOf(*c));
  if (error != 0) {
    Release(*c);
    DialFailed(std::move(done), ErrnoStatus(error, "epoll_ctl(ADD)"));
    return;
  }
  ActiveState& active = Activate(*c);
  active.dial = std::make_unique<DialState>(DialState{
      address.ToString(), options.socket.after_accept, std::move(done)});
  active.deadline = TickAfter(options.timeout);
  Schedule(*c);
}

void ReactorImpl::OnDialEvent(Connection& c) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(c.fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
    error = errno;
  }
  if (error != 0) {
    MarkForClose(c, CloseReason::kError, error);
    return;
  }
  std::unique_ptr<DialState> dial = std::move(c.active_->dial);
  c.active_->deadline = 0;
  wheel_.Cancel(slab_.SlotOf(c));
  c.armed_ = 0;  // what is asked for from here on waits from here on

  absl::Status hook;
  if (dial->after_connect &&
      !Guard("after_accept", [&] { hook = dial->after_connect(c.fd_); })) {
    hook = absl::InternalError("after_accept threw");
  }
  if (!hook.ok()) {
    MarkForClose(c, CloseReason::kError, 0);
    DialFailed(std::move(dial->done), hook);
    return;
  }
  c.state_ = static_cast<uint8_t>(ConnectionState::kOpen);
  ApplyLimits(c);  // which `done` may change
  RunCallback(c, [&] {
    std::move(dial->done)(&c);
    return Action::kNone;
  });
  // Closed by `done` already: then the handler never hears of it.
  if (StateOf(c.state_) == ConnectionState::kOpen) GreetConnection(c);
}

void ReactorImpl::DialFailed(DialDone done, absl::Status status) {
  counters_.dials_failed.Add(1);
  Guard("a dial's callback", [&] { std::move(done)(std::move(status)); });
}

}  // namespace sluice::internal
