// Internal: a libevent base that runs inside our loop.
#ifndef SLUICE_REACTOR_INTERNAL_EMBEDDED_BASE_H_
#define SLUICE_REACTOR_INTERNAL_EMBEDDED_BASE_H_

#include <event2/event.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace sluice::internal {

// Our epoll set is the outer one: connections sit in it directly, and
// libevent's own epoll descriptor is one more member. The other way round (our
// set as one event of libevent's) costs a second epoll_wait a wake-up, 7-9 % of
// a lone echo; this way costs nothing until libevent has something to do.
//
// libevent then waits never, so two things it would do while waiting are ours:
// waking up for its timers (NextDeadline) and for events made active by hand
// (HasActive).
// Thread: one; the base has no locks.
class EmbeddedBase {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  static absl::StatusOr<std::unique_ptr<EmbeddedBase>> Create();
  ~EmbeddedBase();
  EmbeddedBase(const EmbeddedBase&) = delete;
  EmbeddedBase& operator=(const EmbeddedBase&) = delete;

  event_base* base() { return base_; }
  // Readable when libevent has an event to take.
  int epoll_fd() const { return epoll_fd_; }

  // One pass without waiting: runs every callback that is due now.
  void RunPass();

  // Does it hold anything besides our own signal events?
  bool HasEvents() const;
  bool HasActive() const;
  // Nanoseconds until its next timer, 0 if one is due; kNever without timers.
  // Looks at every event of the base: call it only if HasEvents().
  int64_t NextTimer() const;

  // An event of the engine's own that never times out: not a reason for
  // HasEvents.
  void CountAsOurs(int events) { ours_ += events; }

 private:
  explicit EmbeddedBase(event_base* base) : base_(base) {}

  event_base* base_;
  event* end_of_pass_ = nullptr;
  int epoll_fd_ = -1;
  int ours_ = 0;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_EMBEDDED_BASE_H_
