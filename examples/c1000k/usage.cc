#include "examples/c1000k/usage.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/proc_file.h"

namespace sluice::c1000k {
namespace {

uint64_t PageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

std::optional<uint64_t> RssBytes(const std::string& root, pid_t pid) {
  const std::string directory = absl::StrCat(root, "/proc/", pid);
  const std::string rollup = ReadFile(directory + "/smaps_rollup").value_or("");
  if (const auto kb = NumberAfter(rollup, "Rss:")) return *kb * 1024;
  const std::vector<std::string> statm = ReadWords(directory + "/statm");
  if (statm.size() < 2) return std::nullopt;
  const std::optional<uint64_t> pages = ParseNumber(statm[1]);
  if (!pages) return std::nullopt;
  return *pages * PageSize();
}

std::optional<double> CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec t;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) {
    return std::nullopt;
  }
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::optional<KernelMemory> ReadKernelMemory(const std::string& root) {
  const std::optional<std::string> meminfo = ReadFile(root + "/proc/meminfo");
  if (!meminfo) return std::nullopt;
  const std::optional<uint64_t> slab = NumberAfter(*meminfo, "Slab:");
  if (!slab) return std::nullopt;
  KernelMemory m;
  m.slab = *slab * 1024;
  m.page_tables = NumberAfter(*meminfo, "PageTables:").value_or(0) * 1024;
  m.kernel_stacks = NumberAfter(*meminfo, "KernelStack:").value_or(0) * 1024;
  const std::vector<std::string> tcp =
      WordsAfter(ReadFile(root + "/proc/net/sockstat").value_or(""), "TCP:");
  const auto after = [&tcp](const char* name) -> uint64_t {
    const auto label = std::find(tcp.begin(), tcp.end(), name);
    if (label == tcp.end() || label + 1 == tcp.end()) return 0;
    return ParseNumber(label[1]).value_or(0);
  };
  m.socket_pages = after("mem") * PageSize();
  m.tcp_sockets = after("alloc");
  return m;
}

}  // namespace sluice::c1000k
