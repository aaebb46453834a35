// Internal: an accepted descriptor on its way to its reactor.
#ifndef SLUICE_REACTOR_INTERNAL_ACCEPTED_SOCKET_H_
#define SLUICE_REACTOR_INTERNAL_ACCEPTED_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice::internal {

// Who the peer is, as accept4 said: a peer that has gone meanwhile has no
// getpeername(2) any more. An IPv4-mapped IPv6 address becomes IPv4 here. The
// name of a Unix peer, rare, is asked for when it is wanted.
struct PeerName {
  enum class Kind : uint8_t { kNone, kIpv4, kIpv6, kUnix };

  Kind kind = Kind::kNone;
  uint16_t port = 0;  // host byte order
  uint32_t scope_id = 0;
  unsigned char ip[16] = {};  // network byte order; the first 4 for IPv4

  static PeerName FromSockaddr(const sockaddr_storage& from);
};

// Plain bytes: it also travels through a socket (FdChannel).
struct AcceptedSocket {
  int32_t fd = -1;  // -1 in a channel's record: it comes beside it
  uint16_t listener = 0;
  PeerName peer;
};
static_assert(std::is_trivially_copyable_v<AcceptedSocket>);

inline PeerName PeerName::FromSockaddr(const sockaddr_storage& from) {
  PeerName name;
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    name.kind = Kind::kIpv4;
    name.port = ntohs(v4.sin_port);
    std::memcpy(name.ip, &v4.sin_addr, 4);
  } else if (from.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    name.port = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      name.kind = Kind::kIpv4;
      std::memcpy(name.ip, v6.sin6_addr.s6_addr + 12, 4);
    } else {
      name.kind = Kind::kIpv6;
      name.scope_id = v6.sin6_scope_id;
      std::memcpy(name.ip, v6.sin6_addr.s6_addr, 16);
    }
  } else if (from.ss_family == AF_UNIX) {
    name.kind = Kind::kUnix;
  }
  return name;
}

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_ACCEPTED_SOCKET_H_
