#include "reactor/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Family = Address::Family;

Address Parsed(std::string_view text) {
  absl::StatusOr<Address> address = Address::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status().ToString();
  return address.ok() ? *address : Address();
}

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

// The message of the InvalidArgument that Parse gives.
std::string ParseError(std::string_view text) {
  absl::StatusOr<Address> address = Address::Parse(text);
  if (address.ok()) return "parsed as " + address->ToString();
  EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
  return Text(address.status());
}

Address RoundTrip(const Address& address) {
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  return Address::FromSockaddr(reinterpret_cast<sockaddr*>(&storage), length);
}

TEST(AddressTest, DefaultIsNone) {
  const Address address;
  sockaddr_storage storage;
  EXPECT_EQ(address.family(), Family::kNone);
  EXPECT_FALSE(address.is_ip());
  EXPECT_EQ(address.ToString(), "none");
  EXPECT_EQ(address.ToSockaddr(&storage), 0u);
  EXPECT_EQ(address.ip_bytes(), "");
}

TEST(AddressTest, ParsesAndFormats) {
  const struct {
    const char* text;
    Family family;
    bool dual_stack;
    int port;
    const char* shown;
  } cases[] = {
      {"tcp://:9000", Family::kIpv6, true, 9000, "tcp://:9000"},
      {"tcp://0.0.0.0:9000", Family::kIpv4, false, 9000, "tcp://0.0.0.0:9000"},
      {"tcp://[::]:9000", Family::kIpv6, false, 9000, "tcp://[::]:9000"},
      {"tcp4://:9000", Family::kIpv4, false, 9000, "tcp://0.0.0.0:9000"},
      {"tcp6://:9000", Family::kIpv6, false, 9000, "tcp://[::]:9000"},
      {"tcp4://127.0.0.1:0", Family::kIpv4, false, 0, "tcp://127.0.0.1:0"},
      {"tcp6://[::1]:65535", Family::kIpv6, false, 65535, "tcp://[::1]:65535"},
      {"tcp://[2001:DB8:0:0::1]:007", Family::kIpv6, false, 7,
       "tcp://[2001:db8::1]:7"},
      {"tcp://[::ffff:192.0.2.1]:5", Family::kIpv4, false, 5,
       "tcp://192.0.2.1:5"},
      {"tcp://[fe80::1%7]:80", Family::kIpv6, false, 80,
       "tcp://[fe80::1%7]:80"},
      {"unix:///run/app.sock", Family::kUnix, false, 0, "unix:///run/app.sock"},
      {"unix://app.sock", Family::kUnix, false, 0, "unix://app.sock"},
      {"unix://@name", Family::kUnix, false, 0, "unix://@name"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const Address address = Parsed(c.text);
    EXPECT_EQ(address.family(), c.family);
    EXPECT_EQ(address.is_ip(), c.family != Family::kUnix);
    EXPECT_EQ(address.dual_stack(), c.dual_stack);
    EXPECT_EQ(address.port(), c.port);
    EXPECT_EQ(address.ToString(), c.shown);
    EXPECT_EQ(Parsed(address.ToString()), address);
    // Whether it is dual-stack is no part of a sockaddr.
    if (!c.dual_stack) {
      EXPECT_EQ(RoundTrip(address), address);
    }
  }
}

TEST(AddressTest, IpBytesAreInNetworkOrder) {
  EXPECT_EQ(Parsed("tcp://1.2.3.4:5").ip_bytes(), "\1\2\3\4");
  EXPECT_EQ(Parsed("tcp://[102::f]:5").ip_bytes(),
            std::string_view("\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\17", 16));
  EXPECT_EQ(Parsed("unix://x").ip_bytes(), "");
}

// B108: every port that is no port, and every address without a known scheme,
// is an error that names the text.
TEST(AddressTest, B108BadPortsAndSchemes) {
  const char* const bad_ports[] = {"tcp://:65536",
                                   "tcp://:99999",
                                   "tcp://:-1",
                                   "tcp://:80abc",
                                   "tcp://:",
                                   "tcp://: 80",
                                   "tcp://:0x50",
                                   "tcp://:4295009395",
                                   "tcp://:+80",
                                   "tcp://:80 ",
                                   "tcp://:80/",
                                   "tcp://[::1]:80x",
                                   "tcp://127.0.0.1:18446744073709551696"};
  for (const char* text : bad_ports) {
    EXPECT_THAT(ParseError(text), HasSubstr("not a number from 0 to 65535"));
    EXPECT_THAT(ParseError(text), HasSubstr("\"" + std::string(text) + "\""));
  }
  for (const char* text :
       {"", ":80", "127.0.0.1:80", "localhost", "tcp:/:80"}) {
    EXPECT_THAT(ParseError(text), HasSubstr("no scheme"));
  }
  for (const char* text : {"udp://:80", "://:80", "TCP://:80", "http://a:80"}) {
    EXPECT_THAT(ParseError(text), HasSubstr("unknown scheme"));
  }
  EXPECT_THAT(ParseError(std::string_view("tcp://:8\0", 9)),
              HasSubstr("not a number"));
}

TEST(AddressTest, B108PortZeroIsAPort) {
  EXPECT_EQ(Parsed("tcp://:0").port(), 0);
  EXPECT_EQ(Parsed("tcp://[::1]:0").port(), 0);
}

TEST(AddressTest, BadHosts) {
  EXPECT_THAT(ParseError("tcp://"), HasSubstr("no \":port\""));
  EXPECT_THAT(ParseError("tcp://127.0.0.1"), HasSubstr("no \":port\""));
  EXPECT_THAT(ParseError("tcp://[::1]"), HasSubstr("no \":port\""));
  EXPECT_THAT(ParseError("tcp://[::1]x:80"), HasSubstr("no \":port\""));
  EXPECT_THAT(ParseError("tcp://[::1:80"), HasSubstr("no ']'"));
  EXPECT_THAT(ParseError("tcp://::1:80"), HasSubstr("brackets"));
  EXPECT_THAT(ParseError("tcp://[]:80"), HasSubstr("nothing between"));
  EXPECT_THAT(ParseError("tcp://[1.2.3.4]:80"),
              HasSubstr("\"1.2.3.4\" is not"));
  EXPECT_THAT(ParseError("tcp4://[::1]:80"), HasSubstr("IPv4 only"));
  EXPECT_THAT(ParseError("tcp6://1.2.3.4:80"), HasSubstr("IPv6 only"));
  EXPECT_THAT(ParseError("tcp6://[::ffff:1.2.3.4]:80"), HasSubstr("IPv6 only"));
  EXPECT_THAT(ParseError("tcp://localhost:80"),
              HasSubstr("\"localhost\" is not an IPv4 address"));
  for (const char* text : {"tcp://1.2.3:80", "tcp://1.2.3.256:80",
                           "tcp:// 1.2.3.4:80", "tcp://01.2.3.4:80"}) {
    EXPECT_THAT(ParseError(text), HasSubstr("is not an IPv4 address"));
  }
  EXPECT_THAT(ParseError(std::string_view("tcp://1.2.3.4\0:80", 17)),
              HasSubstr("1.2.3.4\\x00"));
}

TEST(AddressTest, Zones) {
  char name[IF_NAMESIZE];
  if (if_indextoname(1, name) != nullptr) {
    const std::string text = "tcp://[fe80::1%" + std::string(name) + "]:80";
    EXPECT_EQ(Parsed(text).scope_id(), 1u);
    EXPECT_EQ(Parsed(text), Parsed("tcp://[fe80::1%1]:80"));
  }
  EXPECT_NE(Parsed("tcp://[fe80::1%1]:80"), Parsed("tcp://[fe80::1%2]:80"));
  EXPECT_NE(Parsed("tcp://[fe80::1%1]:80").HostHash(),
            Parsed("tcp://[fe80::1%2]:80").HostHash());
  EXPECT_THAT(ParseError("tcp://[fe80::1%]:80"), HasSubstr("nothing after"));
  EXPECT_THAT(ParseError("tcp://[fe80::1%0]:80"), HasSubstr("zone \"0\""));
  EXPECT_THAT(ParseError("tcp://[fe80::1%99999999999]:80"), HasSubstr("zone"));
  EXPECT_THAT(ParseError("tcp://[fe80::1%no-such-if]:80"),
              HasSubstr("no network interface \"no-such-if\""));
  EXPECT_THAT(ParseError("tcp://[::1%1]:80"), HasSubstr("link-local"));
}

// B105: 107 bytes are a path, more are an error; nothing is cut short.
TEST(AddressTest, B105PathLengths) {
  for (const std::string prefix : {"/", "@"}) {
    // The '@' of an abstract name is not counted.
    const size_t extra = prefix == "@" ? 1 : 0;
    const std::string most = prefix + std::string(106 + extra, 'a');
    EXPECT_EQ(Parsed("unix://" + most).path(), most);
    EXPECT_EQ(RoundTrip(Parsed("unix://" + most)).path(), most);
    for (size_t size : {size_t{108}, size_t{150}}) {
      const std::string path = prefix + std::string(size - 1 + extra, 'a');
      EXPECT_THAT(ParseError("unix://" + path),
                  HasSubstr("File name too long: " + std::to_string(size)));
    }
  }
}

TEST(AddressTest, BadPaths) {
  EXPECT_THAT(ParseError("unix://"), HasSubstr("no path"));
  EXPECT_THAT(ParseError("unix://@"), HasSubstr("no name after '@'"));
  EXPECT_THAT(ParseError(std::string_view("unix:///a\0b", 11)),
              HasSubstr("NUL"));
  EXPECT_THAT(ParseError(std::string_view("unix:///a\0", 10)),
              HasSubstr("NUL"));
  EXPECT_THAT(ParseError(std::string_view("unix://@a\0", 10)),
              HasSubstr("NUL"));
}

TEST(AddressTest, ErrorsAreBoundedAndPrintable) {
  const std::string error = ParseError("tcp://\n" + std::string(100000, 'x'));
  EXPECT_LT(error.size(), 1000u);
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(AddressTest, B110MappedPeerIsIpv4) {
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(5);
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:192.0.2.1", &mapped.sin6_addr), 1);
  const Address peer = Address::FromSockaddr(
      reinterpret_cast<sockaddr*>(&mapped), sizeof(mapped));
  EXPECT_EQ(peer.ToString(), "tcp://192.0.2.1:5");
  EXPECT_EQ(peer, Parsed("tcp://192.0.2.1:5"));
}

TEST(AddressTest, FromSockaddrOfOtherThings) {
  sockaddr_storage storage{};
  auto* const raw = reinterpret_cast<sockaddr*>(&storage);
  const auto family = [&](sa_family_t value, socklen_t length) {
    storage.ss_family = value;
    return Address::FromSockaddr(raw, length).family();
  };
  EXPECT_EQ(Address::FromSockaddr(nullptr, 0).family(), Family::kNone);
  EXPECT_EQ(family(AF_INET, 0), Family::kNone);
  EXPECT_EQ(family(AF_INET, sizeof(sockaddr_in) - 1), Family::kNone);
  EXPECT_EQ(family(AF_INET6, sizeof(sockaddr_in)), Family::kNone);
  EXPECT_EQ(family(AF_NETLINK, sizeof(storage)), Family::kNone);
  // An unnamed peer.
  EXPECT_EQ(family(AF_UNIX, sizeof(sa_family_t)), Family::kUnix);
  EXPECT_EQ(Address::FromSockaddr(raw, sizeof(sa_family_t)).path(), "");
}

TEST(AddressTest, FromSockaddrOfUnixPeers) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const auto* const raw = reinterpret_cast<const sockaddr*>(&un);
  constexpr size_t kOffset = offsetof(sockaddr_un, sun_path);
  const auto from = [&](std::string_view path) {
    std::memset(un.sun_path, 0, sizeof(un.sun_path));
    std::memcpy(un.sun_path, path.data(), path.size());
    return Address::FromSockaddr(raw,
                                 static_cast<socklen_t>(kOffset + path.size()));
  };
  EXPECT_EQ(from(std::string_view("/a\0", 3)).path(), "/a");
  EXPECT_EQ(from("/a").path(), "/a");  // the NUL need not be counted
  EXPECT_EQ(from(std::string_view("\0a\0b", 4)).ToString(), "unix://@a@b");
  EXPECT_EQ(RoundTrip(from(std::string_view("\0a\0b", 4))).path(),
            std::string("@a\0b", 4));
  // A file's name never turns into an abstract one.
  EXPECT_EQ(from("@a").path(), "./@a");
  EXPECT_FALSE(from("@a").is_abstract());
  // 108 bytes without NUL, and the kernel says one more than there is.
  const std::string full(108, 'f');
  EXPECT_EQ(from(full).path(), full);
  EXPECT_EQ(
      Address::FromSockaddr(raw, static_cast<socklen_t>(kOffset + 109)).path(),
      full);
  EXPECT_EQ(RoundTrip(from(full)).path(), full);
  // With "./" before it, it fits no more: no address rather than a shorter one.
  sockaddr_storage storage;
  EXPECT_EQ(from("@" + std::string(107, 'f')).ToSockaddr(&storage), 0u);
}

TEST(AddressTest, HostHashIgnoresThePort) {
  EXPECT_EQ(Parsed("tcp://127.0.0.1:1").HostHash(),
            Parsed("tcp://127.0.0.1:2").HostHash());
  EXPECT_EQ(Parsed("unix://@a").HostHash(), Parsed("unix://@a").HostHash());
  EXPECT_NE(Parsed("unix://@a").HostHash(), Parsed("unix://@b").HostHash());
}

// Neighbours, which differ in a few bits only, spread over few reactors.
TEST(AddressTest, HostHashSpreads) {
  int counts[8] = {};
  for (int i = 0; i < 4096; ++i) {
    const std::string text = "tcp://10.0." + std::to_string(i / 256) + "." +
                             std::to_string(i % 256) + ":80";
    ++counts[Parsed(text).HostHash() % 8];
  }
  for (int count : counts) {  // 512 expected; the input never changes
    EXPECT_GT(count, 400);
    EXPECT_LT(count, 624);
  }
}

TEST(AddressTest, ComparesAndHashes) {
  EXPECT_NE(Parsed("tcp://127.0.0.1:1"), Parsed("tcp://127.0.0.1:2"));
  EXPECT_NE(Parsed("tcp://:1"), Parsed("tcp://[::]:1"));
  absl::flat_hash_set<Address> set;
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "unix://a",
                           "tcp://127.0.0.1:1"}) {
    set.insert(Parsed(text));
  }
  EXPECT_EQ(set.size(), 3u);
  Address moved = Parsed("tcp://127.0.0.1:1");
  moved.set_port(2);
  EXPECT_EQ(moved, Parsed("tcp://127.0.0.1:2"));
}

