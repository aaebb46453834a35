// Internal: the load, the same for every server that is measured.
#ifndef SLUICE_BENCH_ECHO_CLIENT_H_
#define SLUICE_BENCH_ECHO_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/latency_histogram.h"

namespace sluice::bench {

struct EchoClientOptions {
  int connections = 1;
  size_t message_bytes = 128;
  // Messages outstanding on each connection: sent together, and the next ones
  // when all the replies have come. A round trip is then that of all of them.
  int depth = 1;
  // No reply on any connection for this long ends a run with an error.
  std::chrono::milliseconds stall_timeout{10'000};
};

struct EchoRun {
  uint64_t messages = 0;  // sent, answered and found right, byte for byte
  std::chrono::nanoseconds wall{0};
  LatencyHistogram rtt;
};

// A closed loop on plain epoll, without any of sluice: `depth` messages
// outstanding on each connection, the next are sent when the whole reply has
// come. They are all different, so a stale or crossed reply is noticed.
// Thread: one. Lifetime: the destructor resets the connections (no TIME_WAIT).
// Errors: a wrong byte, a surplus byte, an end of file, a stall, all with the
//   connection and the message they happened at; Cancelled after Ctrl-C. After
//   an error it is good for nothing but destruction.
class EchoClient {
 public:
  // Connects to 127.0.0.1:`port`.
  static absl::StatusOr<std::unique_ptr<EchoClient>> Connect(
      uint16_t port, const EchoClientOptions& options);
  ~EchoClient();
  EchoClient(const EchoClient&) = delete;
  EchoClient& operator=(const EchoClient&) = delete;

  // All return with every reply in: the server has nothing left to do.
  // `messages` is rounded down to a multiple of depth.
  absl::StatusOr<EchoRun> RunMessages(uint64_t messages);
  // Starts no message after `duration`, and one on each connection at least.
  absl::StatusOr<EchoRun> RunFor(std::chrono::nanoseconds duration);
  // Asks after each batch of replies, with what came so far, and starts no
  // message once the answer is no.
  using GoOn = absl::FunctionRef<absl::StatusOr<bool>(const EchoRun&)>;
  absl::StatusOr<EchoRun> RunWhile(GoOn go_on);

 private:
  struct Peer;

  explicit EchoClient(const EchoClientOptions& options);
  absl::Status Open(uint16_t port);
  absl::StatusOr<EchoRun> Run(uint64_t bursts, int64_t stop_ns, GoOn go_on);
  absl::Status Start(size_t index, int64_t now);
  absl::Status Send(size_t index);
  absl::Status Receive(size_t index, bool* complete);
  absl::Status Watch(int operation, size_t index, uint32_t interest);
  std::string Where(size_t index) const;  // "connection 3, message 17"

  const EchoClientOptions options_;
  const size_t burst_bytes_;  // of the messages that go together
  int epoll_ = -1;
  std::vector<Peer> peers_;
  std::string pattern_;  // a burst is a piece of it
  std::vector<char> buffer_;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_ECHO_CLIENT_H_
