// Internal: the sluice server that echo_cpu measures.
#ifndef SLUICE_BENCH_SLUICE_ECHO_H_
#define SLUICE_BENCH_SLUICE_ECHO_H_

#include <chrono>

#include "absl/status/status.h"
#include "reactor/options.h"

namespace sluice::bench {

struct SluiceEchoOptions {
  int cpu = 0;
  std::chrono::milliseconds idle_timeout{60'000};  // 0: none
  Trigger trigger = Trigger::kLevel;
  FdTables fd_tables = FdTables::kShared;
};

// One reactor that echoes on 127.0.0.1 and a free port, for ever; says that it
// is ready on `control` (ReportReady). Returns only when it failed.
absl::Status RunSluiceEcho(const SluiceEchoOptions& options, int control);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_SLUICE_ECHO_H_
