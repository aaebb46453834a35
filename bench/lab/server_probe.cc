#include "bench/lab/server_probe.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::bench {
namespace {

// Calls visit(name) for each entry but "." and "..".
template <typename Visit>
absl::Status ForEachEntry(const std::string& folder, Visit visit) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return absl::ErrnoToStatus(errno, folder);
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') visit(entry->d_name);
  }
  closedir(dir);
  return absl::OkStatus();
}

int64_t VoluntarySwitches(const std::string& status_path) {
  std::FILE* file = std::fopen(status_path.c_str(), "re");
  if (file == nullptr) return 0;  // the thread has just ended
  char line[256];
  long count = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1) break;
  }
  std::fclose(file);
  return count;
}

}  // namespace

absl::StatusOr<ServerProbe> ServerProbe::Of(pid_t pid) {
  clockid_t clock;
  if (const int error = clock_getcpuclockid(pid, &clock); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("the server, pid ", pid));
  }
  return ServerProbe(pid, clock);
}

absl::StatusOr<int64_t> ServerProbe::CpuNs() const {
  timespec time;
  if (clock_gettime(clock_, &time) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("CPU clock of pid ", pid_));
  }
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::StatusOr<ServerUsage> ServerProbe::Usage() const {
  ServerUsage usage;
  const std::string folder = absl::StrCat("/proc/", pid_);
  std::FILE* file = std::fopen((folder + "/stat").c_str(), "re");
  if (file == nullptr) return absl::ErrnoToStatus(errno, folder + "/stat");
  // The fields behind the name in parentheses: state, ppid, ... utime is the
  // 12th, stime the 13th of them, in clock ticks.
  long user = 0;
  long system = 0;
  const int fields =
      std::fscanf(file,
                  "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
                  "%ld %ld",
                  &user, &system);
  std::fclose(file);
  if (fields != 2) {
    return absl::InternalError(folder + "/stat: not what proc(5) says");
  }
  const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  usage.user_ns = user * tick_ns;
  usage.system_ns = system * tick_ns;
  const std::string tasks = folder + "/task";
  if (absl::Status s = ForEachEntry(tasks,
                                    [&](const char* thread) {
                                      usage.sleeps +=
                                          VoluntarySwitches(absl::StrCat(
                                              tasks, "/", thread, "/status"));
                                    });
      !s.ok()) {
    return s;
  }
  const absl::StatusOr<int64_t> cpu = CpuNs();
  if (!cpu.ok()) return cpu.status();
  usage.cpu_ns = *cpu;
  return usage;
}

absl::StatusOr<ServerProbe::Descriptors> ServerProbe::OpenDescriptors() const {
  const std::string tasks = absl::StrCat("/proc/", pid_, "/task");
  Descriptors descriptors;
  if (absl::Status s = ForEachEntry(
          tasks,
          [&](const char* thread) {
            int count = 0;
            // Fails if the thread has just ended: then it has none.
            (void)ForEachEntry(absl::StrCat(tasks, "/", thread, "/fd"),
                               [&count](const char*) { ++count; });
            descriptors[thread] = count;
          });
      !s.ok()) {
    return s;
  }
  return descriptors;
}

absl::StatusOr<int> ServerProbe::MoreThan(const Descriptors& before) const {
  const absl::StatusOr<Descriptors> now = OpenDescriptors();
  if (!now.ok()) return now.status();
  int most = 0;
  for (const auto& [thread, count] : *now) {
    const auto then = before.find(thread);
    if (then != before.end()) most = std::max(most, count - then->second);
  }
  return most;
}

}  // namespace sluice::bench
