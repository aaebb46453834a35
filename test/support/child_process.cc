#include "test/support/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace sluice::test {
namespace {

// A run of a program under a sanitizer on a busy machine.
constexpr std::chrono::seconds kRunPatience = 3 * kPatience;

// Appends what can be read. False at the end.
bool Drain(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) text->append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> arguments) {
  int out[2];
  int error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) std::abort();

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals as a shell would hand them on, whatever the test runner did.
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                            POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int failed =
      posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(out[1]);
  close(error[1]);
  out_fd_ = out[0];
  error_fd_ = error[0];
  if (failed != 0) {
    pid_ = -1;
    reaped_ = true;
    ADD_FAILURE() << arguments[0] << ": " << std::strerror(failed);
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) kill(-pid_, SIGKILL);
  if (!reaped_) {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (error_fd_ >= 0) close(error_fd_);
}

void ChildProcess::Signal(int signal) {
  if (pid_ <= 0 || reaped_) return;
  EXPECT_EQ(kill(pid_, signal), 0);
}

void ChildProcess::SignalGroup(int signal) {
  if (pid_ <= 0 || reaped_) return;
  EXPECT_EQ(kill(-pid_, signal), 0);
}

bool ChildProcess::ReadSome(std::chrono::steady_clock::time_point deadline) {
  if (out_fd_ < 0 && error_fd_ < 0) return false;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd fds[2] = {{.fd = out_fd_, .events = POLLIN, .revents = 0},
                   {.fd = error_fd_, .events = POLLIN, .revents = 0}};
  const int n = poll(fds, 2, static_cast<int>(left.count()));
  if (n < 0) return errno == EINTR;
  if (fds[0].revents != 0 && !Drain(out_fd_, &out_)) {
    close(out_fd_);
    out_fd_ = -1;
  }
  if (fds[1].revents != 0 && !Drain(error_fd_, &error_)) {
    close(error_fd_);
    error_fd_ = -1;
  }
  return n > 0;
}

std::string ChildProcess::AwaitLine(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kRunPatience;
  do {
    for (size_t end = out_.find('\n', looked_at_); end != std::string::npos;
         end = out_.find('\n', looked_at_)) {
      const std::string line = out_.substr(looked_at_, end - looked_at_);
      looked_at_ = end + 1;
      if (line.find(text) != std::string::npos) return line;
    }
  } while (ReadSome(deadline));
  ADD_FAILURE() << "no line with \"" << text << "\"; it said:\n"
                << out_ << error_;
  return "";
}

int ChildProcess::Wait() {
  if (reaped_) return -1;
  const auto deadline = std::chrono::steady_clock::now() + kRunPatience;
  while (ReadSome(deadline)) {
  }
  int status = 0;
  // Its outputs have ended, so it is ending, or the time is up.
  const bool ended = WaitUntil(
      [&] { return waitpid(pid_, &status, WNOHANG) == pid_; },
      out_fd_ < 0 && error_fd_ < 0 ? std::chrono::nanoseconds(kPatience)
                                   : std::chrono::nanoseconds(0));
  if (!ended) {
    ADD_FAILURE() << "it does not end; it said:\n" << out_ << error_;
    return -1;
  }
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::GroupIsGone() const {
  return kill(-pid_, 0) != 0 && errno == ESRCH;
}

}  // namespace sluice::test
