// Public header: what an engine counts.
#ifndef SLUICE_REACTOR_STATS_H_
#define SLUICE_REACTOR_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "reactor/close.h"

namespace sluice {

// Sums over all reactors. Each number is exact once things are quiet; read
// while the loops run, they are not one moment's snapshot. Counters only rise.
struct EngineStats {
  // Connections.
  size_t connections = 0;  // now, those on their way in or out included
  uint64_t opened = 0;     // OnOpen calls
  uint64_t closed = 0;     // OnClose calls
  uint64_t accepted = 0;   // accept4 gave a descriptor
  uint64_t rejected = 0;   // closed without OnOpen: a bound, or after_accept
  uint64_t rejected_per_source = 0;  // ... by max_connections_per_source
  uint64_t dials_failed = 0;
  // `closed`, by what OnClose was told.
  std::array<uint64_t, kCloseReasons> closed_by_reason = {};
  uint64_t closed_for(CloseReason reason) const {
    return closed_by_reason[static_cast<size_t>(reason)];
  }

  // Traffic, bytes taken from and given to the kernel.
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;

  // Trouble.
  uint64_t accept_errors = 0;    // any accept4 error but EAGAIN
  uint64_t accept_fd_limit = 0;  // ... of them EMFILE or ENFILE
  uint64_t accept_shed = 0;      // clients closed to make room to say so
  uint64_t handler_exceptions = 0;
  uint64_t posts_dropped = 0;  // for a connection that was gone
  uint64_t stale_events = 0;   // events of a connection already closed

  // Times that reading was held back.
  uint64_t rate_paused = 0;     // by a RateLimit
  uint64_t readers_paused = 0;  // by the BufferBudget

  // Memory, bytes.
  size_t buffers_outstanding = 0;  // in use by connections
  size_t buffers_cached = 0;       // free, kept for reuse

  // Loops.
  uint64_t turns = 0;  // times a loop woke up
  size_t timers = 0;   // RunAfter and RunEvery, live; the engine's own too
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_STATS_H_
