// Internal: load that does not wait for the server.
#ifndef SLUICE_BENCH_LAB_OPEN_LOOP_H_
#define SLUICE_BENCH_LAB_OPEN_LOOP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/latency_histogram.h"

namespace sluice::bench {

struct OpenLoopOptions {
  int connections = 64;
  double rate = 10'000;  // messages a second, of all connections
  std::chrono::nanoseconds duration{std::chrono::seconds(2)};
  size_t message_bytes = 128;
  std::chrono::milliseconds stall_timeout{10'000};
};

struct OpenLoopRun {
  uint64_t messages = 0;
  std::chrono::nanoseconds wall{0};
  // From when each message was due, and from when it was really sent. The
  // second one forgets the time a slow server or client kept it waiting.
  LatencyHistogram from_due;
  LatencyHistogram from_sent;
};

// Messages become due at even distances, the connections taking turns, and go
// out whether or not the earlier ones have come back. Ends when all that were
// sent have.
// Errors: a wrong byte, an end of file, a stall.
absl::StatusOr<OpenLoopRun> RunOpenLoop(uint16_t port,
                                        const OpenLoopOptions& options);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LAB_OPEN_LOOP_H_
