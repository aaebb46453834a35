#include "bench/process.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::bench {
namespace {

volatile sig_atomic_t g_interrupted = 0;

void OnInterrupt(int signal_number) {
  g_interrupted = 1;
  signal(signal_number, SIG_DFL);
}

std::string AllowedCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "unknown";
  std::string list;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) {
      absl::StrAppend(&list, list.empty() ? "" : ",", cpu);
    }
  }
  return list;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: waits must end
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted != 0; }

absl::Status PinProcess(int cpu) {
  static const std::string allowed = AllowedCpus();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "CPU ", cpu, " is not one this process may use (", allowed, ")"));
  }
  return absl::OkStatus();
}

absl::Status RaiseFdLimit(int needed) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::ErrnoToStatus(errno, "getrlimit RLIMIT_NOFILE");
  }
  if (limit.rlim_max < static_cast<rlim_t>(needed)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        needed, " descriptors a process are needed and the hard limit is ",
        limit.rlim_max, ": raise it (ulimit -Hn) or ask for fewer"));
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::ErrnoToStatus(errno, "setrlimit RLIMIT_NOFILE");
  }
  return absl::OkStatus();
}

}  // namespace sluice::bench
