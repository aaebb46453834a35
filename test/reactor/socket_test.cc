// Listening and dialing over TCP; unix_socket_test.cc has the files.
// wrap: socket connect
#include "reactor/internal/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {
bool no_ipv6 = false;    // socket(AF_INET6) fails
int connects_left = -1;  // -1: no end; then EADDRNOTAVAIL
}  // namespace

extern "C" {
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol) {
  if (no_ipv6 && domain == AF_INET6) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  return __real_socket(domain, type, protocol);
}

int __real_connect(int fd, const sockaddr* address, socklen_t length);
int __wrap_connect(int fd, const sockaddr* address, socklen_t length);
int __wrap_connect(int fd, const sockaddr* address, socklen_t length) {
  if (connects_left == 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  if (connects_left > 0) --connects_left;
  return __real_connect(fd, address, length);
}
}

namespace sluice::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Address Parsed(std::string_view text) {
  absl::StatusOr<Address> address = Address::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status().ToString();
  return address.ok() ? *address : Address();
}

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

BoundSocket Listening(const Address& address, const ListenOptions& options = {},
                      bool reuse_port = false) {
  absl::StatusOr<BoundSocket> bound = Listen(address, options, reuse_port);
  EXPECT_TRUE(bound.ok()) << bound.status().ToString();
  return bound.ok() ? *std::move(bound) : BoundSocket();
}

BoundSocket Listening(std::string_view text) { return Listening(Parsed(text)); }

int GetInt(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &length), 0);
  return value;
}

// The local or remote end of a socket.
Address EndOf(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* const raw = reinterpret_cast<sockaddr*>(&storage);
  if (name(fd, raw, &length) != 0) return Address();
  return Address::FromSockaddr(raw, length);
}

