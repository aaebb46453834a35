// Internal: a server in a process of its own, and how the two ends talk.
#ifndef SLUICE_BENCH_SERVER_PROCESS_H_
#define SLUICE_BENCH_SERVER_PROCESS_H_

#include <sys/types.h>
#include <time.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// What a server says of itself: once when it is ready, then when asked.
struct ServerReport {
  enum class Kind : uint32_t { kReady, kUsage, kError };
  Kind kind = Kind::kUsage;
  uint16_t port = 0;        // kReady
  uint16_t other_port = 0;  // kReady, if it has a second listener
  int64_t user_us = 0;      // getrusage(2); split by sampling ticks, so rough
  int64_t system_us = 0;
  int64_t switches = 0;  // times it went to sleep
  uint64_t opened = 0;   // connections, if the server counts them
  std::array<uint64_t, 5> counts = {};  // what else it counts
  char error[512] = {};                 // kError
};

// --- The server's end. `control` is the descriptor Start passed.

// Answers SIGUSR1 with a kUsage report from the signal handler, so that the
// server's loop, whichever it is, needs no thread and no descriptor for it.
void AnswerUsageRequests(int control);
// Adds to ServerReport::opened, and to one of its counts. Any thread.
void CountOpened();
void Count(size_t which, uint64_t n);
void ReportReady(int control, uint16_t port, uint16_t other_port = 0);
void ReportError(int control, const absl::Status& status);

// --- The measuring end.

// Thread: one, in a process with no other. Lifetime: the destructor kills and
// reaps the server; the kernel kills it if this process dies first.
// Errors: name the server, what it reported and how it ended.
class ServerProcess {
 public:
  // Runs this same program again (a fresh address space layout each time) with
  // `args` and --control_fd=N, and waits until it is ready.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& name, const std::vector<std::string>& args);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  uint16_t port() const { return port_; }
  uint16_t other_port() const { return other_port_; }
  pid_t pid() const { return pid_; }

  // CPU time of all its threads so far, exact to the nanosecond.
  absl::StatusOr<std::chrono::nanoseconds> CpuTime() const;
  // Asks for its own figures.
  absl::StatusOr<ServerReport> Usage();
  // Ends it; an error if it had ended by itself before.
  absl::Status Stop();
  // `status`, with how the server ended added if it did.
  absl::Status Explain(const absl::Status& status);

 private:
  ServerProcess(std::string name, pid_t pid, int control)
      : name_(std::move(name)), pid_(pid), control_(control) {}
  absl::StatusOr<ServerReport> Receive(std::chrono::milliseconds timeout);
  bool Reap(bool wait);  // true once it has ended and was reaped
  std::string HowItEnded() const;

  const std::string name_;
  const pid_t pid_;
  const int control_;
  uint16_t port_ = 0;
  uint16_t other_port_ = 0;
  bool reaped_ = false;
  int wait_status_ = 0;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_SERVER_PROCESS_H_
