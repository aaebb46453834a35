// Example support: flags with a range, or a choice of words.
#ifndef SLUICE_EXAMPLES_FLAG_CHECKS_H_
#define SLUICE_EXAMPLES_FLAG_CHECKS_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::examples {

// InvalidArgument, with the flag, its value and what is wanted. NaN is in no
// range.
template <typename T>
absl::Status CheckRange(const char* flag, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": from ", least, " to ", most, " is wanted"));
}

// Sets *out to the choice with that name.
template <typename T>
absl::Status Choose(const char* flag, const std::string& value,
                    std::initializer_list<std::pair<const char*, T>> choices,
                    T* out) {
  std::string allowed;
  for (const auto& [name, choice] : choices) {
    if (value == name) {
      *out = choice;
      return absl::OkStatus();
    }
    absl::StrAppend(&allowed, allowed.empty() ? "" : " or ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", allowed, " is wanted"));
}

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_FLAG_CHECKS_H_
