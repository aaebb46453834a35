#include "bench/raw_epoll.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;
constexpr size_t kBufferBytes = size_t{64} << 10;

class Loop {
 public:
  Loop(int listener, RawEpollMode mode) : listener_(listener), mode_(mode) {}
  ~Loop() {
    if (epoll_ >= 0) close(epoll_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  RawEpollFailure Run() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return {"epoll_create1", errno};
    Watch(EPOLL_CTL_ADD, listener_, EPOLLIN);
    epoll_event events[kBatch];
    while (failure_.call == nullptr) {
      const int count = epoll_wait(epoll_, events, kBatch, -1);
      if (count < 0 && errno != EINTR) return {"epoll_wait", errno};
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
    return failure_;
  }

 private:
  void Watch(int operation, int fd, uint32_t interest) {
    epoll_event event{};
    event.events = interest;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) Fail("epoll_ctl");
  }

  void Fail(const char* call) {
    if (failure_.call == nullptr) failure_ = {call, errno};
  }

  void Accept() {
    for (;;) {
      const int fd =
          accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        if (mode_ == RawEpollMode::kAcceptAndClose) {
          close(fd);
          continue;
        }
        if (mode_ == RawEpollMode::kFanOut) clients_.push_back(fd);
        Watch(EPOLL_CTL_ADD, fd, EPOLLIN);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != ECONNABORTED && errno != EINTR) {
        return Fail("accept4");
      }
    }
  }

  void Read(int fd) {
    const ssize_t got = read(fd, buffer_.get(), kBufferBytes);
    if (got > 0) {
      if (mode_ == RawEpollMode::kEcho) {
        Send(fd, static_cast<size_t>(got));
      } else {
        for (const int client : clients_) {
          Send(client, static_cast<size_t>(got));
        }
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
  void Keep(int fd, size_t size, ssize_t put) {
    // Where it failed, the next read tells, and ends the connection.
    if (put < 0 && errno != EAGAIN && errno != EINTR) return;
    const auto taken = static_cast<size_t>(put < 0 ? 0 : put);
    unsent_.emplace(fd, std::string(buffer_.get() + taken, size - taken));
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
  const RawEpollMode mode_;
  int epoll_ = -1;
  RawEpollFailure failure_{nullptr, 0};
  const std::unique_ptr<char[]> buffer_ =
      std::make_unique<char[]>(kBufferBytes);
  std::unordered_map<int, std::string> unsent_;  // nearly always empty
  std::vector<int> clients_;                     // of kFanOut
};

}  // namespace

RawEpollFailure RunRawEpoll(int listener, RawEpollMode mode) {
  // A write to a peer that is gone is an error of that write, no signal.
  signal(SIGPIPE, SIG_IGN);
  return Loop(listener, mode).Run();
}

}  // namespace sluice::bench
