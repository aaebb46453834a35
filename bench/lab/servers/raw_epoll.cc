// The floor: level-triggered epoll, one loop a thread, one read and one write a
// message and no other system call; no timers, limits or statistics. It always
// answers a whole read at once.
//   --share_table       with one thread: another one sleeps beside it, so that
//                       the descriptor table is shared as in any larger program
//   --accept_and_close  no echo: whoever connects is closed at once
//   --fan_out           what one connection sends goes to all of its loop
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

constexpr int kBatch = 256;
constexpr size_t kBufferBytes = size_t{64} << 10;

enum class Mode { kEcho, kAcceptAndClose, kFanOut };

class Loop {
 public:
  Loop(int listener, Mode mode) : listener_(listener), mode_(mode) {
    if (epoll_ < 0) Die("epoll_create1");
    Watch(EPOLL_CTL_ADD, listener_, EPOLLIN);
  }

  [[noreturn]] void Run() {
    epoll_event events[kBatch];
    for (;;) {
      const int count = epoll_wait(epoll_, events, kBatch, -1);
      if (count < 0 && errno != EINTR) Die("epoll_wait");
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listener_) {
          Accept();
        } else if ((events[i].events & EPOLLIN) != 0 || !Unsent(fd)) {
          Read(fd);
        } else {
          SendRest(fd);
        }
      }
    }
  }

 private:
  void Watch(int operation, int fd, uint32_t interest) {
    epoll_event event{};
    event.events = interest;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) Die("epoll_ctl");
  }

  void Accept() {
    for (;;) {
      const int fd =
          accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        if (mode_ == Mode::kAcceptAndClose) {
          close(fd);
          continue;
        }
        if (mode_ == Mode::kFanOut) clients_.push_back(fd);
        Watch(EPOLL_CTL_ADD, fd, EPOLLIN);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != ECONNABORTED && errno != EINTR) {
        Die("accept4");
      }
    }
  }

  void Read(int fd) {
    const ssize_t got = read(fd, buffer_.get(), kBufferBytes);
    if (got > 0) {
      if (mode_ == Mode::kEcho) {
        Send(fd, static_cast<size_t>(got));
      } else {
        for (const int client : clients_)
          Send(client, static_cast<size_t>(got));
      }
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      End(fd);
    }
  }

  void Send(int fd, size_t size) {
    if (Unsent(fd)) {
      unsent_[fd].append(buffer_.get(), size);
      return;
    }
    const ssize_t put = write(fd, buffer_.get(), size);
    if (put != static_cast<ssize_t>(size)) Keep(fd, size, put);
  }

  bool Unsent(int fd) const {
    return !unsent_.empty() && unsent_.count(fd) > 0;
  }

  void End(int fd) {
    unsent_.erase(fd);
    std::erase(clients_, fd);
    close(fd);
  }

  // A write took less than it was given: reading stops until the rest has left.
  void Keep(int fd, size_t got, ssize_t put) {
    // Where it failed, the next read tells, and ends the connection.
    if (put < 0 && errno != EAGAIN && errno != EINTR) return;
    const auto taken = static_cast<size_t>(put < 0 ? 0 : put);
    unsent_.emplace(fd, std::string(buffer_.get() + taken, got - taken));
    Watch(EPOLL_CTL_MOD, fd, EPOLLOUT);
  }

  void SendRest(int fd) {
    const auto rest = unsent_.find(fd);
    const ssize_t put = write(fd, rest->second.data(), rest->second.size());
    if (put < 0) {
      if (errno != EAGAIN && errno != EINTR) End(fd);
      return;
    }
    rest->second.erase(0, static_cast<size_t>(put));
    if (!rest->second.empty()) return;
    unsent_.erase(rest);
    Watch(EPOLL_CTL_MOD, fd, EPOLLIN);
  }

  const int listener_;
  const Mode mode_;
  const int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  const std::unique_ptr<char[]> buffer_ =
      std::make_unique<char[]>(kBufferBytes);
  std::unordered_map<int, std::string> unsent_;  // nearly always empty
  std::vector<int> clients_;                     // of kFanOut
};

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  std::vector<char*> arguments(argv, argv + argc);
  const bool share_table = TakeSwitch("--share_table", &arguments);
  Mode mode = Mode::kEcho;
  if (TakeSwitch("--accept_and_close", &arguments)) {
    mode = Mode::kAcceptAndClose;
  }
  if (TakeSwitch("--fan_out", &arguments)) mode = Mode::kFanOut;
  const ServingOptions options =
      ParseServingOptions(static_cast<int>(arguments.size()), arguments.data());
  StartServing();
  if (share_table) std::thread([] { pause(); }).detach();
  ServeOnThreads(options, [mode](int listener) { Loop(listener, mode).Run(); });
}