bool Poll(int fd, short events) {
  pollfd poller{fd, events, 0};
  return poll(&poller, 1, 60'000) == 1;  // only a bug takes that long
}

// What became of a started connect: 0 or an errno.
int Finish(int fd) {
  EXPECT_TRUE(Poll(fd, POLLOUT));
  return GetInt(fd, SOL_SOCKET, SO_ERROR);
}

// Connects to `address`, accepts it from `bound`, and gives the peer's address.
Address PeerSeen(const BoundSocket& bound, const Address& address) {
  absl::StatusOr<UniqueFd> client = StartConnect(address, {});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  if (!client.ok() || Finish(client->get()) != 0) return Address();
  EXPECT_TRUE(Poll(bound.fd.get(), POLLIN));
  const UniqueFd server(accept(bound.fd.get(), nullptr, nullptr));
  EXPECT_EQ(EndOf(client->get(), getsockname).port(),
            EndOf(server.get(), getpeername).port());
  return EndOf(server.get(), getpeername);
}

Address WithPort(std::string_view text, uint16_t port) {
  Address address = Parsed(text);
  address.set_port(port);
  return address;
}

TEST(ListenTest, B108PortZeroIsReplaced) {
  for (const char* text : {"tcp://127.0.0.1:0", "tcp://[::1]:0", "tcp://:0"}) {
    const BoundSocket bound = Listening(text);
    EXPECT_GT(bound.address.port(), 0) << text;
    EXPECT_EQ(bound.address.port(), EndOf(bound.fd.get(), getsockname).port());
    // Everything but the port is as asked for.
    Address asked = Parsed(text);
    asked.set_port(bound.address.port());
    EXPECT_EQ(bound.address, asked);
  }
}

TEST(ListenTest, SocketIsNonBlockingAndCloseOnExec) {
  const BoundSocket bound = Listening("tcp://127.0.0.1:0");
  EXPECT_TRUE(fcntl(bound.fd.get(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(bound.fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(GetInt(bound.fd.get(), SOL_SOCKET, SO_ACCEPTCONN), 1);
  EXPECT_EQ(GetInt(bound.fd.get(), SOL_SOCKET, SO_REUSEADDR), 1);
  EXPECT_EQ(GetInt(bound.fd.get(), SOL_SOCKET, SO_REUSEPORT), 0);
  ListenOptions options;
  options.socket.reuse_address = false;
  EXPECT_EQ(GetInt(Listening(Parsed("tcp://127.0.0.1:0"), options).fd.get(),
                   SOL_SOCKET, SO_REUSEADDR),
            0);
}

// B110: what each form accepts, and how its peers look.
TEST(ListenTest, B110DualStackTakesBoth) {
  const BoundSocket bound = Listening("tcp://:0");
  const uint16_t port = bound.address.port();
  EXPECT_TRUE(bound.address.dual_stack());
  EXPECT_EQ(GetInt(bound.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY), 0);
  const Address v4 = PeerSeen(bound, WithPort("tcp://127.0.0.1:0", port));
  EXPECT_EQ(v4.family(), Address::Family::kIpv4);
  EXPECT_THAT(v4.ToString(), StartsWith("tcp://127.0.0.1:"));
  const Address v6 = PeerSeen(bound, WithPort("tcp://[::1]:0", port));
  EXPECT_THAT(v6.ToString(), StartsWith("tcp://[::1]:"));
}

TEST(ListenTest, B110BothWildcardsOnOnePort) {
  // A port that is free for IPv6 may be in TIME_WAIT for IPv4, left there by
  // anybody: then another one it is.
  BoundSocket v6;
  absl::StatusOr<BoundSocket> second;
  for (int attempt = 0; attempt < 200 && !second.ok(); ++attempt) {
    v6 = Listening("tcp://[::]:0");
    second = Listen(WithPort("tcp://0.0.0.0:0", v6.address.port()), {},
                    /*reuse_port=*/false);
  }
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  const BoundSocket v4 = *std::move(second);
  const uint16_t port = v6.address.port();
  EXPECT_EQ(GetInt(v6.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY), 1);
  EXPECT_THAT(PeerSeen(v4, WithPort("tcp://127.0.0.1:0", port)).ToString(),
              StartsWith("tcp://127.0.0.1:"));
  EXPECT_THAT(PeerSeen(v6, WithPort("tcp://[::1]:0", port)).ToString(),
              StartsWith("tcp://[::1]:"));
}

TEST(ListenTest, B110Tcp6AloneRefusesIpv4) {
  const BoundSocket bound = Listening("tcp6://:0");
  EXPECT_EQ(GetInt(bound.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY), 1);
  absl::StatusOr<UniqueFd> client =
      StartConnect(WithPort("tcp://127.0.0.1:0", bound.address.port()), {});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_EQ(Finish(client->get()), ECONNREFUSED);
}

// B110: net.ipv6.bindv6only and hooks change nothing.
TEST(ListenTest, B110V6OnlyIsSetWhateverItWas) {
  for (int start : {0, 1}) {
    ListenOptions options;
    options.socket.before_bind = [start](int fd) {
      EXPECT_EQ(
          setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &start, sizeof(start)), 0);
      return absl::OkStatus();
    };
    const auto v6only = [&](const char* text) {
      return GetInt(Listening(Parsed(text), options).fd.get(), IPPROTO_IPV6,
                    IPV6_V6ONLY);
    };
    EXPECT_EQ(v6only("tcp://:0"), 0) << start;
    EXPECT_EQ(v6only("tcp://[::]:0"), 1) << start;
    EXPECT_EQ(v6only("tcp6://:0"), 1) << start;
    EXPECT_EQ(v6only("tcp://[::1]:0"), 1) << start;
  }
}

TEST(ListenTest, WithoutIpv6DualStackIsIpv4) {
  no_ipv6 = true;
  absl::StatusOr<BoundSocket> dual = Listen(Parsed("tcp://:0"), {}, false);
  absl::StatusOr<BoundSocket> v6 = Listen(Parsed("tcp://[::1]:0"), {}, false);
  no_ipv6 = false;
  ASSERT_TRUE(dual.ok()) << dual.status().ToString();
  EXPECT_THAT(dual->address.ToString(), StartsWith("tcp://0.0.0.0:"));
  EXPECT_GT(dual->address.port(), 0);
  ASSERT_FALSE(v6.ok());
  EXPECT_EQ(Text(v6.status()),
            "listen on tcp://[::1]:0: socket: Address family not supported by "
            "protocol");
}

// B09: the length of the queue as the kernel has it (tcpi_sacked of a listening
// socket is its backlog, already capped).
TEST(ListenTest, B09Backlog) {
  int somaxconn = 0;
  std::ifstream("/proc/sys/net/core/somaxconn") >> somaxconn;
  ASSERT_GT(somaxconn, 0);
  const auto backlog = [](int asked) {
    ListenOptions options;
    options.backlog = asked;
    const BoundSocket bound = Listening(Parsed("tcp://127.0.0.1:0"), options);
    EXPECT_EQ(GetInt(bound.fd.get(), SOL_SOCKET, SO_ACCEPTCONN), 1);
    tcp_info info{};
    socklen_t length = sizeof(info);
    EXPECT_EQ(getsockopt(bound.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &length),
              0);
    return static_cast<int>(info.tcpi_sacked);
  };
  EXPECT_EQ(backlog(0), somaxconn);
  EXPECT_EQ(backlog(-1), somaxconn);
  EXPECT_EQ(backlog(1'000'000), std::min(1'000'000, somaxconn));
  EXPECT_EQ(backlog(1), 1);
}

TEST(ListenTest, PortInUse) {
  const BoundSocket first = Listening("tcp://127.0.0.1:0");
  absl::StatusOr<BoundSocket> second = Listen(first.address, {}, false);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text(second.status()), "listen on " + first.address.ToString() +
                                       ": bind: Address already in use");
}

TEST(ListenTest, ReusePortSharesAPort) {
  const BoundSocket first = Listening(Parsed("tcp://127.0.0.1:0"), {}, true);
  const BoundSocket second = Listening(first.address, {}, true);
  EXPECT_EQ(first.address, second.address);
  EXPECT_EQ(GetInt(second.fd.get(), SOL_SOCKET, SO_REUSEPORT), 1);
  // One without it does not get in.
  EXPECT_EQ(Listen(first.address, {}, false).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(ListenTest, ForeignAddress) {
  absl::StatusOr<BoundSocket> bound =
      Listen(Parsed("tcp://203.0.113.7:0"), {}, false);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(bound.status()),
              StartsWith("listen on tcp://203.0.113.7:0: bind: "));
  EXPECT_THAT(Text(bound.status()), HasSubstr("does not have it"));
}

TEST(ListenTest, LinkLocalWithoutZone) {
  absl::StatusOr<BoundSocket> bound =
      Listen(Parsed("tcp://[fe80::1]:0"), {}, false);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(bound.status()), HasSubstr("needs a zone"));
}

TEST(ListenTest, NoAddress) {
  EXPECT_EQ(Listen(Address(), {}, false).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SocketOptionsTest, AllAreSetAndInherited) {
  ListenOptions options;
  options.socket.keep_alive = KeepAlive{seconds(11), seconds(7), 3};
  options.socket.user_timeout = milliseconds(12345);
  options.socket.not_sent_low_water = 54321;
  options.socket.receive_buffer = 20000;
  options.socket.send_buffer = 30000;
  options.socket.linger = seconds(5);
  const BoundSocket bound = Listening(Parsed("tcp://127.0.0.1:0"), options);
  absl::StatusOr<UniqueFd> client = StartConnect(bound.address, {});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_EQ(Finish(client->get()), 0);
  ASSERT_TRUE(Poll(bound.fd.get(), POLLIN));
  const UniqueFd accepted(accept(bound.fd.get(), nullptr, nullptr));
  for (int fd : {bound.fd.get(), accepted.get()}) {
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(GetInt(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE), 11);
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL), 7);
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 12345);
    EXPECT_EQ(GetInt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 54321);
    // The kernel doubles both, for its own bookkeeping.
    EXPECT_EQ(GetInt(fd, SOL_SOCKET, SO_RCVBUF), 40000);
    EXPECT_EQ(GetInt(fd, SOL_SOCKET, SO_SNDBUF), 60000);
    linger value{};
    socklen_t length = sizeof(value);
    ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &length), 0);
    EXPECT_EQ(value.l_onoff, 1);
    EXPECT_EQ(value.l_linger, 5);
  }
}

