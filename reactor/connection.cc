#include "reactor/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "reactor/internal/active_state.h"
#include "reactor/internal/check.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice {

internal::ReactorImpl& Connection::impl() const {
  return internal::ConnectionSlab::OwnerOf(*this);
}

std::string_view Connection::Peek(size_t n) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Peek");
  return reactor.Peek(*this, n);
}

std::string_view Connection::Next(size_t n) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Next");
  const std::string_view bytes = reactor.Peek(*this, n);
  reactor.Consume(*this, bytes.size());
  return bytes;
}

size_t Connection::Discard(size_t n) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Discard");
  return reactor.Consume(*this, n);
}

size_t Connection::Read(std::span<char> out) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Read");
  const std::string_view bytes =
      reactor.Peek(*this, kAll).substr(0, out.size());
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return reactor.Consume(*this, bytes.size());
}

size_t Connection::inbound() const {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::inbound");
  return reactor.Peek(const_cast<Connection&>(*this), kAll).size();
}

absl::Status Connection::Write(std::string_view bytes) {
  return Write(std::span<const std::string_view>(&bytes, 1));
}

absl::Status Connection::Write(Payload payload) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Write");
  return reactor.Write(*this, std::move(payload));
}

absl::Status Connection::Write(std::span<const std::string_view> pieces) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Write");
  return reactor.Write(*this, pieces);
}

size_t Connection::outbound() const {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::outbound");
  return reactor.Outbound(*this);
}

void Connection::NotifySent(SentCallback done) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::NotifySent");
  SLUICE_CHECK(done != nullptr, "Connection::NotifySent of an empty function");
  reactor.NotifySent(*this, std::move(done));
}

void Connection::PauseWhileHigh(const ConnectionRef& source) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::PauseWhileHigh");
  reactor.PauseWhileHigh(*this, source);
}

void Connection::Close(CloseMode mode) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::Close");
  reactor.Close(*this, mode, CloseReason::kLocal);
}

void Connection::CloseFor(CloseReason reason) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::CloseFor");
  reactor.Close(*this, CloseMode::kFlush, reason);
}

void Connection::ShutdownWrite() {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::ShutdownWrite");
  reactor.ShutdownWrite(*this);
}

bool Connection::open() const {
  impl().CheckOnLoop("Connection::open");
  return internal::StateOf(state_) == internal::ConnectionState::kOpen;
}

ReadPause Connection::PauseRead() {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::PauseRead");
  return ReadPause(reactor.RefTo(*this));
}

bool Connection::reading() const {
  impl().CheckOnLoop("Connection::reading");
  return internal::StateOf(state_) == internal::ConnectionState::kOpen &&
         (active_ == nullptr ||
          (active_->pauses == 0 && !active_->rate_paused));
}

void Connection::SetIdleTimeout(std::chrono::milliseconds timeout) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::SetIdleTimeout");
  reactor.SetIdleTimeout(*this, timeout);
}

absl::Status Connection::SetReadTimeout(std::chrono::milliseconds timeout) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::SetReadTimeout");
  return reactor.SetReadTimeout(*this, timeout);
}

absl::Status Connection::SetWriteTimeout(std::chrono::milliseconds timeout) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::SetWriteTimeout");
  return reactor.SetWriteTimeout(*this, timeout);
}

absl::Status Connection::SetRateLimit(const RateLimit& limit) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::SetRateLimit");
  return reactor.SetRateLimit(*this, limit);
}

void Connection::HandshakeDone() {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::HandshakeDone");
  reactor.HandshakeDone(*this);
}

bool Connection::CountMessages(size_t n) {
  internal::ReactorImpl& reactor = impl();
  reactor.CheckOnLoop("Connection::CountMessages");
  return reactor.CountMessages(*this, n);
}

Address Connection::peer() const {
  if (flags_ & internal::kFlagPeerUnix) {
    sockaddr_storage storage;
    storage.ss_family = AF_UNIX;
    socklen_t length = sizeof(storage);
    if (getpeername(fd_, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
      length = sizeof(sa_family_t);
    }
    return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&storage),
                                 length);
  }
  if (flags_ & internal::kFlagPeerBoxed) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(peer_box_->port);
    v6.sin6_scope_id = peer_box_->scope_id;
    std::memcpy(&v6.sin6_addr, peer_box_->ip, sizeof(peer_box_->ip));
    return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&v6),
                                 sizeof(v6));
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(peer4_.port);
  v4.sin_addr.s_addr = peer4_.ip;
  return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&v4),
                               sizeof(v4));
}

Address Connection::local() const {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return Address();
  }
  return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&storage),
                               length);
}

int Connection::listener() const {
  return listener_ == internal::ReactorImpl::kDialed ? -1 : listener_;
}

Reactor& Connection::reactor() const { return impl(); }

ConnectionRef Connection::ref() const { return impl().RefTo(*this); }

void Connection::SetContext(std::unique_ptr<internal::ContextBase> context) {
  impl().CheckOnLoop("Connection::Emplace");
  delete std::exchange(context_, context.release());
}

internal::ContextBase* Connection::CheckedContext(const void* type) const {
  SLUICE_CHECK(context_ != nullptr, "Connection::Get without an Emplace");
  SLUICE_CHECK(context_->type() == type,
               "Connection::Get of another type than Emplace made");
  return context_;
}

}  // namespace sluice
