// c1000k: what the control groups of this process leave it.
#ifndef SLUICE_EXAMPLES_C1000K_CGROUP_H_
#define SLUICE_EXAMPLES_C1000K_CGROUP_H_

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::c1000k {

struct CgroupRoom {
  uint64_t limit = 0;
  uint64_t room = 0;  // limit minus what is in use and cannot be reclaimed
  std::string file;   // the file with the limit, without the root
};

// The tightest limit of this process's cgroup and those above it, version 1 or
// 2 (cgroups(7)); nullopt if there is none. Kernel memory of sockets is charged
// to the cgroup, so it counts here. All files are read below `root`.
std::optional<CgroupRoom> CgroupMemory(const std::string& root);
std::optional<CgroupRoom> CgroupPids(const std::string& root);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_CGROUP_H_
