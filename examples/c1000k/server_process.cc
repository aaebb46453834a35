#include "examples/c1000k/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/server.h"

namespace sluice::c1000k {
namespace {

constexpr int kStartMs = 60'000;

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) {
    return absl::StrCat("exit code ", WEXITSTATUS(status));
  }
  return absl::StrCat("killed by signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")");
}

// The child's side of the fork.
[[noreturn]] void Child(const Plan& plan, SharedPage* page, int channel,
                        pid_t parent) {
  prctl(PR_SET_NAME, "c1000k-server");
  // However the parent ends, we do not stay behind. The parent may have ended
  // before the call: then it is not our parent any more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  // Ctrl-C goes to both processes; the parent decides what it means.
  signal(SIGINT, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int code = RunServer(plan, page, channel);
  // Not exit: the parent's static objects and buffers are not ours.
  _exit(code);
}

// True if `fd` becomes readable or its stream ends within `milliseconds`.
bool WaitReadable(int fd, int milliseconds) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  int n;
  do {
    n = poll(&p, 1, milliseconds);
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const Plan& plan, SharedPage* page) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair to the server process");
  }
  std::fflush(nullptr);  // or the child would have our unwritten output too
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const absl::Status error = absl::ErrnoToStatus(errno, "fork");
    close(ends[0]);
    close(ends[1]);
    return error;
  }
  if (pid == 0) {
    close(ends[0]);
    Child(plan, page, ends[1], parent);
  }
  close(ends[1]);
  std::unique_ptr<ServerProcess> server(new ServerProcess(pid, ends[0]));
  char byte;
  if (!WaitReadable(ends[0], kStartMs)) {
    return absl::DeadlineExceededError(
        "the server process did not listen within a minute");
  }
  const bool told = recv(ends[0], &byte, 1, 0) == 1;
  const uint32_t state = page->state.load(std::memory_order_acquire);
  if (told && state == SharedPage::kListening) return server;
  if (state == SharedPage::kFailed) {
    return absl::InternalError(
        absl::StrCat("the server process failed: ", page->error));
  }
  return absl::InternalError(absl::StrCat(
      "the server process ended while starting: ", server->Stop(10)));
}

ServerProcess::~ServerProcess() {
  Kill();
  close(channel_);
}

std::string ServerProcess::Stop(double seconds) {
  if (pid_ == 0) return ended_;
  const char byte = 's';
  (void)send(channel_, &byte, 1, MSG_NOSIGNAL);
  // It writes nothing after its first byte, so what comes is its end, or the
  // news that a failed server had for us.
  bool gone = false;
  for (int left = static_cast<int>(seconds * 1000); !gone && left > 0;) {
    if (!WaitReadable(channel_, left)) break;
    char buffer[16];
    gone = recv(channel_, buffer, sizeof(buffer), MSG_DONTWAIT) <= 0;
  }
  if (!gone) {
    kill(pid_, SIGKILL);
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  ended_ = HowItEnded(status);
  if (!gone) absl::StrAppend(&ended_, " by us, as it did not end by itself");
  return ended_;
}

void ServerProcess::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  ended_ = HowItEnded(status);
}

}  // namespace sluice::c1000k
