// Internal: connections that live for one message.
#ifndef SLUICE_BENCH_LAB_CHURN_CLIENT_H_
#define SLUICE_BENCH_LAB_CHURN_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/latency_histogram.h"

namespace sluice::bench {

struct ChurnOptions {
  int concurrency = 16;  // lives at a time
  uint64_t lives = 10'000;
  size_t message_bytes = 128;  // 0: the server closes, and that ends a life
  std::chrono::milliseconds stall_timeout{10'000};
};

struct ChurnRun {
  uint64_t lives = 0;
  std::chrono::nanoseconds wall{0};
  LatencyHistogram life;  // from connect(2) until the whole echo is there
};

// Connects to 127.0.0.1:port, sends one message, compares its echo, closes with
// a reset (so that no port waits a minute) and begins anew, from 127.1.0.1,
// 127.1.0.2, ... in turn. Without a message it waits for the server's close
// instead. Returns when all lives are over.
// Errors: a wrong or missing byte, a refused connection, a stall.
absl::StatusOr<ChurnRun> RunChurn(uint16_t port, const ChurnOptions& options);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LAB_CHURN_CLIENT_H_
