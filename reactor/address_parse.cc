// Address from text: Address::Parse and Address::Resolve.
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "reactor/address.h"
#include "reactor/internal/errno_status.h"

namespace sluice {
namespace {

using internal::ToAbsl;

constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

// Text as it may be shown: in quotes, no control characters, of bounded length.
std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 200;
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kShown))),
                      text.size() > kShown ? "...\"" : "\"");
}

absl::Status Bad(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address ", Quoted(text), ": ", ToAbsl(why)));
}

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
}

// Digits only; nullopt for anything else and above `most`.
std::optional<uint32_t> ParseNumber(std::string_view text, uint32_t most) {
  if (!AllDigits(text)) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    value = value * 10 + static_cast<uint64_t>(c - '0');
    if (value > most) return std::nullopt;
  }
  return static_cast<uint32_t>(value);
}

// "tcp4://host:port" taken apart; views into the text.
struct Parts {
  int family = AF_UNSPEC;  // what the scheme allows; AF_UNSPEC for tcp
  std::string_view host;   // without brackets and zone; empty: a wildcard
  std::string_view zone;
  bool brackets = false;
  uint16_t port = 0;
};

absl::StatusOr<Parts> Split(std::string_view text, std::string_view scheme,
                            std::string_view rest) {
  Parts parts;
  if (scheme == "tcp4") parts.family = AF_INET;
  if (scheme == "tcp6") parts.family = AF_INET6;
  std::string_view port;
  if (!rest.empty() && rest[0] == '[') {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return Bad(text, "no ']' after '['");
    parts.brackets = true;
    parts.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (rest.empty() || rest[0] != ':') {
      return Bad(text, "no \":port\" after ']'");
    }
    port = rest.substr(1);
    if (const size_t zone = parts.host.find('%');
        zone != std::string_view::npos) {
      parts.zone = parts.host.substr(zone + 1);
      parts.host = parts.host.substr(0, zone);
      if (parts.zone.empty()) return Bad(text, "nothing after '%'");
    }
    if (parts.host.empty()) return Bad(text, "nothing between the brackets");
  } else {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return Bad(text, "no \":port\"");
    parts.host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (port.find(':') != std::string_view::npos) {
      return Bad(text,
                 "more than one ':'; an IPv6 address goes in brackets, like "
                 "[::1]:80");
    }
  }
  const std::optional<uint32_t> number = ParseNumber(port, 65535);
  if (!number) {
    return Bad(text, absl::StrCat("port ", Quoted(port),
                                  " is not a number from 0 to 65535"));
  }
  parts.port = static_cast<uint16_t>(*number);
  return parts;
}

Address MakeIpv4(const in_addr& ip, uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr = ip;
  return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&v4),
                               sizeof(v4));
}

// An IPv4-mapped address comes back as IPv4.
Address MakeIpv6(const in6_addr& ip, uint32_t scope, uint16_t port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = ip;
  v6.sin6_scope_id = scope;
  return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&v6),
                               sizeof(v6));
}

// inet_pton for text that is no C string. False if it is not an address.
bool ParseIp(int family, std::string_view text, void* ip) {
  char buffer[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof(buffer)) return false;
  if (text.find('\0') != std::string_view::npos) return false;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return inet_pton(family, buffer, ip) == 1;
}

absl::StatusOr<uint32_t> ParseZone(std::string_view text, std::string_view zone,
                                   const in6_addr& ip) {
  if (!IN6_IS_ADDR_LINKLOCAL(&ip) && !IN6_IS_ADDR_MC_LINKLOCAL(&ip)) {
    return Bad(text, "a zone needs a link-local address (fe80::/10)");
  }
  if (AllDigits(zone)) {
    const std::optional<uint32_t> number = ParseNumber(zone, INT32_MAX);
    if (number && *number > 0) return *number;
    return Bad(text, absl::StrCat("zone ", Quoted(zone),
                                  " is not an interface number"));
  }
  const std::string name(zone);
  const unsigned index =
      name.find('\0') == std::string::npos ? if_nametoindex(name.c_str()) : 0;
  if (index == 0) {
    return Bad(text, absl::StrCat("no network interface ", Quoted(zone)));
  }
  return index;
}

absl::StatusOr<Address> ParseBracketed(std::string_view text,
                                       const Parts& parts) {
  in6_addr ip;
  if (!ParseIp(AF_INET6, parts.host, &ip)) {
    return Bad(text,
               absl::StrCat(Quoted(parts.host), " is not an IPv6 address"));
  }
  if (parts.family == AF_INET) return Bad(text, "tcp4 takes IPv4 only");
  uint32_t scope = 0;
  if (!parts.zone.empty()) {
    absl::StatusOr<uint32_t> zone = ParseZone(text, parts.zone, ip);
    if (!zone.ok()) return zone.status();
    scope = *zone;
  }
  Address address = MakeIpv6(ip, scope, parts.port);
  if (parts.family == AF_INET6 && address.family() != Address::Family::kIpv6) {
    return Bad(text,
               "an IPv4-mapped address is IPv4, and tcp6 takes IPv6 only");
  }
  return address;
}

