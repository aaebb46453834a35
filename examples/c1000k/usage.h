// c1000k: memory and CPU, as the kernel counts them.
#ifndef SLUICE_EXAMPLES_C1000K_USAGE_H_
#define SLUICE_EXAMPLES_C1000K_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::c1000k {

// Resident user memory of a process: smaps_rollup, which counts pages one by
// one, or statm, which may be some pages per CPU behind. `root` as in Machine.
std::optional<uint64_t> RssBytes(const std::string& root, pid_t pid);

// CPU time of a process so far, all threads, user and kernel.
std::optional<double> CpuSeconds(pid_t pid);

// Memory of the whole system that connections show up in.
struct KernelMemory {
  uint64_t slab = 0;          // sockets, files, epoll entries
  uint64_t socket_pages = 0;  // queued bytes (sockstat's "mem"), in bytes
  uint64_t page_tables = 0;
  uint64_t kernel_stacks = 0;
  uint64_t tcp_sockets = 0;  // how many there are (sockstat's "alloc")
};
std::optional<KernelMemory> ReadKernelMemory(const std::string& root);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_USAGE_H_
