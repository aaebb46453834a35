// Internal: one sends, all receive.
#ifndef SLUICE_BENCH_LAB_FAN_OUT_CLIENT_H_
#define SLUICE_BENCH_LAB_FAN_OUT_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/latency_histogram.h"

namespace sluice::bench {

struct FanOutOptions {
  int connections = 1'000;
  size_t message_bytes = 128;
  std::chrono::milliseconds stall_timeout{10'000};
};

struct FanOutRun {
  uint64_t received = 0;    // messages, found right byte for byte
  LatencyHistogram spread;  // from sending one until the last has it
};

// Connections to a server that sends what one of them says to all of them.
// Thread: one. Lifetime: the destructor resets the connections.
// Errors: a wrong byte, an end of file, a stall, all with the connection.
class FanOutClient {
 public:
  static absl::StatusOr<std::unique_ptr<FanOutClient>> Connect(
      uint16_t port, const FanOutOptions& options);
  ~FanOutClient();
  FanOutClient(const FanOutClient&) = delete;
  FanOutClient& operator=(const FanOutClient&) = delete;

  // One message after the other, each when all have received the one before.
  absl::StatusOr<FanOutRun> Run(int messages);

 private:
  explicit FanOutClient(const FanOutOptions& options);
  absl::Status Open(uint16_t port);
  absl::Status Receive(size_t index, bool* complete);

  const FanOutOptions options_;
  int epoll_ = -1;
  std::vector<int> fds_;
  std::vector<size_t> received_;  // of the current message
  std::vector<char> message_;
  std::vector<char> buffer_;
  uint64_t sent_ = 0;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LAB_FAN_OUT_CLIENT_H_
