#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/socket.h"

namespace sluice::internal {
namespace {

// Sets options one after the other until one fails.
class Setter {
 public:
  explicit Setter(int fd) : fd_(fd) {}

  void Int(int level, int option, int value, std::string_view name) {
    Raw(level, option, &value, sizeof(value), name, std::to_string(value));
  }
  void Raw(int level, int option, const void* value, size_t size,
           std::string_view name, std::string_view shown) {
    if (!status_.ok()) return;
    if (setsockopt(fd_, level, option, value, static_cast<socklen_t>(size)) !=
        0) {
      const int error = errno;
      status_ = ErrnoStatus(
          error, absl::StrCat("set ", ToAbsl(name), " to ", ToAbsl(shown)));
    }
  }
  absl::Status status() const { return status_; }

 private:
  int fd_;
  absl::Status status_;
};

}  // namespace

absl::Status ApplySocketOptions(int fd, Address::Family family,
                                const SocketOptions& options) {
  if (absl::Status s = ValidateSocketOptions(options); !s.ok()) return s;
  Setter set(fd);
  if (options.receive_buffer > 0) {
    set.Int(SOL_SOCKET, SO_RCVBUF, options.receive_buffer, "SO_RCVBUF");
  }
  if (options.send_buffer > 0) {
    set.Int(SOL_SOCKET, SO_SNDBUF, options.send_buffer, "SO_SNDBUF");
  }
  if (options.linger) {
    const auto seconds = static_cast<int>(options.linger->count());
    const linger value{1, seconds};
    set.Raw(SOL_SOCKET, SO_LINGER, &value, sizeof(value), "SO_LINGER",
            absl::StrCat(seconds, " s"));
  }
  if (family == Address::Family::kUnix) return set.status();

  if (options.no_delay) set.Int(IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  if (options.keep_alive) {
    const KeepAlive& keep = *options.keep_alive;
    set.Int(SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
    set.Int(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(keep.idle.count()),
            "TCP_KEEPIDLE");
    set.Int(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(keep.interval.count()),
            "TCP_KEEPINTVL");
    set.Int(IPPROTO_TCP, TCP_KEEPCNT, keep.count, "TCP_KEEPCNT");
  }
  if (options.user_timeout.count() > 0) {
    set.Int(IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(options.user_timeout.count()), "TCP_USER_TIMEOUT");
  }
  if (options.not_sent_low_water > 0) {
    set.Int(IPPROTO_TCP, TCP_NOTSENT_LOWAT, options.not_sent_low_water,
            "TCP_NOTSENT_LOWAT");
  }
  if (!options.bind_to_device.empty()) {
    set.Raw(SOL_SOCKET, SO_BINDTODEVICE, options.bind_to_device.data(),
            options.bind_to_device.size(), "SO_BINDTODEVICE",
            options.bind_to_device);
  }
  return set.status();
}

}  // namespace sluice::internal