// The name of a file or, after '@', an abstract one.
absl::Status CheckPath(std::string_view text, std::string_view path) {
  const bool abstract = !path.empty() && path[0] == '@';
  const size_t size = path.size() - (abstract ? 1 : 0);
  if (size == 0) {
    return Bad(text, abstract ? "no name after '@'" : "no path");
  }
  if (path.find('\0') != std::string_view::npos) {
    return Bad(text, "a NUL byte in the path");
  }
  if (size > kLongestPath) {
    return Bad(text, absl::StrCat("File name too long: ", size,
                                  " bytes, at most ", kLongestPath));
  }
  return absl::OkStatus();
}

// A number is never looked up: getaddrinfo(3) reads "127.1" and "0x7f.1" as
// addresses of its own making.
bool LooksLikeName(std::string_view host) {
  if (host.size() > 253) return false;
  for (char c : host) {
    const auto byte = static_cast<unsigned char>(c);
    if (!absl::ascii_isalnum(byte) && c != '-' && c != '.' && c != '_') {
      return false;
    }
  }
  std::string_view last = host;
  if (last.ends_with('.')) last.remove_suffix(1);
  last = last.substr(last.rfind('.') + 1);  // npos + 1 is 0
  if (last.starts_with("0x") || last.starts_with("0X")) {
    last.remove_prefix(2);
    return !std::all_of(last.begin(), last.end(), [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c));
    });
  }
  return !last.empty() && !AllDigits(last);
}

absl::StatusOr<Address> LookUp(std::string_view text, const Parts& parts) {
  const std::string host(parts.host);
  addrinfo hints{};
  hints.ai_family = parts.family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int result = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (result != 0) {
    const int error = errno;
    const std::string why = absl::StrCat(
        "address ", Quoted(text), ": cannot resolve ", Quoted(host), ": ",
        result == EAI_SYSTEM ? std::strerror(error) : gai_strerror(result));
    switch (result) {
      case EAI_AGAIN:
      case EAI_FAIL:
      case EAI_SYSTEM:
        return absl::UnavailableError(why);
      case EAI_MEMORY:
        return absl::ResourceExhaustedError(why);
      default:
        return absl::NotFoundError(why);
    }
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list,
                                                             freeaddrinfo);
  Address found;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    const Address address = Address::FromSockaddr(i->ai_addr, i->ai_addrlen);
    if (!address.is_ip()) continue;
    const bool ipv4 = address.family() == Address::Family::kIpv4;
    if (ipv4 && parts.family == AF_INET6) continue;  // IPv4-mapped
    if (!found.is_ip() || ipv4) found = address;
    if (ipv4) break;
  }
  if (!found.is_ip()) {
    return absl::NotFoundError(absl::StrCat("address ", Quoted(text),
                                            ": cannot resolve ", Quoted(host),
                                            ": no address of the family"));
  }
  found.set_port(parts.port);
  return found;
}

}  // namespace

absl::StatusOr<Address> Address::FromText(std::string_view text, bool names) {
  const size_t end = text.find("://");
  if (end == std::string_view::npos) {
    return Bad(text,
               "no scheme; it starts with tcp://, tcp4://, tcp6:// or "
               "unix://");
  }
  const std::string_view scheme = text.substr(0, end);
  const std::string_view rest = text.substr(end + 3);
  if (scheme == "unix") {
    if (absl::Status s = CheckPath(text, rest); !s.ok()) return s;
    Address address;
    address.family_ = Family::kUnix;
    address.path_ = std::string(rest);
    return address;
  }
  if (scheme != "tcp" && scheme != "tcp4" && scheme != "tcp6") {
    return Bad(text, absl::StrCat("unknown scheme ", Quoted(scheme),
                                  "; known are tcp, tcp4, tcp6 and unix"));
  }
  absl::StatusOr<Parts> parts = Split(text, scheme, rest);
  if (!parts.ok()) return parts.status();
  if (parts->brackets) return ParseBracketed(text, *parts);
  if (parts->host.empty()) {
    if (parts->family == AF_INET) return MakeIpv4({INADDR_ANY}, parts->port);
    Address address = MakeIpv6(in6addr_any, 0, parts->port);
    address.dual_stack_ = parts->family == AF_UNSPEC;
    return address;
  }
  in_addr ip;
  if (ParseIp(AF_INET, parts->host, &ip)) {
    if (parts->family == AF_INET6) return Bad(text, "tcp6 takes IPv6 only");
    return MakeIpv4(ip, parts->port);
  }
  if (names && LooksLikeName(parts->host)) return LookUp(text, *parts);
  return Bad(text, absl::StrCat(Quoted(parts->host),
                                names ? " is neither an IPv4 address nor a name"
                                      : " is not an IPv4 address"));
}

absl::StatusOr<Address> Address::Parse(std::string_view text) {
  return FromText(text, false);
}

absl::StatusOr<Address> Address::Resolve(std::string_view text) {
  return FromText(text, true);
}

}  // namespace sluice
