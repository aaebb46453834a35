// Internal: the two clocks of a loop, in nanoseconds of CLOCK_MONOTONIC.
#ifndef SLUICE_REACTOR_INTERNAL_CLOCK_H_
#define SLUICE_REACTOR_INTERNAL_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace sluice::internal {

inline constexpr int64_t kNanosPerSecond = 1'000'000'000;

inline int64_t ReadClock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * kNanosPerSecond + t.tv_nsec;
}

// Exact, about 25 ns a call.
inline int64_t PreciseNow() { return ReadClock(CLOCK_MONOTONIC); }

// The kernel's last tick, so up to 4 ms (at HZ=250) behind PreciseNow and never
// ahead of it; about 4 ns a call.
inline int64_t CoarseNow() { return ReadClock(CLOCK_MONOTONIC_COARSE); }

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_CLOCK_H_
