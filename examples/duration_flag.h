// Example support: flags that are durations, "50ms", "1.5s", "2m".
#ifndef SLUICE_EXAMPLES_DURATION_FLAG_H_
#define SLUICE_EXAMPLES_DURATION_FLAG_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::examples {

// The value of flag `name` in whole milliseconds, from `least` to 24 days. The
// error names the flag, its value and what is wanted.
absl::StatusOr<std::chrono::milliseconds> ParseDurationFlag(
    const std::string& name, const std::string& value,
    std::chrono::milliseconds least = std::chrono::milliseconds(0));

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_DURATION_FLAG_H_
