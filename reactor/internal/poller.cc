#include "reactor/internal/poller.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "reactor/internal/clock.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {

absl::Status Poller::Open() {
  fd_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!fd_) return ErrnoStatus(errno, "epoll_create1");
  return absl::OkStatus();
}

int Poller::Add(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

int Poller::Modify(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0 ? 0 : errno;
}

int Poller::Remove(int fd) {
  return epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0 ? 0 : errno;
}

std::span<const epoll_event> Poller::Wait(std::span<epoll_event> room,
                                          int64_t timeout) {
  const int capacity = static_cast<int>(room.size());
  int count = -1;
  if (timeout > 0 && has_pwait2_) {
    timespec t;
    t.tv_sec = timeout / kNanosPerSecond;
    t.tv_nsec = timeout % kNanosPerSecond;
    count = epoll_pwait2(fd_.get(), room.data(), capacity, &t, nullptr);
    // Sandboxes and emulators may not know it either.
    if (count < 0 && (errno == ENOSYS || errno == EPERM)) has_pwait2_ = false;
  }
  if (timeout <= 0 || !has_pwait2_) {
    const int64_t milliseconds =
        timeout <= 0
            ? timeout
            : std::min<int64_t>((timeout + 999'999) / 1'000'000, INT_MAX);
    count = epoll_wait(fd_.get(), room.data(), capacity,
                       static_cast<int>(milliseconds));
  }
  return room.first(count > 0 ? static_cast<size_t>(count) : 0);
}

}  // namespace sluice::internal