TEST(AddressResolveTest, NumbersAreParsed) {
  for (const char* text :
       {"tcp://127.0.0.1:80", "tcp://[::1]:80", "tcp://:80", "unix:///a"}) {
    absl::StatusOr<Address> address = Address::Resolve(text);
    ASSERT_TRUE(address.ok()) << address.status().ToString();
    EXPECT_EQ(*address, Parsed(text));
  }
}

TEST(AddressResolveTest, Localhost) {
  absl::StatusOr<Address> address = Address::Resolve("tcp://localhost:80");
  ASSERT_TRUE(address.ok()) << address.status().ToString();
  EXPECT_EQ(address->family(), Family::kIpv4);
  EXPECT_EQ(address->ip_bytes()[0], 127);
  EXPECT_EQ(address->port(), 80);
  address = Address::Resolve("tcp4://localhost:80");
  ASSERT_TRUE(address.ok()) << address.status().ToString();
  EXPECT_EQ(address->family(), Family::kIpv4);
}

// A label of more than 63 bytes fails in the resolver without a question to a
// name server.
TEST(AddressResolveTest, UnresolvableNameIsNamed) {
  const std::string host = std::string(70, 'x') + ".invalid";
  absl::StatusOr<Address> address = Address::Resolve("tcp://" + host + ":80");
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(Text(address.status()),
              HasSubstr("cannot resolve \"" + host + "\": "));
}

TEST(AddressResolveTest, WhatIsNoNameIsNotLookedUp) {
  for (const char* text :
       {"tcp://127.1:80", "tcp://1.2.3.256:80", "tcp://0x7f.1:80",
        "tcp://0x7f000001:80", "tcp://2130706433:80", "tcp://a b:80",
        "tcp://a/b:80", "tcp://.:80", "tcp://1.2.3.:80", "tcp://\x80:80"}) {
    absl::StatusOr<Address> address = Address::Resolve(text);
    ASSERT_FALSE(address.ok()) << text << " is " << address->ToString();
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(address.status()), HasSubstr("neither")) << text;
  }
  EXPECT_FALSE(Address::Resolve("tcp://" + std::string(254, 'a') + ":1").ok());
  EXPECT_FALSE(Address::Resolve("tcp://localhost:http").ok());
}

}  // namespace
}  // namespace sluice
