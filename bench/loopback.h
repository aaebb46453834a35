// Internal: the sockets of the programs here, on 127.0.0.1.
#ifndef SLUICE_BENCH_LOOPBACK_H_
#define SLUICE_BENCH_LOOPBACK_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice::bench {

struct LoopbackListener {
  int fd = -1;
  uint16_t port = 0;
};

// A listening, non-blocking TCP socket on 127.0.0.1 and a free port, with
// TCP_NODELAY, which accepted sockets inherit, as sluice's do.
absl::StatusOr<LoopbackListener> ListenOnLoopback();

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LOOPBACK_H_
