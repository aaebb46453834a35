// Internal: connections that are opened and left alone, and what a server's
// memory does meanwhile.
#ifndef SLUICE_BENCH_IDLE_CLIENTS_H_
#define SLUICE_BENCH_IDLE_CLIENTS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// Connections to 127.0.0.1:port from 127.0.0.2, 127.0.0.3, ..., as many from
// each as it has ports for without a long search.
// Thread: one. Lifetime: the destructor resets them.
class IdleClients {
 public:
  explicit IdleClients(uint16_t port) : port_(port) {}
  ~IdleClients() { Reset(); }
  IdleClients(const IdleClients&) = delete;
  IdleClients& operator=(const IdleClients&) = delete;

  // `talk`: one message of 128 bytes each way first. Errors name the
  // connection.
  absl::Status OpenOne(bool talk);
  // All at once: with a reset, or with an orderly end.
  void Reset();
  void Close();

  size_t size() const { return fds_.size(); }

 private:
  absl::Status Talk(int fd);

  const uint16_t port_;
  std::vector<int> fds_;
};

// Rss of /proc/PID/smaps_rollup: that counts pages; statm's figure may be off
// by some hundred KiB.
absl::StatusOr<double> ResidentBytes(pid_t pid);

// Slab of /proc/meminfo: sockets, files and epoll's entries are in it, of the
// whole system.
absl::StatusOr<double> SlabBytes();

struct MemoryPoint {
  double connections = 0;
  double bytes = 0;
};

// Least squares through at least two points: what one more connection adds.
double BytesPerConnection(const std::vector<MemoryPoint>& points);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_IDLE_CLIENTS_H_
