#include "bench/program.h"

#include <gflags/gflags.h>

#include <cstdio>
#include <string>

#include "bench/process.h"

namespace sluice::bench {

void ParseFlags(const char* usage, int* argc, char*** argv) {
  gflags::SetUsageMessage(usage);
  gflags::ParseCommandLineFlags(argc, argv, /*remove_flags=*/true);
}

int MeasureMain(const char* name, int argc, char** argv, bool check,
                absl::FunctionRef<absl::StatusOr<bool>()> measure) {
  if (argc > 1) {
    std::fprintf(stderr, "%s: \"%s\": only flags are taken\n", name, argv[1]);
    return 2;
  }
  CatchInterrupts();
  const absl::StatusOr<bool> all_met = measure();
  if (all_met.ok()) return check && !*all_met ? 1 : 0;
  if (absl::IsCancelled(all_met.status())) {
    std::fprintf(stderr, "%s: interrupted\n", name);
    return 130;
  }
  std::fprintf(stderr, "%s: %s\n", name,
               std::string(all_met.status().message()).c_str());
  return 2;
}

}  // namespace sluice::bench
