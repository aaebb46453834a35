// Internal: the floor that sluice is measured against.
#ifndef SLUICE_BENCH_RAW_EPOLL_ECHO_H_
#define SLUICE_BENCH_RAW_EPOLL_ECHO_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

struct RawListener {
  int fd = -1;
  uint16_t port = 0;
};

// A listening, non-blocking TCP socket on 127.0.0.1 and a free port.
absl::StatusOr<RawListener> ListenOnLoopback();

// Echoes on one thread with level-triggered epoll: one read and one write a
// message and no other system call; no timers, no limits, no statistics.
// Never returns OK: only a fault of the machine ends it, named in the status.
absl::Status RunRawEpollEcho(int listener);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_RAW_EPOLL_ECHO_H_
