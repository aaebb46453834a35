#include "bench/raw_epoll_echo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;
constexpr size_t kBufferBytes = size_t{64} << 10;

class RawEcho {
 public:
  RawEcho(int listener, int epoll) : listener_(listener), epoll_(epoll) {}

  absl::Status Run() {
    if (absl::Status s = Watch(EPOLL_CTL_ADD, listener_, EPOLLIN); !s.ok()) {
      return s;
    }
    epoll_event events[kBatch];
    for (;;) {
      const int count = epoll_wait(epoll_, events, kBatch, -1);
      if (count < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "epoll_wait");
      }
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        absl::Status s;
        if (fd == listener_) {
          s = Accept();
        } else if (unsent_.empty() || unsent_.count(fd) == 0) {
          const ssize_t got = read(fd, buffer_.get(), kBufferBytes);
          if (got > 0) {
            const ssize_t put =
                write(fd, buffer_.get(), static_cast<size_t>(got));
            if (put == got) continue;
            s = Keep(fd, static_cast<size_t>(got), put);
          } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(fd);
          }
        } else {
          s = SendRest(fd);
        }
        if (!s.ok()) return s;
      }
    }
  }

 private:
  absl::Status Watch(int operation, int fd, uint32_t interest) {
    epoll_event event{};
    event.events = interest;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) {
      return absl::ErrnoToStatus(errno, "epoll_ctl");
    }
    return absl::OkStatus();
  }

  absl::Status Accept() {
    for (;;) {
      const int fd =
          accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        if (absl::Status s = Watch(EPOLL_CTL_ADD, fd, EPOLLIN); !s.ok()) {
          return s;
        }
      } else if (errno == EAGAIN) {
        return absl::OkStatus();
      } else if (errno != ECONNABORTED && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "accept4");
      }
    }
  }

  // A write took less than it was given: reading stops until the rest left.
  absl::Status Keep(int fd, size_t got, ssize_t put) {
    if (put < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        close(fd);
        return absl::OkStatus();
      }
      put = 0;
    }
    const size_t taken = static_cast<size_t>(put);
    unsent_.emplace(fd, std::string(buffer_.get() + taken, got - taken));
    return Watch(EPOLL_CTL_MOD, fd, EPOLLOUT);
  }

  absl::Status SendRest(int fd) {
    const auto rest = unsent_.find(fd);
    const ssize_t put = write(fd, rest->second.data(), rest->second.size());
    if (put < 0) {
      if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
      unsent_.erase(rest);
      close(fd);
      return absl::OkStatus();
    }
    rest->second.erase(0, static_cast<size_t>(put));
    if (!rest->second.empty()) return absl::OkStatus();
    unsent_.erase(rest);
    return Watch(EPOLL_CTL_MOD, fd, EPOLLIN);
  }

  const int listener_;
  const int epoll_;
  const std::unique_ptr<char[]> buffer_ =
      std::make_unique<char[]>(kBufferBytes);
  std::unordered_map<int, std::string> unsent_;  // nearly always empty
};

}  // namespace

absl::StatusOr<RawListener> ListenOnLoopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const auto fail = [fd](const char* what) {
    const absl::Status s = absl::ErrnoToStatus(errno, what);
    close(fd);
    return s;
  };
  // Accepted sockets inherit it, as sluice's do.
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return fail("setsockopt TCP_NODELAY");
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0) return fail("bind 127.0.0.1:0");
  if (listen(fd, SOMAXCONN) != 0) return fail("listen 127.0.0.1:0");
  if (getsockname(fd, generic, &length) != 0) return fail("getsockname");
  return RawListener{fd, ntohs(address.sin_port)};
}

absl::Status RunRawEpollEcho(int listener) {
  // A write to a peer that is gone is an error of that write, no signal.
  signal(SIGPIPE, SIG_IGN);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  RawEcho echo(listener, epoll);
  absl::Status s = echo.Run();
  close(epoll);
  return s;
}

}  // namespace sluice::bench
