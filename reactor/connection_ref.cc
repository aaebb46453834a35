#include "reactor/connection_ref.h"

#include <utility>

#include "reactor/connection.h"
#include "reactor/internal/check.h"
#include "reactor/internal/mailbox.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice {
namespace {

absl::Status Gone() { return absl::NotFoundError("the connection is gone"); }

}  // namespace

absl::Status ConnectionRef::Write(std::string bytes) const {
  if (mailbox_ == nullptr) return Gone();
  if (internal::ReactorImpl* reactor = internal::ReactorImpl::Of(*this)) {
    Connection* c = reactor->Find(*this);
    return c != nullptr ? c->Write(bytes) : Gone();
  }
  return internal::ReactorImpl::PostTo(
      *this,
      [text = std::move(bytes)](Connection& c) { return c.Write(text).ok(); });
}

absl::Status ConnectionRef::Write(Payload payload) const {
  if (mailbox_ == nullptr) return Gone();
  if (internal::ReactorImpl* reactor = internal::ReactorImpl::Of(*this)) {
    Connection* c = reactor->Find(*this);
    return c != nullptr ? c->Write(std::move(payload)) : Gone();
  }
  return internal::ReactorImpl::PostTo(
      *this, [held = std::move(payload)](Connection& c) {
        return c.Write(held).ok();
      });
}

absl::Status ConnectionRef::Close(CloseMode mode) const {
  if (mailbox_ == nullptr) return Gone();
  if (internal::ReactorImpl* reactor = internal::ReactorImpl::Of(*this)) {
    Connection* c = reactor->Find(*this);
    if (c == nullptr) return Gone();
    c->Close(mode);
    return absl::OkStatus();
  }
  return internal::ReactorImpl::PostTo(*this, [mode](Connection& c) {
    c.Close(mode);
    return true;
  });
}

absl::Status ConnectionRef::Post(
    absl::AnyInvocable<void(Connection&) &&> function) const {
  SLUICE_CHECK(function != nullptr, "ConnectionRef::Post of an empty function");
  if (mailbox_ == nullptr) return Gone();
  return internal::ReactorImpl::PostTo(
      *this, [f = std::move(function)](Connection& c) mutable {
        internal::ReactorImpl::OwnerOf(c).RunFor(
            c, [&f](Connection& connection) { std::move(f)(connection); });
        return true;
      });
}

absl::Status ConnectionRef::Wake() const {
  if (mailbox_ == nullptr) return Gone();
  return internal::ReactorImpl::PostTo(*this, [](Connection& c) {
    internal::ReactorImpl::OwnerOf(c).Wake(c);
    return true;
  });
}

ReadPause::ReadPause(const ConnectionRef& ref) : ref_(ref) {
  if (ref.mailbox_ == nullptr) return;
  if (internal::ReactorImpl* reactor = internal::ReactorImpl::Of(ref)) {
    if (Connection* c = reactor->Find(ref)) reactor->Pause(*c);
    return;
  }
  // In order with the release, which goes the same way. Gone means that there
  // is nothing to pause.
  (void)internal::ReactorImpl::PostTo(ref, [](Connection& c) {
    internal::ReactorImpl::OwnerOf(c).Pause(c);
    return true;
  });
}

void ReadPause::Release() {
  const ConnectionRef ref = std::exchange(ref_, ConnectionRef());
  if (ref.mailbox_ == nullptr) return;
  if (internal::ReactorImpl* reactor = internal::ReactorImpl::Of(ref)) {
    if (Connection* c = reactor->Find(ref)) reactor->Unpause(*c);
    return;
  }
  // The answer does not matter: gone means there is nothing to resume.
  (void)internal::ReactorImpl::PostTo(ref, [](Connection& c) {
    internal::ReactorImpl::OwnerOf(c).Unpause(c);
    return true;
  });
}

}  // namespace sluice