TEST(SocketOptionsTest, DefaultsLeaveTheRestAlone) {
  const UniqueFd plain(socket(AF_INET, SOCK_STREAM, 0));
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  SocketOptions options;
  options.no_delay = false;
  ASSERT_EQ(ApplySocketOptions(fd.get(), Address::Family::kIpv4, options),
            absl::OkStatus());
  for (int option : {SO_KEEPALIVE, SO_RCVBUF, SO_SNDBUF, SO_REUSEADDR}) {
    EXPECT_EQ(GetInt(fd.get(), SOL_SOCKET, option),
              GetInt(plain.get(), SOL_SOCKET, option));
  }
  EXPECT_EQ(GetInt(fd.get(), IPPROTO_TCP, TCP_NODELAY), 0);
  EXPECT_EQ(GetInt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT),
            GetInt(plain.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT));
}

TEST(SocketOptionsTest, TcpOptionsAreLeftOutOnUnix) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  SocketOptions options;
  options.keep_alive = KeepAlive{};
  options.user_timeout = milliseconds(1);
  options.not_sent_low_water = 1;
  options.bind_to_device = "no-such-if";
  EXPECT_EQ(ApplySocketOptions(fd.get(), Address::Family::kUnix, options),
            absl::OkStatus());
}

TEST(SocketOptionsTest, ErrorsNameOptionAndValue) {
  ListenOptions options;
  options.socket.bind_to_device = "no-such-if";
  EXPECT_EQ(
      Text(Listen(Parsed("tcp://127.0.0.1:0"), options, false).status()),
      "listen on tcp://127.0.0.1:0: set SO_BINDTODEVICE to no-such-if: No such "
      "device");
  options.socket = {};
  options.socket.receive_buffer = -5;
  EXPECT_THAT(
      Text(Listen(Parsed("tcp://127.0.0.1:0"), options, false).status()),
      HasSubstr("receive_buffer is -5"));
  // On a descriptor that is no socket.
  EXPECT_THAT(Text(ApplySocketOptions(-1, Address::Family::kIpv4, {})),
              HasSubstr("set TCP_NODELAY to 1: Bad file descriptor"));
}

