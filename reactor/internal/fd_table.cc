#include "reactor/internal/fd_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {
namespace {

// For both directions of the pair; the kernel caps it at net.core.wmem_max,
// 208 KiB by default, and doubles that for its own overhead. A full message
// with small records takes about 17 KiB of it.
constexpr int kSendBuffer = 1 << 20;

constexpr size_t kControlBytes = CMSG_SPACE(FdChannel::kMaxBatch * sizeof(int));

}  // namespace

size_t FdLimit(bool raise) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (raise && limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<size_t>(limit.rlim_cur);
}

size_t OpenFds() {
  const char* path = "/proc/thread-self/fd";
  // Since Linux 6.2 the size is the count. It needs no descriptor, so it works
  // when the table is full.
  struct stat info;
  if (::stat(path, &info) == 0 && info.st_size > 0) {
    return static_cast<size_t>(info.st_size);
  }
  DIR* dir = ::opendir(path);
  if (dir == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] != '.') ++count;
  }
  ::closedir(dir);
  return count > 0 ? count - 1 : 0;  // without the directory's own
}

void GrowFdTable(size_t count) {
  count = std::min({count, FdLimit(false), static_cast<size_t>(INT_MAX)});
  if (count == 0) return;
  const UniqueFd any(::eventfd(0, EFD_CLOEXEC));
  if (!any) return;
  const UniqueFd highest(
      ::fcntl(any.get(), F_DUPFD_CLOEXEC, static_cast<int>(count - 1)));
}

absl::Status UnshareFdTable(std::span<const int> unwanted) {
  if (::unshare(CLONE_FILES) != 0) {
    return ErrnoStatus(errno, "unshare(CLONE_FILES)");
  }
  for (const int fd : unwanted) {
    if (fd >= 0) ::close(fd);
  }
  return absl::OkStatus();
}

absl::StatusOr<FdChannel> FdChannel::Create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                   ends) != 0) {
    return ErrnoStatus(errno, "socketpair(AF_UNIX, SOCK_SEQPACKET)");
  }
  FdChannel channel;
  channel.send_.Reset(ends[0]);
  channel.receive_.Reset(ends[1]);
  if (::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kSendBuffer,
                   sizeof(kSendBuffer)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("SO_SNDBUF = ", kSendBuffer));
  }
  return channel;
}

absl::Status FdChannel::Send(std::span<const int> fds, const void* records,
                             size_t record_size) {
  if (fds.empty()) return absl::OkStatus();
  if (fds.size() > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("FdChannel::Send: ", fds.size(),
                     " descriptors, a message holds at most ", kMaxBatch));
  }
  // The receiver counts by records: without them it could not tell what it
  // lost, nor a message from the end of the stream.
  if (record_size == 0) {
    return absl::InvalidArgumentError(
        "FdChannel::Send: record_size is 0, it must be at least 1");
  }
  iovec bytes{const_cast<void*>(records), fds.size() * record_size};
  alignas(cmsghdr) char control[kControlBytes];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  std::memset(control, 0, message.msg_controllen);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());

  ssize_t sent;
  do {
    sent = ::sendmsg(send_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();  // a packet goes whole or not at all

  const int error = errno;
  const std::string what = absl::StrCat("sending ", fds.size(), " descriptors");
  switch (error) {
    case ETOOMANYREFS:
    case ENOBUFS:
    case ENOMEM:
      return absl::UnavailableError(
          absl::StrCat(what, ": ", std::strerror(error)));
    case ECONNRESET:  // abseil calls it Unavailable, but here it is final
      return absl::FailedPreconditionError(
          absl::StrCat(what, ": ", std::strerror(error)));
    default:
      return ErrnoStatus(error, what);
  }
}

absl::StatusOr<bool> FdChannel::ReceiveFrom(int receive_fd,
                                            std::vector<UniqueFd>* fds,
                                            std::vector<char>* records,
                                            size_t record_size, size_t* lost) {
  fds->clear();
  records->clear();
  if (record_size == 0) {
    return absl::InvalidArgumentError(
        "FdChannel::Receive: record_size is 0, it must be at least 1");
  }
  records->resize(kMaxBatch * record_size);
  iovec bytes{records->data(), records->size()};
  alignas(cmsghdr) char control[kControlBytes];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);

  ssize_t got;
  do {
    got = ::recvmsg(receive_fd, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  records->resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (got < 0) {
    if (error == EAGAIN || error == EWOULDBLOCK) return false;
    return ErrnoStatus(error, "receiving descriptors");
  }
  if (got == 0) {
    return absl::NotFoundError(
        "receiving descriptors: the sender has closed its end");
  }

  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
  const size_t sent = records->size() / record_size;
  if ((message.msg_flags & MSG_TRUNC) != 0 ||
      records->size() % record_size != 0 || fds->size() > sent) {
    const std::string found =
        absl::StrCat(records->size(), " bytes and ", fds->size(),
                     " descriptors do not make records of ", record_size);
    fds->clear();
    records->clear();
    return absl::InternalError(absl::StrCat("receiving descriptors: ", found));
  }
  // The kernel installs them in order until the table is full.
  *lost += sent - fds->size();
  return true;
}

void FdChannel::CloseSend() {
  if (send_) ::shutdown(send_.get(), SHUT_WR);
  send_.Reset();
}

}  // namespace sluice::internal
