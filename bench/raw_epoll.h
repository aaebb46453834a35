// Internal: the floor that sluice is measured against, in echo_cpu and in the
// lab. Nothing but the system's headers: the lab's servers are built without
// any library.
#ifndef SLUICE_BENCH_RAW_EPOLL_H_
#define SLUICE_BENCH_RAW_EPOLL_H_

namespace sluice::bench {

enum class RawEpollMode {
  kEcho,
  kAcceptAndClose,  // whoever connects is closed at once
  kFanOut,          // what one connection sends goes to all of the loop
};

// The system call that failed, and its errno.
struct RawEpollFailure {
  const char* call;
  int error;
};

// Serves a listening, non-blocking socket on this thread with level-triggered
// epoll: one read and one write a message and no other system call; no timers,
// no limits, no statistics. What one read brought is answered at once. Only a
// fault of the machine ends it. The process ignores SIGPIPE from then on.
RawEpollFailure RunRawEpoll(int listener, RawEpollMode mode);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_RAW_EPOLL_H_