TEST(SocketOptionsTest, HookRunsBeforeBindAndItsErrorIsTheResult) {
  ListenOptions options;
  options.socket.before_bind = [](int fd) {
    EXPECT_EQ(EndOf(fd, getsockname).port(), 0);
    return absl::PermissionDeniedError("not today");
  };
  absl::Status status =
      Listen(Parsed("tcp://127.0.0.1:0"), options, false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Text(status),
            "listen on tcp://127.0.0.1:0: before_bind: not today");
  DialOptions dial;
  dial.socket.before_bind = options.socket.before_bind;
  status = StartConnect(Parsed("tcp://127.0.0.1:9"), dial).status();
  EXPECT_EQ(Text(status), "dial tcp://127.0.0.1:9: before_bind: not today");
}

TEST(DialTest, SocketIsNonBlockingAndCloseOnExec) {
  const BoundSocket bound = Listening("tcp://127.0.0.1:0");
  absl::StatusOr<UniqueFd> client = StartConnect(bound.address, {});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_TRUE(fcntl(client->get(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(client->get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(GetInt(client->get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Finish(client->get()), 0);
}

TEST(DialTest, SourceWithoutPort) {
  for (const auto& [listener, source] :
       {std::pair("tcp://127.0.0.1:0", "tcp://127.0.0.9:0"),
        std::pair("tcp://[::1]:0", "tcp://[::1]:0")}) {
    const BoundSocket bound = Listening(listener);
    DialOptions options;
    options.source = Parsed(source);
    absl::StatusOr<UniqueFd> client = StartConnect(bound.address, options);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    EXPECT_EQ(GetInt(client->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), 1);
    EXPECT_EQ(Finish(client->get()), 0);
    const Address local = EndOf(client->get(), getsockname);
    EXPECT_EQ(local.ip_bytes(), options.source.ip_bytes());
    EXPECT_GT(local.port(), 0);
  }
}

// One source port to two listeners; a second time to the same one is taken.
TEST(DialTest, SourceWithPort) {
  const BoundSocket one = Listening("tcp://127.0.0.1:0");
  const BoundSocket two = Listening("tcp://127.0.0.1:0");
  DialOptions options;
  options.source = Parsed("tcp://127.0.0.11:0");
  // Any free port: bind finds it, and nobody else uses this address.
  options.source.set_port(Listening("tcp://127.0.0.11:0").address.port());
  absl::StatusOr<UniqueFd> first = StartConnect(one.address, options);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(Finish(first->get()), 0);
  EXPECT_EQ(EndOf(first->get(), getsockname), options.source);
  absl::StatusOr<UniqueFd> second = StartConnect(two.address, options);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(Finish(second->get()), 0);
  absl::Status again = StartConnect(one.address, options).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(again), HasSubstr("already connected"));
  // Without SO_REUSEADDR the port is taken at bind.
  options.socket.reuse_address = false;
  again = StartConnect(two.address, options).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(again), HasSubstr("bind to " + options.source.ToString()));
}

// B116: used-up ports are named, with the errno and what to do.
TEST(DialTest, B116PortsUsedUp) {
  const BoundSocket bound = Listening("tcp://127.0.0.1:0");
  DialOptions options;
  options.source = Parsed("tcp://127.0.0.12:0");
  std::vector<UniqueFd> clients;
  connects_left = 50;
  absl::Status status;
  for (int i = 0; i < 60 && status.ok(); ++i) {
    absl::StatusOr<UniqueFd> client = StartConnect(bound.address, options);
    status = client.status();
    if (client.ok()) clients.push_back(*std::move(client));
  }
  connects_left = -1;
  EXPECT_EQ(clients.size(), 50u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Text(status),
            "dial " + bound.address.ToString() +
                ": connect: Cannot assign requested address; no local port is "
                "left for this destination (net.ipv4.ip_local_port_range): use "
                "more source addresses");
}

// B116: the same from the kernel, with a range of two ports.
TEST(DialTest, B116PortsUsedUpForReal) {
  constexpr int kIpLocalPortRange = 51;  // linux/in.h, since Linux 6.3
  const BoundSocket bound = Listening("tcp://127.0.0.1:0");
  bool supported = true;
  DialOptions options;
  options.source = Parsed("tcp://127.0.0.13:0");
  options.socket.before_bind = [&](int fd) {
    const uint32_t range = 40001u << 16 | 40000u;
    if (setsockopt(fd, IPPROTO_IP, kIpLocalPortRange, &range, sizeof(range)) !=
        0) {
      supported = false;
    }
    return absl::OkStatus();
  };
  std::vector<UniqueFd> clients;
  absl::Status status;
  for (int i = 0; i < 3 && status.ok() && supported; ++i) {
    absl::StatusOr<UniqueFd> client = StartConnect(bound.address, options);
    status = client.status();
    if (client.ok()) clients.push_back(*std::move(client));
  }
  if (!supported) GTEST_SKIP() << "no IP_LOCAL_PORT_RANGE in this kernel";
  EXPECT_LE(clients.size(), 2u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), HasSubstr("no local port is left"));
}

TEST(DialTest, WhatCannotBeDialed) {
  const auto error = [](const Address& address, const char* source = nullptr) {
    DialOptions options;
    if (source != nullptr) options.source = Parsed(source);
    const absl::Status status = StartConnect(address, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Text(status);
  };
  EXPECT_EQ(error(Address()), "dial none: no address");
  EXPECT_EQ(error(Parsed("tcp://:80")),
            "dial tcp://:80: a host is needed to dial");
  EXPECT_THAT(error(Parsed("tcp4://:80")), HasSubstr("host is needed"));
  EXPECT_THAT(error(Parsed("tcp6://:80")), HasSubstr("host is needed"));
  EXPECT_THAT(error(Parsed("tcp://127.0.0.1:0")), HasSubstr("port from 1"));
  EXPECT_EQ(error(Parsed("tcp://127.0.0.1:1"), "tcp://[::1]:0"),
            "dial tcp://127.0.0.1:1: the source tcp://[::1]:0 is of another "
            "family");
  EXPECT_THAT(error(Parsed("tcp://[::1]:1"), "tcp://127.0.0.1:0"),
              HasSubstr("another family"));
  EXPECT_THAT(error(Parsed("unix:///x"), "unix:///y"),
              HasSubstr("unix:///y is not an IP address"));
  EXPECT_THAT(error(Parsed("unix:///x"), "tcp://127.0.0.1:0"),
              HasSubstr("another family"));
  EXPECT_THAT(error(Parsed("tcp://[fe80::1]:1")), HasSubstr("needs a zone"));
}

TEST(DialTest, ForeignSource) {
  DialOptions options;
  options.source = Parsed("tcp://203.0.113.7:0");
  const absl::Status status =
      StartConnect(Parsed("tcp://127.0.0.1:1"), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("bind to tcp://203.0.113.7:0"));
}

}  // namespace
}  // namespace sluice::internal
