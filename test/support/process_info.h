// Internal: what this process holds and has used.
#ifndef SLUICE_TEST_SUPPORT_PROCESS_INFO_H_
#define SLUICE_TEST_SUPPORT_PROCESS_INFO_H_

#include <dirent.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace sluice::test {

// What each descriptor of this process (of its first thread's table) stands
// for, a line each, without the one that reading takes.
inline std::string DescribeOpenFds(size_t* count = nullptr) {
  std::string text;
  size_t found = 0;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) std::abort();
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    if (std::atoi(entry->d_name) == dirfd(directory)) continue;
    char target[256];
    const ssize_t length =
        readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
    ++found;
    text += entry->d_name;
    text += " -> ";
    text.append(target, length > 0 ? static_cast<size_t>(length) : 0);
    text += "\n";
  }
  closedir(directory);
  if (count != nullptr) *count = found;
  return text;
}

inline size_t CountOpenFds() {
  size_t count = 0;
  (void)DescribeOpenFds(&count);
  return count;
}

// Resident memory, bytes.
inline size_t RssBytes() {
  FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) std::abort();
  size_t size = 0;
  size_t resident = 0;
  if (std::fscanf(file, "%zu %zu", &size, &resident) != 2) std::abort();
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

inline std::chrono::nanoseconds ReadClock(clockid_t clock) {
  timespec now;
  if (clock_gettime(clock, &now) != 0) std::abort();
  return std::chrono::seconds(now.tv_sec) +
         std::chrono::nanoseconds(now.tv_nsec);
}

// CPU time used so far, by the whole process and by the calling thread.
inline std::chrono::nanoseconds ProcessCpuTime() {
  return ReadClock(CLOCK_PROCESS_CPUTIME_ID);
}
inline std::chrono::nanoseconds ThreadCpuTime() {
  return ReadClock(CLOCK_THREAD_CPUTIME_ID);
}

// The CPU clock of the calling thread, which other threads may read.
inline clockid_t ThisThreadCpuClock() {
  clockid_t clock;
  if (pthread_getcpuclockid(pthread_self(), &clock) != 0) std::abort();
  return clock;
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_PROCESS_INFO_H_
