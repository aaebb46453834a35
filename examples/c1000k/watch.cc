#include "examples/c1000k/watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"

namespace sluice::c1000k {

absl::StatusOr<std::unique_ptr<Watch>> Watch::Create() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) {
    return absl::ErrnoToStatus(errno, "sigprocmask");
  }
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "signalfd");
  return std::unique_ptr<Watch>(new Watch(fd));
}

Watch::~Watch() { close(signals_); }

void Watch::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    event_ = Event::kInterrupted;
    if (++count_ == 2 && second_) second_();
  }
}

void Watch::Poll(int milliseconds) {
  pollfd fds[2] = {{.fd = signals_, .events = POLLIN, .revents = 0},
                   {.fd = channel_, .events = POLLIN, .revents = 0}};
  const int n = poll(fds, 2, milliseconds);
  if (n <= 0) return;  // time is up, or EINTR: the callers come again
  TakeSignals();
  if (fds[1].revents == 0) return;
  channel_ = -1;
  server_gone_ = true;
  if (event_ == Event::kNone) {
    // A signal to the whole process group reaches the server first sometimes.
    // Then the user ended the run, and the server did not fail.
    pollfd late = fds[0];
    if (poll(&late, 1, 50) > 0) TakeSignals();
  }
  if (event_ == Event::kNone) event_ = Event::kServerDied;
}

Watch::Event Watch::Wait(int milliseconds) {
  Poll(milliseconds);
  return event_;
}

}  // namespace sluice::c1000k
