#include "bench/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::bench {
namespace {

sockaddr_in AddressOf(uint32_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

absl::StatusOr<LoopbackListener> ListenOnLoopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const auto fail = [fd](const char* what) {
    const absl::Status s = absl::ErrnoToStatus(errno, what);
    close(fd);
    return s;
  };
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return fail("setsockopt TCP_NODELAY");
  }
  sockaddr_in address = AddressOf(INADDR_LOOPBACK, 0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0) return fail("bind 127.0.0.1:0");
  if (listen(fd, SOMAXCONN) != 0) return fail("listen 127.0.0.1:0");
  if (getsockname(fd, generic, &length) != 0) return fail("getsockname");
  return LoopbackListener{fd, ntohs(address.sin_port)};
}

absl::StatusOr<int> ConnectToLoopback(uint16_t port,
                                      const LoopbackClientOptions& options) {
  using Mode = LoopbackClientOptions::Mode;
  const int at_once = options.mode == Mode::kNonBlocking ? SOCK_NONBLOCK : 0;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | at_once, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const auto fail = [fd](const char* what) {
    const absl::Status s = absl::ErrnoToStatus(errno, what);
    close(fd);
    return s;
  };
  const int on = 1;
  if (options.no_delay) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (options.source != 0) {
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const sockaddr_in source = AddressOf(options.source, 0);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof source) !=
        0) {
      return fail("bind to its source address");
    }
  }
  const sockaddr_in server = AddressOf(INADDR_LOOPBACK, port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) !=
          0 &&
      (at_once == 0 || errno != EINPROGRESS)) {
    return fail("connect");
  }
  if (options.mode == Mode::kWaitThenNonBlocking &&
      fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
    return fail("fcntl");
  }
  return fd;
}

void ResetAtClose(int fd) {
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

absl::Status ClientError(uint64_t number, const char* what) {
  return ClientError(number, absl::ErrnoToStatus(errno, what));
}

absl::Status ClientError(uint64_t number, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("client, connection ", number, ": ",
                                   std::string(status.message())));
}

}  // namespace sluice::bench
