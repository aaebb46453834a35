#include "reactor/internal/embedded_base.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "reactor/internal/check.h"
#include "reactor/internal/clock.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/unique_fd.h"

namespace sluice::internal {
namespace {

// libevent does not tell which epoll descriptor is its own. It is the set that
// knows a descriptor which only libevent was given: epoll_ctl(MOD) succeeds for
// that set and is ENOENT for every other, EINVAL for what is no set at all, and
// changes none of them.
int FindEpollFd(int marker) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(
      std::min<rlim_t>(std::max<rlim_t>(limit.rlim_cur, 1024), 1 << 20));
  for (int fd = 0; fd < end; ++fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = marker;
    // Past the wrapper in libc: ThreadSanitizer would take a look at another
    // thread's descriptor, harmless as it is, for a race with its close.
    if (syscall(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, marker, &event) == 0) {
      return fd;
    }
  }
  return -1;
}

void Ignore(evutil_socket_t, short, void*) {}

void EndPass(evutil_socket_t, short, void* base) {
  event_base_loopbreak(static_cast<event_base*>(base));
}

struct EarliestTimer {
  timeval now;
  int64_t wait = EmbeddedBase::kNever;
};

int LookAtTimer(const event_base*, const event* e, void* argument) {
  auto* earliest = static_cast<EarliestTimer*>(argument);
  timeval due;
  if (event_pending(e, EV_TIMEOUT, &due)) {
    // Far is far enough, and an event that was made active by hand has a time
    // that nobody has set: neither may overflow.
    constexpr int64_t kFar = 1'000'000'000;  // seconds
    const int64_t seconds =
        std::clamp<int64_t>(due.tv_sec, earliest->now.tv_sec - kFar,
                            earliest->now.tv_sec + kFar) -
        earliest->now.tv_sec;
    const int64_t wait =
        seconds * kNanosPerSecond +
        (std::clamp<int64_t>(due.tv_usec, 0, 999'999) - earliest->now.tv_usec) *
            1000;
    earliest->wait = std::min(earliest->wait, std::max<int64_t>(wait, 0));
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedBase>> EmbeddedBase::Create() {
  event_config* config = event_config_new();
  if (config == nullptr) return absl::ResourceExhaustedError("event_config");
  // No locks: one thread. No environment: it could take epoll away.
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
  for (const char* method : {"select", "poll"}) {
    event_config_avoid_method(config, method);
  }
  event_base* base = event_base_new_with_config(config);
  event_config_free(config);
  if (base == nullptr) {
    return ErrnoStatus(errno, "event_base_new_with_config (libevent)");
  }
  std::unique_ptr<EmbeddedBase> result(new EmbeddedBase(base));

  result->end_of_pass_ = evtimer_new(base, EndPass, base);
  if (result->end_of_pass_ == nullptr) {
    return absl::ResourceExhaustedError("evtimer_new (libevent)");
  }

  UniqueFd marker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!marker) return ErrnoStatus(errno, "eventfd");
  event* probe =
      event_new(base, marker.get(), EV_READ | EV_PERSIST, Ignore, nullptr);
  if (probe != nullptr && event_add(probe, nullptr) == 0) {
    result->epoll_fd_ = FindEpollFd(marker.get());
  }
  if (probe != nullptr) event_free(probe);  // deletes it first
  if (result->epoll_fd_ < 0) {
    return absl::InternalError("libevent's epoll descriptor was not found");
  }
  return result;
}

EmbeddedBase::~EmbeddedBase() {
  if (end_of_pass_ != nullptr) event_free(end_of_pass_);
  event_base_free(base_);
}

void EmbeddedBase::RunPass() {
  // EVLOOP_NONBLOCK goes on while anything is active, for ever if an event
  // makes itself active again. A timer that is due at once comes behind all
  // that is due now and ends the pass; what is left has the next turn.
  const timeval at_once{0, 0};
  event_add(end_of_pass_, &at_once);
  try {
    event_base_loop(base_, EVLOOP_NONBLOCK);
  } catch (...) {
    // It has left libevent in the middle of its loop, and no call of its API
    // gets it out of there.
    Die(__FILE__, __LINE__, "an exception left a libevent callback");
  }
}

bool EmbeddedBase::HasEvents() const {
  return event_base_get_num_events(base_, EVENT_BASE_COUNT_ADDED) > ours_;
}

bool EmbeddedBase::HasActive() const {
  return event_base_get_num_events(base_, EVENT_BASE_COUNT_ACTIVE) > 0;
}

int64_t EmbeddedBase::NextTimer() const {
  EarliestTimer earliest;
  evutil_gettimeofday(&earliest.now, nullptr);
  event_base_foreach_event(base_, LookAtTimer, &earliest);
  return earliest.wait;
}

}  // namespace sluice::internal
