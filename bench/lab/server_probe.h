// Internal: what the kernel says of a server, whoever wrote it.
#ifndef SLUICE_BENCH_LAB_SERVER_PROBE_H_
#define SLUICE_BENCH_LAB_SERVER_PROBE_H_

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

struct ServerUsage {
  int64_t cpu_ns = 0;  // all threads, ended ones too; exact
  // The kernel splits the time by sampling its tick, so these are rough.
  int64_t user_ns = 0;
  int64_t system_ns = 0;
  int64_t sleeps = 0;  // voluntary context switches of the threads that live
};

// Reads clock_getcpuclockid(3) and /proc/PID: the server need not cooperate.
class ServerProbe {
 public:
  static absl::StatusOr<ServerProbe> Of(pid_t pid);

  // The exact clock alone: read it innermost, so that asking is not measured.
  absl::StatusOr<int64_t> CpuNs() const;
  absl::StatusOr<ServerUsage> Usage() const;
  // Open descriptors by thread: each may have a table of its own.
  using Descriptors = std::map<std::string, int>;
  absl::StatusOr<Descriptors> OpenDescriptors() const;
  // How many more there are than there were, in the table that has grown most.
  absl::StatusOr<int> MoreThan(const Descriptors& before) const;
  pid_t pid() const { return pid_; }

 private:
  ServerProbe(pid_t pid, clockid_t clock) : pid_(pid), clock_(clock) {}

  pid_t pid_;
  clockid_t clock_;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LAB_SERVER_PROBE_H_
