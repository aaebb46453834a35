#include "bench/idle_clients.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/loopback.h"

namespace sluice::bench {
namespace {

// connect(2) gets slow when half the ports of one source address are taken.
constexpr size_t kConnectionsPerSource = 5'000;
constexpr time_t kPatienceSeconds = 30;

// The line "<label>   1234 kB".
absl::StatusOr<double> BytesOnLine(const std::string& path,
                                   const std::string& label) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  char line[256];
  double kib = -1;
  while (kib < 0 && std::fgets(line, sizeof line, file) != nullptr) {
    if (!absl::StartsWith(line, label) ||
        std::sscanf(line + label.size(), "%lf kB", &kib) != 1) {
      kib = -1;
    }
  }
  std::fclose(file);
  if (kib < 0) {
    return absl::InternalError(absl::StrCat(path, ": no line ", label));
  }
  return kib * 1024;
}

}  // namespace

absl::Status IdleClients::OpenOne(bool talk) {
  LoopbackClientOptions options;
  options.source = INADDR_LOOPBACK + 1 +
                   static_cast<uint32_t>(fds_.size() / kConnectionsPerSource);
  options.no_delay = false;
  options.mode = LoopbackClientOptions::Mode::kBlocking;
  const absl::StatusOr<int> fd = ConnectToLoopback(port_, options);
  if (!fd.ok()) return ClientError(fds_.size(), fd.status());
  fds_.push_back(*fd);
  return talk ? Talk(*fd) : absl::OkStatus();
}

absl::Status IdleClients::Talk(int fd) {
  char message[128];
  char reply[sizeof message];
  std::memset(message, static_cast<int>(fds_.size() % 251), sizeof message);
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const uint64_t number = fds_.size() - 1;
  if (send(fd, message, sizeof message, MSG_NOSIGNAL) !=
          static_cast<ssize_t>(sizeof message) ||
      recv(fd, reply, sizeof reply, MSG_WAITALL) !=
          static_cast<ssize_t>(sizeof reply)) {
    return ClientError(number, absl::UnavailableError("no whole echo"));
  }
  if (std::memcmp(message, reply, sizeof message) != 0) {
    return ClientError(number, absl::DataLossError("a wrong echo"));
  }
  return absl::OkStatus();
}

void IdleClients::Reset() {
  for (const int fd : fds_) ResetAtClose(fd);
  Close();
}

void IdleClients::Close() {
  for (const int fd : fds_) close(fd);
  fds_.clear();
}

absl::StatusOr<double> ResidentBytes(pid_t pid) {
  return BytesOnLine(absl::StrCat("/proc/", pid, "/smaps_rollup"), "Rss:");
}

absl::StatusOr<double> SlabBytes() {
  return BytesOnLine("/proc/meminfo", "Slab:");
}

double BytesPerConnection(const std::vector<MemoryPoint>& points) {
  double mean_x = 0;
  double mean_y = 0;
  for (const MemoryPoint& p : points) {
    mean_x += p.connections / static_cast<double>(points.size());
    mean_y += p.bytes / static_cast<double>(points.size());
  }
  double xy = 0;
  double xx = 0;
  for (const MemoryPoint& p : points) {
    xy += (p.connections - mean_x) * (p.bytes - mean_y);
    xx += (p.connections - mean_x) * (p.connections - mean_x);
  }
  return xy / xx;
}

}  // namespace sluice::bench
