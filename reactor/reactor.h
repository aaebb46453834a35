// Public header: one loop, its thread and its timers.
#ifndef SLUICE_REACTOR_REACTOR_H_
#define SLUICE_REACTOR_REACTOR_H_

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "reactor/connection_ref.h"

struct event_base;

namespace sluice {

class BufferPool;
class Connection;
class Engine;

using Task = absl::AnyInvocable<void() &&>;
using TimerTask = absl::AnyInvocable<void()>;

// Names one timer of one reactor. 0 names none.
struct TimerId {
  uint64_t value = 0;
  friend auto operator<=>(const TimerId&, const TimerId&) = default;
};

// One loop: a thread, its connections and its timers. Owned by the engine.
// Thread: [any] from any thread; [loop] only on this reactor's own thread,
//   checked: a call from elsewhere ends the program and names both threads.
// Lifetime: as long as the engine.
//
// One turn of the loop, in this order: the events of one batch (at most 256);
// timers that are due; tasks that were posted before the turn began; a slice of
// the broadcasts that are due; output written outside of a connection's own
// callback is sent; connections marked for closing get their OnClose; their
// descriptors and memory are released.
class Reactor {
 public:
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // [any] Runs `task` on this reactor. Tasks of one thread keep their order. A
  // task posted while a turn runs waits for the next one. Unavailable: the
  // reactor has ended and `task` was destroyed without having run. Every task
  // that was accepted runs.
  virtual absl::Status Post(Task task) = 0;

  // [loop] Runs `task` once, not before `delay` from now has passed. A negative
  // delay counts as 0; a timer added by a timer waits for the next turn.
  virtual TimerId RunAfter(std::chrono::nanoseconds delay, Task task) = 0;

  // [loop] Runs `task` every `period` (at least 1 microsecond), first after one
  // period. Runs keep to the grid that began with the call: the task's own time
  // does not add up. A run that comes late by more than a period skips the
  // missed ones instead of catching up in a burst.
  virtual TimerId RunEvery(std::chrono::nanoseconds period, TimerTask task) = 0;

  // [loop] True if the timer was live and will not run again. A timer may
  // cancel itself, and any that is due in the same turn.
  virtual bool Cancel(TimerId timer) = 0;

  // [loop] The connection, or nullptr if it is gone or is another reactor's.
  virtual Connection* Find(const ConnectionRef& ref) = 0;

  // [loop] The libevent base that runs inside this loop, for libraries that
  // want one: their events and timers work. Use it on this thread only (it has
  // no locks) and never call event_base_loop or event_base_free. Its callbacks
  // must not throw: libevent is C, and an exception out of one ends the
  // program.
  virtual event_base* base() = 0;

  // [loop] The buffers of this reactor.
  virtual BufferPool& buffers() = 0;

  // [any]
  virtual int index() const = 0;  // 0 ...; -1: a main reactor of its own thread
  virtual int cpu() const = 0;    // the CPU it is pinned to; -1: not pinned
  virtual size_t connections() const = 0;  // open or on their way to it
  virtual Engine& engine() const = 0;
  virtual bool InLoop() const = 0;  // is this its thread?

 protected:
  Reactor() = default;
  ~Reactor() = default;
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_REACTOR_H_
