// Public header: one message to many connections.
#ifndef SLUICE_REACTOR_BROADCASTER_H_
#define SLUICE_REACTOR_BROADCASTER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/connection_ref.h"
#include "reactor/engine.h"
#include "reactor/payload.h"

namespace sluice {

namespace internal {
class BroadcastCore;
}  // namespace internal

// What happens to a message for a member that is slow: one that has more than
// GroupOptions::max_backlog of unsent output.
enum class WhenSlow : uint8_t {
  kSkip,    // that member does not get it
  kClose,   // the connection ends with CloseReason::kSlowConsumer
  kLatest,  // it waits until the output has left; a newer one takes its place
};

struct GroupOptions {
  WhenSlow when_slow = WhenSlow::kSkip;
  // Bytes of output, of whatever kind, that wait for a member. A member without
  // unsent output is never slow, however long the message. At most
  // ConnectionLimits::max_outbound counts.
  size_t max_backlog = size_t{256} << 10;
  // Bytes of messages that were published and that some reactor has not dealt
  // out yet. A Publish above it is refused: the loops are slower than the
  // publishers. At least 1.
  size_t max_pending = size_t{64} << 20;
};

struct BroadcasterOptions {
  // System calls of a reactor before it looks at its other events; >= 1. A send
  // takes 5 to 10 microseconds (bench/broadcast), so 128 hold other traffic up
  // for about one millisecond at most.
  int sends_per_turn = 128;
  // Sends a second, of each reactor; 0: as many as there is time for.
  double sends_per_second = 0;
  // Round trip to the clients, the slow ones too (p99). Set, the reactors
  // together keep what is sent and not yet acknowledged under half of the mark
  // where TCP's memory comes under pressure (the second figure of
  // net.ipv4.tcp_mem, in pages; an unacknowledged message takes one page for
  // each 4 KiB begun). 0: not paced. Worth it from some 100,000 recipients on:
  // above the third figure the kernel drops packets and shrinks windows.
  std::chrono::milliseconds round_trip{0};
};

// Counters of a group. `published` counts messages, the next three recipients:
// for each message, every one who is a member when it comes to the loop is in
// exactly one of them as soon as it has been dealt out; one that waits
// (WhenSlow::kLatest), when it has read, left or ended.
struct GroupStats {
  size_t members = 0;
  uint64_t published = 0;
  uint64_t delivered = 0;  // the kernel took it, or it is queued as Write does
  uint64_t skipped = 0;    // the member was slow
  uint64_t dropped = 0;    // the member's connection was over, or ending
  uint64_t closed = 0;     // connections ended by WhenSlow::kClose
  size_t pending = 0;      // bytes not dealt out yet, see max_pending
};

// Named groups of connections, across all reactors of an engine.
//
//   Publish --> one post a reactor --> | its members, in a dense list |
//                                        128 sends, other events, 128 sends ...
//
// A member gets every message that is published while it is one: once, whole,
// in the order of the calls of one thread; several that are due go in one send.
// Between groups there is no order. A thread's calls of a Broadcaster keep
// their order: a Publish after a Join reaches it, and one before does not;
// Leave sends at once what was published before. Messages are dealt out after
// the loop has run its tasks, so a ConnectionRef::Write or Close that was
// called behind a Publish comes first: to say goodbye, Publish, Leave, Close. A
// connection that ends leaves by itself. Thread: any. All of it takes effect
// when the loops come to it, on a
//   connection's own loop too.
// Lifetime: must end before its engine. 32 bytes a membership.
// Errors: InvalidArgument: the options, a connection of another engine, an
//   empty name or message. NotFound: no such group, or the connection is gone,
//   or (Create) net.ipv4.tcp_mem cannot be read. AlreadyExists: AddGroup.
//   ResourceExhausted: max_pending. Unavailable: the engine stops or has
//   stopped. FailedPrecondition: a thread with a descriptor table of its own
//   that is older than the engine. Then nothing has been sent or changed.
class Broadcaster {
 public:
  static absl::StatusOr<std::unique_ptr<Broadcaster>> Create(
      Engine& engine, BroadcasterOptions options = {});
  ~Broadcaster();  // groups end; what was published before is still dealt out
  Broadcaster(const Broadcaster&) = delete;
  Broadcaster& operator=(const Broadcaster&) = delete;

  absl::Status AddGroup(std::string_view name, GroupOptions options = {});
  // Its members get what was published before; those that wait for their output
  // to leave (WhenSlow::kLatest) do not, here and in Leave.
  absl::Status RemoveGroup(std::string_view name);

  // Joining twice is joining once; leaving without having joined is nothing.
  absl::Status Join(std::string_view group, const ConnectionRef& connection);
  absl::Status Leave(std::string_view group, const ConnectionRef& connection);

  absl::Status Publish(std::string_view group, Payload message);

  absl::StatusOr<GroupStats> stats(std::string_view group) const;

 private:
  explicit Broadcaster(std::shared_ptr<internal::BroadcastCore> core);

  std::shared_ptr<internal::BroadcastCore> core_;
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_BROADCASTER_H_
