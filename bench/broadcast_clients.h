// Internal: the receiving side of the broadcast benchmark.
#ifndef SLUICE_BENCH_BROADCAST_CLIENTS_H_
#define SLUICE_BENCH_BROADCAST_CLIENTS_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// A message is
//
//   | size, 4 bytes | number, 4 bytes | bytes that follow from the number |
//
// so that a byte that is lost, doubled or out of place shows.
constexpr size_t kSmallestMessage = 8;
std::string NumberedMessage(uint32_t number, size_t size);

// What a connection says first, in one byte.
enum class BroadcastRole : char {
  kReader = 'r',  // reads and checks
  kStuck = 's',   // never reads; its socket holds little
  kEcho = 'e',    // every byte comes back
};

// Lies in memory that the processes share.
struct BroadcastCounts {
  static constexpr size_t kMostSamples = size_t{1} << 20;

  std::atomic<uint64_t> messages{0};  // by all readers together
  std::atomic<uint64_t> bytes{0};
  std::atomic<bool> probing{false};  // the echo is at work
  std::atomic<size_t> samples{0};
  std::array<uint32_t, kMostSamples> echo_us;
  std::atomic<bool> failed{false};
  char error[256];
};

// Two processes, pinned to one CPU: one with the readers and those that are
// stuck, one that echoes a byte at a time. They end with this object, or with
// this process.
// Thread: one.
class BroadcastClients {
 public:
  // Returns when all are connected and have said what they are.
  static absl::StatusOr<std::unique_ptr<BroadcastClients>> Start(uint16_t port,
                                                                 int readers,
                                                                 int stuck,
                                                                 int cpu);
  ~BroadcastClients();
  BroadcastClients(const BroadcastClients&) = delete;
  BroadcastClients& operator=(const BroadcastClients&) = delete;

  BroadcastCounts& counts() { return *counts_; }
  // What a reader or the echo found wrong, if so.
  absl::Status status() const;

 private:
  BroadcastClients() = default;

  BroadcastCounts* counts_ = nullptr;
  std::array<pid_t, 2> children_{-1, -1};
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_BROADCAST_CLIENTS_H_
