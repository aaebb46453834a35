// Internal: the clock of the programs that measure.
#ifndef SLUICE_BENCH_CLOCK_H_
#define SLUICE_BENCH_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace sluice::bench {

// CLOCK_MONOTONIC.
inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_CLOCK_H_
