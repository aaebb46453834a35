// Internal: the sockets of the programs here, on 127.0.0.1.
#ifndef SLUICE_BENCH_LOOPBACK_H_
#define SLUICE_BENCH_LOOPBACK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// --- Servers.

struct LoopbackListener {
  int fd = -1;
  uint16_t port = 0;
};

// A listening, non-blocking TCP socket on 127.0.0.1 and a free port, with
// TCP_NODELAY, which accepted sockets inherit, as sluice's do.
absl::StatusOr<LoopbackListener> ListenOnLoopback();

// --- Clients.

struct LoopbackClientOptions {
  // The address it comes from, host byte order; 0: the kernel's choice.
  uint32_t source = 0;
  bool no_delay = true;
  // When the call returns and how the socket is left.
  enum class Mode {
    kWaitThenNonBlocking,  // it is connected
    kBlocking,             // it is connected
    kNonBlocking,          // connecting may go on: EPOLLOUT tells
  };
  Mode mode = Mode::kWaitThenNonBlocking;
};

// A TCP socket, close-on-exec, that connects to 127.0.0.1:`port`. Errors name
// the system call.
absl::StatusOr<int> ConnectToLoopback(
    uint16_t port, const LoopbackClientOptions& options = {});

// close(2) will reset the connection, so that no TIME_WAIT remains.
void ResetAtClose(int fd);

// "client, connection NUMBER: WHAT", and why: errno, or what `status` says.
absl::Status ClientError(uint64_t number, const char* what);
absl::Status ClientError(uint64_t number, const absl::Status& status);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LOOPBACK_H_
