// Internal: the epoll set that a loop sleeps on.
#ifndef SLUICE_REACTOR_INTERNAL_POLLER_H_
#define SLUICE_REACTOR_INTERNAL_POLLER_H_

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "reactor/internal/unique_fd.h"

namespace sluice::internal {

// Thread: the loop's.
class Poller {
 public:
  static constexpr int64_t kForever = -1;

  absl::Status Open();
  void Close() { fd_.Reset(); }

  // `key` comes back in epoll_event::data. 0, or an errno.
  int Add(int fd, uint32_t events, uint64_t key);
  int Modify(int fd, uint32_t events, uint64_t key);
  int Remove(int fd);

  // Waits at most `timeout` nanoseconds, never less unless something is ready;
  // returns what is ready. A signal counts as nothing ready.
  std::span<const epoll_event> Wait(std::span<epoll_event> room,
                                    int64_t timeout);

  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  bool has_pwait2_ = true;  // Linux 5.11; else milliseconds, rounded up
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_POLLER_H_
