// c1000k: what the user asked for.
#ifndef SLUICE_EXAMPLES_C1000K_SETTINGS_H_
#define SLUICE_EXAMPLES_C1000K_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice::c1000k {

// The flags as they were given.
struct Settings {
  int64_t connections = 0;  // 0: the most this machine holds, up to kMost
  int64_t reactors = 0;     // of each process; 0: as many as are needed
  double hold_seconds = 30;
  int64_t heartbeat_qps = 5000;    // over all connections; 0: none
  int64_t connect_rate = 0;        // dials a second; 0: no bound
  std::string fd_tables = "auto";  // auto, shared or per_reactor
  std::string json = "";           // file; empty: none
};

// What is aimed at when --connections is left out.
inline constexpr uint64_t kMost = 1'000'000;

// Engines take no more (Options::reactors).
inline constexpr int64_t kMaxReactors = 1024;

// InvalidArgument names the flag, its value and what is allowed.
absl::Status ValidateSettings(const Settings& settings);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SETTINGS_H_
