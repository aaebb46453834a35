#include "reactor/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"

namespace sluice {
namespace {

constexpr size_t kPathOffset = offsetof(sockaddr_un, sun_path);
constexpr size_t kPathRoom = sizeof(sockaddr_un::sun_path);

// Spreads every bit of x over the whole result (the finalizer of splitmix64).
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Address Address::FromSockaddr(const sockaddr* address, socklen_t length) {
  Address result;
  if (address == nullptr || length < sizeof(sa_family_t)) return result;
  const char* const bytes = reinterpret_cast<const char*>(address);
  if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, bytes, sizeof(v4));
    result.family_ = Family::kIpv4;
    result.port_ = ntohs(v4.sin_port);
    std::memcpy(result.ip_, &v4.sin_addr, 4);
  } else if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    std::memcpy(&v6, bytes, sizeof(v6));
    result.port_ = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      result.family_ = Family::kIpv4;
      std::memcpy(result.ip_, &v6.sin6_addr.s6_addr[12], 4);
    } else {
      result.family_ = Family::kIpv6;
      result.scope_id_ = v6.sin6_scope_id;
      std::memcpy(result.ip_, &v6.sin6_addr, 16);
    }
  } else if (address->sa_family == AF_UNIX) {
    result.family_ = Family::kUnix;
    // The kernel says one byte more than sun_path holds when a path fills it.
    const size_t size = std::min(
        std::max(size_t{length}, kPathOffset) - kPathOffset, kPathRoom);
    const char* const path = bytes + kPathOffset;
    if (size > 0 && path[0] == '\0') {
      result.path_.assign(path, size);
      result.path_[0] = '@';
    } else {
      result.path_.assign(path, strnlen(path, size));
      if (result.is_abstract()) result.path_.insert(0, "./");
    }
  }
  return result;
}

socklen_t Address::ToSockaddr(sockaddr_storage* storage) const {
  std::memset(storage, 0, sizeof(*storage));
  switch (family_) {
    case Family::kNone:
      return 0;
    case Family::kIpv4: {
      sockaddr_in v4{};
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port_);
      std::memcpy(&v4.sin_addr, ip_, 4);
      std::memcpy(storage, &v4, sizeof(v4));
      return sizeof(v4);
    }
    case Family::kIpv6: {
      sockaddr_in6 v6{};
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port_);
      v6.sin6_scope_id = scope_id_;
      std::memcpy(&v6.sin6_addr, ip_, 16);
      std::memcpy(storage, &v6, sizeof(v6));
      return sizeof(v6);
    }
    case Family::kUnix: {
      if (path_.size() > kPathRoom) return 0;
      storage->ss_family = AF_UNIX;
      char* const path = reinterpret_cast<char*>(storage) + kPathOffset;
      std::memcpy(path, path_.data(), path_.size());
      if (is_abstract()) path[0] = '\0';
      // A file's name has its NUL where there is room for one; an abstract name
      // ends where the length says.
      const bool nul =
          !path_.empty() && !is_abstract() && path_.size() < kPathRoom;
      return static_cast<socklen_t>(kPathOffset + path_.size() + (nul ? 1 : 0));
    }
  }
  return 0;
}

std::string_view Address::ip_bytes() const {
  const size_t size = family_ == Family::kIpv4   ? 4
                      : family_ == Family::kIpv6 ? 16
                                                 : 0;
  return {reinterpret_cast<const char*>(ip_), size};
}

std::string Address::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  switch (family_) {
    case Family::kNone:
      break;
    case Family::kIpv4:
      inet_ntop(AF_INET, ip_, text, sizeof(text));
      return absl::StrCat("tcp://", text, ":", port_);
    case Family::kIpv6:
      if (dual_stack_) return absl::StrCat("tcp://:", port_);
      inet_ntop(AF_INET6, ip_, text, sizeof(text));
      if (scope_id_ == 0) return absl::StrCat("tcp://[", text, "]:", port_);
      return absl::StrCat("tcp://[", text, "%", scope_id_, "]:", port_);
    case Family::kUnix: {
      std::string result = absl::StrCat("unix://", path_);
      std::replace(result.begin(), result.end(), '\0', '@');
      return result;
    }
  }
  return "none";
}

uint64_t Address::HostHash() const {
  if (family_ == Family::kUnix) return std::hash<std::string>()(path_);
  uint64_t words[2];
  std::memcpy(words, ip_, sizeof(words));
  const uint64_t rest =
      uint64_t{scope_id_} << 8 | static_cast<uint8_t>(family_);
  return Mix(words[0] + Mix(words[1] + Mix(rest)));
}

}  // namespace sluice
