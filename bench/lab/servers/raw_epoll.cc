// The floor: level-triggered epoll, one loop a thread, one read and one write a
// message and no other system call; no timers, limits or statistics. It always
// answers a whole read at once.
//   --share_table   with one thread: another one sleeps beside it, so that the
//                   descriptor table is shared as it is in any larger program
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

class Loop {
 public:
  explicit Loop(int listener) : listener_(listener) {
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
        } else if (unsent_.empty() || unsent_.count(fd) == 0) {
          Echo(fd);
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
        Watch(EPOLL_CTL_ADD, fd, EPOLLIN);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != ECONNABORTED && errno != EINTR) {
        Die("accept4");
      }
    }
  }

  void Echo(int fd) {
    const ssize_t got = read(fd, buffer_.get(), kBufferBytes);
    if (got > 0) {
      const ssize_t put = write(fd, buffer_.get(), static_cast<size_t>(got));
      if (put != got) Keep(fd, static_cast<size_t>(got), put);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(fd);
    }
  }

  // A write took less than it was given: reading stops until the rest has left.
  void Keep(int fd, size_t got, ssize_t put) {
    if (put < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        close(fd);
        return;
      }
      put = 0;
    }
    const auto taken = static_cast<size_t>(put);
    unsent_.emplace(fd, std::string(buffer_.get() + taken, got - taken));
    Watch(EPOLL_CTL_MOD, fd, EPOLLOUT);
  }

  void SendRest(int fd) {
    const auto rest = unsent_.find(fd);
    const ssize_t put = write(fd, rest->second.data(), rest->second.size());
    if (put < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      unsent_.erase(rest);
      close(fd);
      return;
    }
    rest->second.erase(0, static_cast<size_t>(put));
    if (!rest->second.empty()) return;
    unsent_.erase(rest);
    Watch(EPOLL_CTL_MOD, fd, EPOLLIN);
  }

  const int listener_;
  const int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  const std::unique_ptr<char[]> buffer_ =
      std::make_unique<char[]>(kBufferBytes);
  std::unordered_map<int, std::string> unsent_;  // nearly always empty
};

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  bool share_table = false;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--share_table") == 0) {
      share_table = true;
    } else {
      rest.push_back(argv[i]);
    }
  }
  const ServingOptions options =
      ParseServingOptions(static_cast<int>(rest.size()), rest.data());
  StartServing();
  if (share_table) std::thread([] { pause(); }).detach();
  ServeOnThreads(options, [](int listener) { Loop(listener).Run(); });
}
