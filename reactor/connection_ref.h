// Public header: a ticket for a connection, usable from any thread.
#ifndef SLUICE_REACTOR_CONNECTION_REF_H_
#define SLUICE_REACTOR_CONNECTION_REF_H_

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "reactor/close.h"
#include "reactor/payload.h"

namespace sluice {

class Connection;

namespace internal {
class Mailbox;
class ReactorImpl;
}  // namespace internal

// Names one connection, without owning it.
// Thread: any, at the same time.
// Lifetime: 16 bytes, copyable, good for ever: after the connection or even the
//   engine is gone every call answers a status.
// Errors: OK means accepted: it runs on the connection's loop if the connection
//   still lives then. NotFound: the connection is gone. Unavailable: the engine
//   has stopped.
//
// Order: calls from one thread keep their order. On the connection's own loop,
// Write and Close act at once, in order with Connection::Write; Post and Wake
// wait for a later turn. From another thread all four take effect when the loop
// comes to them, so a Connection::Write on the loop in between goes first.
class ConnectionRef {
 public:
  ConnectionRef() = default;  // refers to nothing: every call is NotFound

  // Queues the bytes for the peer. They are dropped, and counted in
  // EngineStats::posts_dropped, if the connection is gone by then.
  absl::Status Write(std::string bytes) const;
  absl::Status Write(Payload payload) const;

  // Runs `function` on the connection's loop. If the connection is gone by
  // then, `function` is destroyed without having run and the drop is counted.
  absl::Status Post(absl::AnyInvocable<void(Connection&) &&> function) const;

  // Calls OnTraffic on the connection's loop, even without new bytes.
  absl::Status Wake() const;

  absl::Status Close(CloseMode mode = CloseMode::kFlush) const;

  friend bool operator==(const ConnectionRef&, const ConnectionRef&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const ConnectionRef& r) {
    return H::combine(std::move(h), r.mailbox_, r.slot_, r.generation_);
  }

 private:
  friend class Connection;
  friend class ReadPause;
  friend class internal::ReactorImpl;
  ConnectionRef(internal::Mailbox* mailbox, uint32_t slot, uint32_t generation)
      : mailbox_(mailbox), slot_(slot), generation_(generation) {}

  internal::Mailbox* mailbox_ = nullptr;
  uint32_t slot_ = 0;
  uint32_t generation_ = 0;
};
static_assert(sizeof(ConnectionRef) == 16);

}  // namespace sluice

#endif  // SLUICE_REACTOR_CONNECTION_REF_H_
