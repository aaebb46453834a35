#include "bench/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"

namespace sluice::bench {

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
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0) return fail("bind 127.0.0.1:0");
  if (listen(fd, SOMAXCONN) != 0) return fail("listen 127.0.0.1:0");
  if (getsockname(fd, generic, &length) != 0) return fail("getsockname");
  return LoopbackListener{fd, ntohs(address.sin_port)};
}

}  // namespace sluice::bench
