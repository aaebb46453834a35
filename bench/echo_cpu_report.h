// Internal: from the turns of echo_cpu to its table and its JSON.
#ifndef SLUICE_BENCH_ECHO_CPU_REPORT_H_
#define SLUICE_BENCH_ECHO_CPU_REPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice::bench {

// One server, measured once; everything for each echo.
struct EchoTurn {
  double cpu_ns = 0;
  double user_ns = 0;  // the split is sampled by the kernel, so rough
  double system_ns = 0;
  double switches = 0;  // times the server went to sleep
  double rtt_p50_us = 0;
  double rtt_p99_us = 0;
};

// All turns at one number of connections. Turn i of one server ran right
// before or after turn i of the other.
struct EchoCase {
  int connections = 0;
  uint64_t messages = 0;  // a turn
  std::array<std::vector<EchoTurn>, 2> turns;
};

struct EchoCpuSetup {
  std::array<std::string, 2> servers;
  size_t message_bytes = 0;
  int turns = 0;
  std::string what;  // the settings, one line
};

// What the ratio may be at this number of connections.
std::optional<double> EchoGoal(int connections);

double RatioOfMedians(const EchoCase& c);  // second server / first
double MedianOfRatios(const EchoCase& c);
// True too where there is no goal.
bool MeetsGoal(const EchoCase& c);

void PrintTable(const EchoCpuSetup& setup, const std::vector<EchoCase>& cases);
// Before the long run: could it be written?
absl::Status CheckJsonPath(const std::string& path);
absl::Status WriteJson(const std::string& path, const EchoCpuSetup& setup,
                       const std::vector<EchoCase>& cases);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_ECHO_CPU_REPORT_H_
