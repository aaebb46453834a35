// c1000k: the limits of this machine, as they are.
#ifndef SLUICE_EXAMPLES_C1000K_MACHINE_H_
#define SLUICE_EXAMPLES_C1000K_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "examples/c1000k/cgroup.h"

namespace sluice::c1000k {

// Read once, before anything starts. What could not be read is not set: it is
// "unknown" then, which is not the same as "no limit".
struct Machine {
  // Descriptors.
  std::optional<uint64_t> nofile;     // hard RLIMIT_NOFILE
  std::optional<uint64_t> open_here;  // open in this process now
  std::optional<uint64_t> nr_open;    // fs.nr_open
  std::optional<uint64_t> file_max;   // fs.file-max
  std::optional<uint64_t> files_used;
  std::optional<uint64_t> epoll_watches;  // fs.epoll.max_user_watches

  // Memory, bytes.
  std::optional<uint64_t> memory_available;
  std::optional<CgroupRoom> cgroup_memory;

  // Ports and queues.
  std::optional<uint64_t> port_low;
  std::optional<uint64_t> port_high;
  uint64_t ports_reserved = 0;  // ip_local_reserved_ports within the range
  std::optional<uint64_t> somaxconn;
  std::optional<uint64_t> conntrack_max;  // only where tracking is in use
  uint64_t conntrack_used = 0;

  // Threads.
  std::optional<uint64_t> threads_max;
  std::optional<uint64_t> pid_max;
  std::optional<uint64_t> threads_used;
  std::optional<CgroupRoom> cgroup_pids;
  uint64_t cpus = 1;  // this process may use
};

// Reads it below `root`: "" is this machine, a test gives a folder of its own.
Machine ReadMachine(const std::string& root);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_MACHINE_H_
