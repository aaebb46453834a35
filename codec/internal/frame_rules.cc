#include "codec/internal/frame_rules.h"

#include "absl/strings/str_cat.h"

namespace sluice::internal {

absl::Status BadOption(const char* field, const std::string& value,
                       const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ": ", reason));
}

absl::Status CheckRules(size_t max_frame, WhenTooLong when_too_long) {
  if (max_frame < 1 || max_frame > kHighestMaxFrame) {
    return BadOption("max_frame", absl::StrCat(max_frame),
                     absl::StrCat("must be 1 to ", kHighestMaxFrame));
  }
  if (when_too_long > WhenTooLong::kSkipFrame) {
    return BadOption("when_too_long",
                     absl::StrCat(static_cast<int>(when_too_long)),
                     "must be one of its enumerators");
  }
  return absl::OkStatus();
}

}  // namespace sluice::internal
