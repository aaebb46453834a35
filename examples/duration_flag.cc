#include "examples/duration_flag.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice::examples {

absl::StatusOr<std::chrono::milliseconds> ParseDurationFlag(
    const std::string& name, const std::string& value,
    std::chrono::milliseconds least) {
  constexpr std::chrono::hours kMost{24 * 24};
  absl::Duration parsed;
  if (!absl::ParseDuration(value, &parsed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", value,
                     ": a duration with its unit is wanted, such as 50ms, 1.5s "
                     "or 2m"));
  }
  if (parsed < absl::FromChrono(least) || parsed > absl::FromChrono(kMost)) {
    return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value,
                                                   ": from ", least.count(),
                                                   "ms to 24 days is wanted"));
  }
  return absl::ToChronoMilliseconds(parsed);
}

}  // namespace sluice::examples
