#include "bench/server_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

constexpr std::chrono::milliseconds kStartTimeout{30'000};
constexpr std::chrono::milliseconds kUsageTimeout{10'000};
constexpr std::chrono::milliseconds kLastWordTimeout{300};

std::atomic<uint64_t> g_opened{0};
std::array<std::atomic<uint64_t>,
           std::tuple_size_v<decltype(ServerReport::counts)>>
    g_counts{};
int g_control = -1;  // for the signal handler

// Only system calls and a lock-free load: safe in a signal handler.
void FillUsage(ServerReport* report) {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) {
    return int64_t{t.tv_sec} * 1'000'000 + t.tv_usec;
  };
  report->user_us = us(usage.ru_utime);
  report->system_us = us(usage.ru_stime);
  report->switches = usage.ru_nvcsw;
  report->opened = g_opened.load(std::memory_order_relaxed);
  for (size_t i = 0; i < g_counts.size(); ++i) {
    report->counts[i] = g_counts[i].load(std::memory_order_relaxed);
  }
}

void SendReport(int control, const ServerReport& report) {
  // A measuring end that is gone is told by SIGKILL anyway (PR_SET_PDEATHSIG).
  (void)!send(control, &report, sizeof report, MSG_NOSIGNAL);
}

void OnUsageRequest(int) {
  const int saved = errno;
  ServerReport report;
  FillUsage(&report);
  SendReport(g_control, report);
  errno = saved;
}

// In the child, before exec: only async-signal-safe calls.
[[noreturn]] void BecomeServer(pid_t parent, int control, char* const* argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  // Ctrl-C on the terminal is for the measuring end, which then stops us.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  fcntl(control, F_SETFD, 0);
  execv("/proc/self/exe", argv);
  ServerReport report;
  report.kind = ServerReport::Kind::kError;
  strncpy(report.error, "exec of /proc/self/exe failed",
          sizeof report.error - 1);
  SendReport(control, report);
  _exit(127);
}

}  // namespace

void AnswerUsageRequests(int control) {
  g_control = control;
  struct sigaction action {};
  action.sa_handler = OnUsageRequest;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

void CountOpened() { g_opened.fetch_add(1, std::memory_order_relaxed); }

void Count(size_t which, uint64_t n) {
  g_counts[which].fetch_add(n, std::memory_order_relaxed);
}

void ReportReady(int control, uint16_t port, uint16_t other_port) {
  ServerReport report;
  report.kind = ServerReport::Kind::kReady;
  report.port = port;
  report.other_port = other_port;
  SendReport(control, report);
}

void ReportError(int control, const absl::Status& status) {
  ServerReport report;
  report.kind = ServerReport::Kind::kError;
  const absl::string_view text = status.message();
  memcpy(report.error, text.data(),
         std::min(text.size(), sizeof report.error - 1));
  SendReport(control, report);
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& name, const std::vector<std::string>& args) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": socketpair"));
  }
  // Everything that allocates happens before fork.
  std::vector<std::string> words = {name};
  words.insert(words.end(), args.begin(), args.end());
  words.push_back(absl::StrCat("--control_fd=", ends[1]));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const absl::Status s =
        absl::ErrnoToStatus(errno, absl::StrCat(name, ": fork"));
    close(ends[0]);
    close(ends[1]);
    return s;
  }
  if (pid == 0) BecomeServer(parent, ends[1], argv.data());
  close(ends[1]);
  auto server =
      std::unique_ptr<ServerProcess>(new ServerProcess(name, pid, ends[0]));
  absl::StatusOr<ServerReport> ready = server->Receive(kStartTimeout);
  if (!ready.ok()) return ready.status();
  server->port_ = ready->port;
  server->other_port_ = ready->other_port;
  return server;
}

ServerProcess::~ServerProcess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    Reap(/*wait=*/true);
  }
  close(control_);
}

absl::StatusOr<std::chrono::nanoseconds> ServerProcess::CpuTime() const {
  clockid_t clock;
  timespec time;
  int error = clock_getcpuclockid(pid_, &clock);
  if (error == 0 && clock_gettime(clock, &time) != 0) error = errno;
  if (error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat(name_, ": its CPU clock"));
  }
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

absl::StatusOr<ServerReport> ServerProcess::Usage() {
  if (Reap(/*wait=*/false)) {
    return absl::UnavailableError(absl::StrCat(name_, ": ", HowItEnded()));
  }
  if (kill(pid_, SIGUSR1) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": kill"));
  }
  return Receive(kUsageTimeout);
}

absl::StatusOr<ServerReport> ServerProcess::Receive(
    std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    pollfd waiting{control_, POLLIN, 0};
    const int ready = poll(&waiting, 1, 100);
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": poll"));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, ": no answer within ", timeout.count(), " ms"));
    }
  }
  ServerReport report;
  const ssize_t got = recv(control_, &report, sizeof report, 0);
  if (got == 0) {
    Reap(/*wait=*/true);  // it closed its end: it has ended, or is about to
    return absl::UnavailableError(absl::StrCat(name_, ": ", HowItEnded()));
  }
  if (got != static_cast<ssize_t>(sizeof report)) {
    return absl::InternalError(
        absl::StrCat(name_, ": a report of ", got, " bytes"));
  }
  if (report.kind == ServerReport::Kind::kError) {
    report.error[sizeof report.error - 1] = '\0';
    return absl::UnavailableError(absl::StrCat(name_, ": ", report.error));
  }
  return report;
}

absl::Status ServerProcess::Stop() {
  if (Reap(/*wait=*/false)) {
    return absl::UnavailableError(absl::StrCat(name_, ": ", HowItEnded()));
  }
  // Nothing of it is worth a goodbye: its clients are gone by now.
  kill(pid_, SIGKILL);
  Reap(/*wait=*/true);
  return absl::OkStatus();
}

absl::Status ServerProcess::Explain(const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  // Its last word, if it is ending, says more than what the client saw. A
  // client can be quicker to see the end than we are: wait a moment.
  const absl::StatusOr<ServerReport> last = Receive(kLastWordTimeout);
  if (last.ok() || absl::IsDeadlineExceeded(last.status())) return status;
  return absl::Status(status.code(),
                      absl::StrCat(std::string(status.message()), " (",
                                   std::string(last.status().message()), ")"));
}

bool ServerProcess::Reap(bool wait) {
  while (!reaped_) {
    const pid_t got = waitpid(pid_, &wait_status_, wait ? 0 : WNOHANG);
    if (got == pid_ || (got < 0 && errno != EINTR)) reaped_ = true;
    if (got == 0) break;
  }
  return reaped_;
}

std::string ServerProcess::HowItEnded() const {
  if (WIFSIGNALED(wait_status_)) {
    const int number = WTERMSIG(wait_status_);
    return absl::StrCat("killed by signal ", number, " (", strsignal(number),
                        ")");
  }
  return absl::StrCat("ended by itself with exit code ",
                      WEXITSTATUS(wait_status_));
}

}  // namespace sluice::bench
