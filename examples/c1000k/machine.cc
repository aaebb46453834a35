#include "examples/c1000k/machine.h"

#include <dirent.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"
#include "examples/c1000k/proc_file.h"

namespace sluice::c1000k {
namespace {

// How many numbers of "0-3,8" lie in [low, high].
uint64_t CountInRanges(const std::string& list, uint64_t low, uint64_t high) {
  uint64_t n = 0;
  for (const std::string& item :
       std::vector<std::string>(absl::StrSplit(list, ',', absl::SkipEmpty()))) {
    const std::vector<std::string> ends = absl::StrSplit(item, '-');
    const std::optional<uint64_t> first = ParseNumber(ends.front());
    const std::optional<uint64_t> last = ParseNumber(ends.back());
    if (!first || !last) continue;
    const uint64_t from = std::max(*first, low);
    const uint64_t to = std::min(*last, high);
    if (from <= to) n += to - from + 1;
  }
  return n;
}

std::optional<uint64_t> CountEntries(const std::string& path) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return std::nullopt;
  uint64_t n = 0;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') ++n;
  }
  closedir(directory);
  return n > 0 ? n - 1 : 0;  // without the one that this took
}

void ReadDescriptors(const std::string& root, Machine& m) {
  const std::string limits = ReadFile(root + "/proc/self/limits").value_or("");
  const std::vector<std::string> nofile =
      WordsAfter(limits, "Max open files");  // soft, hard, unit
  if (nofile.size() >= 2) m.nofile = ParseNumber(nofile[1]);
  m.open_here = CountEntries(root + "/proc/self/fd");
  m.nr_open = ReadNumber(root + "/proc/sys/fs/nr_open");
  const std::vector<std::string> file_nr =
      ReadWords(root + "/proc/sys/fs/file-nr");  // used, 0, max
  if (!file_nr.empty()) m.files_used = ParseNumber(file_nr[0]);
  m.file_max = ReadNumber(root + "/proc/sys/fs/file-max");
  m.epoll_watches = ReadNumber(root + "/proc/sys/fs/epoll/max_user_watches");
}

void ReadNetwork(const std::string& root, Machine& m) {
  const std::vector<std::string> range =
      ReadWords(root + "/proc/sys/net/ipv4/ip_local_port_range");
  if (range.size() == 2) {
    m.port_low = ParseNumber(range[0]);
    m.port_high = ParseNumber(range[1]);
  }
  const std::vector<std::string> reserved =
      ReadWords(root + "/proc/sys/net/ipv4/ip_local_reserved_ports");
  if (!reserved.empty() && m.port_low && m.port_high) {
    m.ports_reserved = CountInRanges(reserved[0], *m.port_low, *m.port_high);
  }
  m.somaxconn = ReadNumber(root + "/proc/sys/net/core/somaxconn");
  // The module may be loaded and track nothing; then its table does not bind.
  const std::string conntrack = root + "/proc/sys/net/netfilter/nf_conntrack_";
  m.conntrack_used = ReadNumber(conntrack + "count").value_or(0);
  if (m.conntrack_used > 0) m.conntrack_max = ReadNumber(conntrack + "max");
}

void ReadThreads(const std::string& root, Machine& m) {
  m.threads_max = ReadNumber(root + "/proc/sys/kernel/threads-max");
  m.pid_max = ReadNumber(root + "/proc/sys/kernel/pid_max");
  const std::vector<std::string> load = ReadWords(root + "/proc/loadavg");
  if (load.size() >= 4) {  // "running/all"
    const std::vector<std::string> tasks = absl::StrSplit(load[3], '/');
    m.threads_used = ParseNumber(tasks.back());
  }
  m.cgroup_pids = CgroupPids(root);
  const std::string status = ReadFile(root + "/proc/self/status").value_or("");
  const std::vector<std::string> cpus =
      WordsAfter(status, "Cpus_allowed_list:");
  if (!cpus.empty()) {
    m.cpus = std::max<uint64_t>(1, CountInRanges(cpus[0], 0, UINT32_MAX));
  }
}

}  // namespace

Machine ReadMachine(const std::string& root) {
  Machine m;
  ReadDescriptors(root, m);
  const std::string meminfo = ReadFile(root + "/proc/meminfo").value_or("");
  if (const auto kb = NumberAfter(meminfo, "MemAvailable:")) {
    m.memory_available = *kb * 1024;
  }
  m.cgroup_memory = CgroupMemory(root);
  ReadNetwork(root, m);
  ReadThreads(root, m);
  return m;
}

}  // namespace sluice::c1000k
