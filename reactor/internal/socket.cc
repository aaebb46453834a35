#include "reactor/internal/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/unix_socket.h"

namespace sluice::internal {
namespace {

using Family = Address::Family;

int SocketFamily(Family family) {
  return family == Family::kIpv4   ? AF_INET
         : family == Family::kIpv6 ? AF_INET6
                                   : AF_UNIX;
}

UniqueFd NewSocket(const Address& address) {
  return UniqueFd(socket(SocketFamily(address.family()),
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

absl::Status SetInt(int fd, int level, int option, int value,
                    std::string_view name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  return ErrnoStatus(error, absl::StrCat("set ", ToAbsl(name), " to ", value));
}

// `status` with "`where`: " before its text.
absl::Status At(std::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(ToAbsl(where), ": ", status.message()));
}

// An errno with a code that says more than abseil's and, where errno's own text
// does not help, the reason.
absl::Status StepError(std::string_view step, const Address& address,
                       int error) {
  const absl::Status plain = ErrnoStatus(error, step);
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(plain.message());
    case EADDRNOTAVAIL:
      return absl::FailedPreconditionError(
          absl::StrCat(plain.message(), "; this machine does not have it"));
    case EINVAL: {
      const std::string_view ip = address.ip_bytes();
      const bool link_local =
          ip.size() == 16 && ip[0] == '\xfe' && (ip[1] & 0xc0) == 0x80;
      if (!link_local || address.scope_id() != 0) return plain;
      return absl::InvalidArgumentError(absl::StrCat(
          plain.message(),
          "; a link-local address needs a zone, like [fe80::1%eth0]"));
    }
    default:
      return plain;
  }
}

bool IsWildcard(const Address& address) {
  const std::string_view ip = address.ip_bytes();
  return std::all_of(ip.begin(), ip.end(), [](char c) { return c == 0; });
}

int EffectiveBacklog(int backlog) {
  if (backlog > 0) return backlog;
  int most = 0;
  std::ifstream("/proc/sys/net/core/somaxconn") >> most;
  return most > 0 ? most : 4096;
}

// Options and hook, in the order in which both kinds of socket get them.
absl::Status Prepare(int fd, const Address& address,
                     const SocketOptions& options, bool reuse_address) {
  if (address.is_ip() && reuse_address) {
    if (absl::Status s =
            SetInt(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
        !s.ok()) {
      return s;
    }
  }
  if (absl::Status s = ApplySocketOptions(fd, address.family(), options);
      !s.ok()) {
    return s;
  }
  if (options.before_bind) {
    if (absl::Status s = options.before_bind(fd); !s.ok()) {
      return At("before_bind", s);
    }
  }
  if (address.family() != Family::kIpv6) return absl::OkStatus();
  return SetInt(fd, IPPROTO_IPV6, IPV6_V6ONLY, address.dual_stack() ? 0 : 1,
                "IPV6_V6ONLY");
}

// The steps from a fresh socket to a listening one.
absl::Status ListenOnIp(const Address& address, const ListenOptions& options,
                        bool reuse_port, BoundSocket* bound) {
  const int fd = bound->fd.get();
  if (reuse_port) {
    if (absl::Status s =
            SetInt(fd, SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT");
        !s.ok()) {
      return s;
    }
  }
  if (absl::Status s =
          Prepare(fd, address, options.socket, options.socket.reuse_address);
      !s.ok()) {
    return s;
  }
  sockaddr_storage storage;
  socklen_t length = address.ToSockaddr(&storage);
  sockaddr* const raw = reinterpret_cast<sockaddr*>(&storage);
  if (bind(fd, raw, length) != 0) return StepError("bind", address, errno);
  // EADDRINUSE may come here too: two may bind with SO_REUSEADDR, one listens.
  if (listen(fd, EffectiveBacklog(options.backlog)) != 0) {
    return StepError("listen", address, errno);
  }
  length = sizeof(storage);
  if (getsockname(fd, raw, &length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  bound->address = address;
  bound->address.set_port(Address::FromSockaddr(raw, length).port());
  return absl::OkStatus();
}

// The same port on 0.0.0.0, for a kernel without IPv6.
Address WithoutIpv6(const Address& address) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(address.port());
  return Address::FromSockaddr(reinterpret_cast<sockaddr*>(&any), sizeof(any));
}

// The source address of a dialed socket, bound before it connects.
absl::Status BindSource(int fd, const Address& source) {
  if (source.port() == 0) {
    // Kernels before 4.2 do not know it; they choose the port at bind.
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  }
  sockaddr_storage storage;
  const socklen_t length = source.ToSockaddr(&storage);
  if (bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  const std::string step = absl::StrCat("bind to ", source.ToString());
  if (error == EADDRINUSE && source.port() == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(step, ": no local port left on this address"));
  }
  return StepError(step, source, error);
}

absl::Status CheckEnds(const Address& address, const Address& source) {
  if (address.family() == Family::kNone) {
    return absl::InvalidArgumentError("no address");
  }
  if (address.family() == Family::kUnix && address.path().empty()) {
    return absl::InvalidArgumentError("no path");
  }
  if (address.is_ip() && IsWildcard(address)) {
    return absl::InvalidArgumentError("a host is needed to dial");
  }
  if (address.is_ip() && address.port() == 0) {
    return absl::InvalidArgumentError("a port from 1 to 65535 is needed");
  }
  if (source.family() == Family::kNone) return absl::OkStatus();
  if (!source.is_ip() || source.family() != address.family()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the source ", source.ToString(),
        source.is_ip() ? " is of another family" : " is not an IP address"));
  }
  return absl::OkStatus();
}

absl::Status ConnectError(const Address& source, int error) {
  const absl::Status plain = ErrnoStatus(error, "connect");
  if (error == EADDRNOTAVAIL) {
    return absl::ResourceExhaustedError(absl::StrCat(
        plain.message(),
        source.port() != 0
            ? "; this source port is already connected there"
            : "; no local port is left for this destination "
              "(net.ipv4.ip_local_port_range): use more source addresses"));
  }
  return plain;
}

absl::Status Connect(int fd, const Address& address,
                     const DialOptions& options) {
  const bool reuse = options.socket.reuse_address && options.source.port() != 0;
  if (absl::Status s = Prepare(fd, address, options.socket, reuse); !s.ok()) {
    return s;
  }
  if (options.source.is_ip()) {
    if (absl::Status s = BindSource(fd, options.source); !s.ok()) return s;
  }
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  if (connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) {
    return absl::OkStatus();
  }
  switch (const int error = errno) {
    case EINPROGRESS:
    case EINTR:  // it goes on in the background all the same
      return absl::OkStatus();
    case EAGAIN:
      return absl::UnavailableError("connect: the listener's queue is full");
    case EINVAL:
      return StepError("connect", address, error);
    default:
      return ConnectError(options.source, error);
  }
}

}  // namespace

absl::StatusOr<BoundSocket> Listen(const Address& address,
                                   const ListenOptions& options,
                                   bool reuse_port) {
  const std::string where = absl::StrCat("listen on ", address.ToString());
  if (address.family() == Family::kNone ||
      (address.family() == Family::kUnix && address.path().empty())) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": no address"));
  }
  if (absl::Status s = ValidateListenOptions(options); !s.ok()) {
    return At(where, s);
  }
  BoundSocket bound;
  bound.fd = NewSocket(address);
  if (!bound.fd) {
    const int error = errno;
    if (error == EAFNOSUPPORT && address.dual_stack()) {
      return Listen(WithoutIpv6(address), options, reuse_port);
    }
    return ErrnoStatus(error, where + ": socket");
  }
  if (address.is_ip()) {
    if (absl::Status s = ListenOnIp(address, options, reuse_port, &bound);
        !s.ok()) {
      return At(where, s);
    }
    return bound;
  }
  if (absl::Status s = Prepare(bound.fd.get(), address, options.socket, false);
      !s.ok()) {
    return At(where, s);
  }
  if (absl::Status s =
          ListenOnUnix(address, EffectiveBacklog(options.backlog), &bound);
      !s.ok()) {
    return s;
  }
  return bound;
}

absl::Status CheckDial(const Address& address, const Address& source) {
  const absl::Status s = CheckEnds(address, source);
  return s.ok() ? s : At(absl::StrCat("dial ", address.ToString()), s);
}

absl::StatusOr<UniqueFd> StartConnect(const Address& address,
                                      const DialOptions& options) {
  const std::string where = absl::StrCat("dial ", address.ToString());
  if (absl::Status s = CheckDial(address, options.source); !s.ok()) return s;
  UniqueFd fd = NewSocket(address);
  if (!fd) {
    const int error = errno;
    return ErrnoStatus(error, where + ": socket");
  }
  if (absl::Status s = Connect(fd.get(), address, options); !s.ok()) {
    return At(where, s);
  }
  return fd;
}

}  // namespace sluice::internal
