#include "examples/c1000k/limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/settings.h"
#include "examples/c1000k/source_addresses.h"
#include "examples/format.h"

namespace sluice::c1000k {
namespace {

using examples::FormatBytes;
using examples::WithCommas;

// No bound; small enough to be multiplied.
constexpr uint64_t kEndless = uint64_t{1} << 50;
constexpr uint64_t kPerConnectionBytes =
    kEnds * (kKernelBytesPerSocket + kUserBytesPerSocket);
// Files and watches others may want while we run.
constexpr uint64_t kSpareFiles = 2'000;
constexpr uint64_t kSpareThreads = 32;

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// The next number with at most two digits that are not 0: for advice.
uint64_t RoundUp(uint64_t n) {
  uint64_t unit = 1;
  while (n / unit >= 100) unit *= 10;
  return (n + unit - 1) / unit * unit;
}

std::string OfConnections(const char* each, uint64_t wanted) {
  return absl::StrCat(each, " for each of ", WithCommas(wanted),
                      " connections");
}

Limit Files(uint64_t max, uint64_t used, uint64_t wanted) {
  const uint64_t need = wanted * kEnds + used + kSpareFiles;
  return {
      .name = "fs.file-max (open files of the whole system)",
      .value = absl::StrCat(WithCommas(max), ", ", WithCommas(used), " in use"),
      .connections = Minus(max, used + kSpareFiles) / kEnds,
      .needed =
          absl::StrCat(WithCommas(need), ", ", OfConnections("two", wanted)),
      .fix = absl::StrCat("sysctl -w fs.file-max=", RoundUp(need))};
}

Limit Watches(uint64_t max, uint64_t wanted) {
  const uint64_t need = wanted * kEnds + kSpareFiles;
  return {.name = "fs.epoll.max_user_watches (epoll watches of a user)",
          .value = WithCommas(max),
          .connections = Minus(max, kSpareFiles) / kEnds,
          .needed = absl::StrCat(WithCommas(need), ", ",
                                 OfConnections("two", wanted)),
          .fix = absl::StrCat("sysctl -w fs.epoll.max_user_watches=",
                              RoundUp(need))};
}

// A tenth of what is free is left alone.
uint64_t ConnectionsInMemory(uint64_t bytes) {
  return Minus(bytes / 10 * 9, kFixedBytes) / kPerConnectionBytes;
}

std::string MemoryNeeded(uint64_t wanted) {
  const uint64_t bytes = (wanted * kPerConnectionBytes + kFixedBytes) / 9 * 10;
  return absl::StrCat(FormatBytes(static_cast<double>(bytes)), ": ",
                      OfConnections("8.6 KB (two sockets)", wanted),
                      " and a tenth in reserve");
}

Limit Memory(uint64_t available, uint64_t wanted) {
  return {.name = "memory (MemAvailable in /proc/meminfo)",
          .value = FormatBytes(static_cast<double>(available)),
          .connections = ConnectionsInMemory(available),
          .needed = MemoryNeeded(wanted),
          .fix = "end other programs, or use a machine with more memory"};
}

Limit CgroupLimit(const CgroupRoom& cgroup, uint64_t wanted) {
  return {
      .name = absl::StrCat("memory of the control group (", cgroup.file, ")"),
      .value = absl::StrCat(FormatBytes(static_cast<double>(cgroup.limit)),
                            ", ", FormatBytes(static_cast<double>(cgroup.room)),
                            " of it free"),
      .connections = ConnectionsInMemory(cgroup.room),
      .needed = MemoryNeeded(wanted),
      .fix =
          "raise the limit: MemoryMax= of a systemd unit, --memory of a "
          "container, resources.limits.memory of a pod"};
}

Limit Ports(const Machine& m, uint64_t wanted) {
  const uint64_t each = PortsPerSource(m);
  return {.name = "local ports (net.ipv4.ip_local_port_range)",
          .value = absl::StrCat(
              *m.port_low, " to ", *m.port_high, ", ", m.ports_reserved,
              " reserved: ", WithCommas(each), " for each of ",
              WithCommas(kMaxSources), " source addresses"),
          .connections = each * kMaxSources,
          .needed =
              absl::StrCat(WithCommas((wanted + kMaxSources - 1) / kMaxSources),
                           " for each source address"),
          .fix = "sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\""};
}

Limit Conntrack(uint64_t max, uint64_t used, uint64_t wanted) {
  return {
      .name = "net.netfilter.nf_conntrack_max (tracked connections)",
      .value = absl::StrCat(WithCommas(max), ", ", WithCommas(used), " in use"),
      .connections = Minus(max, used + kSpareFiles),
      .needed = WithCommas(wanted + used + kSpareFiles),
      .fix = absl::StrCat(
          "sysctl -w net.netfilter.nf_conntrack_max=",
          RoundUp(wanted + used + kSpareFiles),
          ", or no tracking for the loopback interface (a NOTRACK rule)")};
}

std::string HowToRaiseNofile(const Machine& m, uint64_t need) {
  const uint64_t to = RoundUp(need);
  std::string text;
  if (m.nr_open && to > *m.nr_open) {
    text = absl::StrCat("sysctl -w fs.nr_open=", to, ", then ");
  }
  absl::StrAppend(&text, "raise the hard limit: ulimit -Hn ", to,
                  " as root, LimitNOFILE=", to,
                  " in a systemd unit, --ulimit nofile=", to, ":", to,
                  " for a container");
  return text;
}

uint64_t Nofile(const Machine& m) {
  // A limit above fs.nr_open is there, but opening files stops at nr_open.
  return std::min(m.nofile.value_or(kEndless), m.nr_open.value_or(kEndless));
}

std::string NofileValue(const Machine& m) {
  if (m.nr_open && m.nofile && *m.nr_open < *m.nofile) {
    return absl::StrCat(WithCommas(*m.nr_open), " (fs.nr_open)");
  }
  return WithCommas(Nofile(m));
}

}  // namespace

uint64_t PortsPerSource(const Machine& m) {
  if (!m.port_low || !m.port_high || *m.port_high < *m.port_low) {
    return kMostPerSource;
  }
  const uint64_t ports =
      Minus(*m.port_high - *m.port_low + 1, m.ports_reserved);
  return std::min(kMostPerSource, ports == 1 ? 1 : ports / 2);
}

uint64_t MostReactors(const Machine& m) {
  uint64_t free = kEndless;
  const uint64_t used = m.threads_used.value_or(0);
  if (m.threads_max) free = std::min(free, Minus(*m.threads_max, used));
  if (m.pid_max) free = std::min(free, Minus(*m.pid_max, used));
  if (m.cgroup_pids) free = std::min(free, m.cgroup_pids->room);
  return std::min<uint64_t>(kMaxReactors, Minus(free, kSpareThreads) / kEnds);
}

uint64_t TableRoom(const Machine& m, uint64_t reactors) {
  return Minus(Nofile(m),
               m.open_here.value_or(0) + DescriptorReserve(reactors));
}

std::vector<Limit> MachineLimits(const Machine& m, uint64_t wanted,
                                 std::vector<std::string>* unknown) {
  std::vector<Limit> limits;
  if (m.file_max) {
    limits.push_back(Files(*m.file_max, m.files_used.value_or(0), wanted));
  } else {
    unknown->push_back("fs.file-max");
  }
  if (m.epoll_watches) {
    limits.push_back(Watches(*m.epoll_watches, wanted));
  } else {
    unknown->push_back("fs.epoll.max_user_watches");
  }
  if (m.memory_available) {
    limits.push_back(Memory(*m.memory_available, wanted));
  } else {
    unknown->push_back("MemAvailable");
  }
  if (m.cgroup_memory) limits.push_back(CgroupLimit(*m.cgroup_memory, wanted));
  if (m.port_low && m.port_high) {
    limits.push_back(Ports(m, wanted));
  } else {
    unknown->push_back("net.ipv4.ip_local_port_range");
  }
  if (m.conntrack_max) {
    limits.push_back(Conntrack(*m.conntrack_max, m.conntrack_used, wanted));
  }
  if (!m.nofile) unknown->push_back("RLIMIT_NOFILE");
  std::stable_sort(limits.begin(), limits.end(),
                   [](const Limit& a, const Limit& b) {
                     return a.connections < b.connections;
                   });
  return limits;
}

Limit SharedTableLimit(const Machine& m, uint64_t reactors, uint64_t wanted) {
  const uint64_t need =
      wanted + m.open_here.value_or(0) + DescriptorReserve(reactors);
  return {.name = "RLIMIT_NOFILE (descriptors of a process)",
          .value = NofileValue(m),
          .connections = TableRoom(m, reactors),
          .needed = absl::StrCat(WithCommas(need), " with one shared table"),
          .fix = absl::StrCat(HowToRaiseNofile(m, need),
                              "; or --fd_tables=per_reactor, where the limit "
                              "holds for each reactor")};
}

Limit OwnTablesLimit(const Machine& m, uint64_t reactors, bool asked,
                     uint64_t wanted) {
  const uint64_t room = TableRoom(m, reactors);
  const uint64_t per_table = (wanted + reactors - 1) / reactors;
  const uint64_t need =
      per_table + m.open_here.value_or(0) + DescriptorReserve(reactors);
  const uint64_t enough = ReactorsForOwnTables(m, wanted);
  const bool more_help =
      asked && enough > reactors && enough * TableRoom(m, enough) >= wanted;
  const std::string count = absl::StrCat(
      WithCommas(reactors), reactors == 1 ? " reactor" : " reactors");
  return {.name = absl::StrCat(
              "RLIMIT_NOFILE (descriptors of a reactor's own "
              "table), ",
              asked ? absl::StrCat("--reactors=", reactors) : count),
          .value = absl::StrCat(NofileValue(m), ", which leaves ",
                                WithCommas(room), " connections a reactor"),
          .connections = room * reactors,
          .needed = absl::StrCat(WithCommas(need), " for each of ", count),
          .fix = more_help ? absl::StrCat("--reactors=", enough,
                                          " or more, or leave --reactors out")
                           : HowToRaiseNofile(m, need)};
}

uint64_t ReactorsForOwnTables(const Machine& m, uint64_t wanted) {
  const uint64_t most = std::max<uint64_t>(1, MostReactors(m));
  uint64_t best = 1;
  for (uint64_t r = 1; r <= most; ++r) {
    const uint64_t holds = r * TableRoom(m, r);
    if (holds >= wanted) return r;
    if (holds > best * TableRoom(m, best)) best = r;
  }
  return best;
}

}  // namespace sluice::c1000k
