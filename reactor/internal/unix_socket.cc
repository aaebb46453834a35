#include "reactor/internal/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {
namespace {

std::string ListenOn(const Address& address) {
  return absl::StrCat("listen on ", address.ToString(), ": ");
}

absl::Status InUse(const Address& address, std::string_view why) {
  return absl::AlreadyExistsError(
      absl::StrCat(ListenOn(address), "address in use", ToAbsl(why)));
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// What connecting to `address` answers: 0 or an errno.
int Probe(const Address& address) {
  const UniqueFd fd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0
             ? 0
             : errno;
}

// Removes the socket file at `address` if nobody listens there. OK: the name is
// free now, or was a moment ago.
absl::Status RemoveLeftOver(const Address& address) {
  const char* const path = address.path().c_str();
  struct stat before;
  if (lstat(path, &before) != 0) {
    const int error = errno;
    if (error == ENOENT) return absl::OkStatus();
    return ErrnoStatus(error, ListenOn(address) + "lstat");
  }
  if (!S_ISSOCK(before.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        ListenOn(address), "the file there is not a socket; it is left alone"));
  }
  switch (const int error = Probe(address)) {
    case ECONNREFUSED:
      break;
    case ENOENT:
      return absl::OkStatus();
    case 0:
    case EAGAIN:      // alive, with a full queue
    case EPROTOTYPE:  // alive, and no stream socket
      return InUse(address, ", somebody listens there");
    default:
      return ErrnoStatus(
          error, ListenOn(address) + "address in use; to see by whom: connect");
  }
  // Another one may have replaced the file since: look once more, so that only
  // the one that refused goes.
  struct stat after;
  if (lstat(path, &after) != 0 || !SameFile(before, after)) {
    return absl::OkStatus();
  }
  if (unlink(path) != 0 && errno != ENOENT) {
    const int error = errno;
    return ErrnoStatus(error, ListenOn(address) + "remove the left-over file");
  }
  return absl::OkStatus();
}

absl::Status Bind(const Address& address, int fd) {
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  // A left-over may be replaced by another process's between our two calls;
  // somebody who does that again and again is alive.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) {
      return absl::OkStatus();
    }
    const int error = errno;
    if (error != EADDRINUSE) {
      return ErrnoStatus(error, ListenOn(address) + "bind");
    }
    if (address.is_abstract()) return InUse(address, "");
    if (absl::Status s = RemoveLeftOver(address); !s.ok()) return s;
  }
  return InUse(address, ", others are starting there");
}

}  // namespace

absl::Status ListenOnUnix(const Address& address, int backlog,
                          BoundSocket* bound) {
  if (absl::Status s = Bind(address, bound->fd.get()); !s.ok()) return s;
  bound->address = address;
  struct stat file {};
  const bool has_file = !address.is_abstract();
  if (has_file) {
    if (lstat(address.path().c_str(), &file) != 0) {
      const int error = errno;
      return ErrnoStatus(error, ListenOn(address) + "lstat after bind");
    }
    bound->device = file.st_dev;
    bound->inode = file.st_ino;
    bound->owner = getpid();
  }
  if (listen(bound->fd.get(), backlog) != 0) {
    const int error = errno;
    RemoveSocketFile(*bound);
    return ErrnoStatus(error, ListenOn(address) + "listen");
  }
  // Between bind and listen our file refuses connections, as a left-over does:
  // one that starts at the same moment may have taken its place.
  struct stat now {};
  if (has_file &&
      (lstat(address.path().c_str(), &now) != 0 || !SameFile(file, now))) {
    return InUse(address, ", another process replaced the file just now");
  }
  return absl::OkStatus();
}

void RemoveSocketFile(const BoundSocket& socket) {
  if (socket.inode == 0 || socket.owner != getpid()) return;
  const char* const path = socket.address.path().c_str();
  struct stat file;
  if (lstat(path, &file) != 0 || !S_ISSOCK(file.st_mode)) return;
  if (file.st_dev == socket.device && file.st_ino == socket.inode) {
    unlink(path);
  }
}

}  // namespace sluice::internal
