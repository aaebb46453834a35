// Public header: where to listen, where to dial, who the peer is.
#ifndef SLUICE_REACTOR_ADDRESS_H_
#define SLUICE_REACTOR_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice {

// The address of one end of a stream socket. A value: copy it freely.
//
//   tcp://:9000            every IPv4 and IPv6 address (one dual-stack socket)
//   tcp://0.0.0.0:9000     what is written and nothing else: IPv4 only
//   tcp://[::]:9000        IPv6 only; so both of these may be listened on
//   tcp4://:9000           IPv4 only        tcp6://:9000  IPv6 only
//   tcp://[fe80::1%eth0]:80    with a zone (a name or a number)
//   unix:///run/app.sock   a path of at most 107 bytes, absolute or relative
//   unix://@name           an abstract name, at most 107 bytes after the @
//
// A port is 0 to 65535 in digits, nothing may follow it, and a zone needs a
// link-local address (the kernel ignores it on any other).
//
// Whether a socket is dual-stack never depends on net.ipv6.bindv6only: the
// engine sets IPV6_V6ONLY either way. An IPv4 peer of a dual-stack socket is
// always an IPv4 address here, "tcp://192.0.2.1:5", never "::ffff:192.0.2.1".
class Address {
 public:
  enum class Family : uint8_t { kNone, kIpv4, kIpv6, kUnix };

  // No address: family kNone. ToString() is "none".
  Address() = default;

  // Numeric addresses only, as above; never asks a name server. The error
  // names the text and what is wrong with it.
  static absl::StatusOr<Address> Parse(std::string_view text);

  // As Parse, and host names too (an IPv4 address is preferred for tcp://).
  // Blocks on the resolver: call it before the loops run or on a worker.
  static absl::StatusOr<Address> Resolve(std::string_view text);

  // An address the kernel gave. An unknown family gives kNone; an unnamed Unix
  // peer gives kUnix with an empty path; a file whose name starts with '@' gets
  // "./" before it, so that it is no abstract name.
  static Address FromSockaddr(const sockaddr* address, socklen_t length);

  // Fills *storage and returns its length; 0 for kNone and for a path that does
  // not fit.
  socklen_t ToSockaddr(sockaddr_storage* storage) const;

  Family family() const { return family_; }
  bool is_ip() const {
    return family_ == Family::kIpv4 || family_ == Family::kIpv6;
  }
  // True only for a tcp:// wildcard without a host.
  bool dual_stack() const { return dual_stack_; }
  uint16_t port() const { return port_; }  // host byte order; 0 for unix
  void set_port(uint16_t port) { port_ = port; }

  // The Unix path; an abstract name keeps its leading '@'.
  const std::string& path() const { return path_; }
  bool is_abstract() const { return !path_.empty() && path_[0] == '@'; }

  // The raw address, network byte order: 4 bytes (IPv4) or 16 (IPv6).
  std::string_view ip_bytes() const;
  uint32_t scope_id() const { return scope_id_; }

  // In the form that Parse reads: "tcp://127.0.0.1:80", "tcp://[::1]:80",
  // "tcp://:80" (dual stack), "unix:///run/x". Zones are numbers; a NUL byte in
  // a peer's abstract name is shown as '@'.
  std::string ToString() const;

  // A hash of the host without the port: the same client gives the same value
  // whatever port it comes from.
  uint64_t HostHash() const;

  friend bool operator==(const Address& a, const Address& b) = default;

  template <typename H>
  friend H AbslHashValue(H h, const Address& a) {
    return H::combine(std::move(h), a.HostHash(), a.port_);
  }

 private:
  static absl::StatusOr<Address> FromText(std::string_view text, bool names);

  Family family_ = Family::kNone;
  bool dual_stack_ = false;
  uint16_t port_ = 0;
  uint32_t scope_id_ = 0;
  unsigned char ip_[16] = {};
  std::string path_;
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_ADDRESS_H_
