#include "examples/format.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::examples {

std::string WithCommas(uint64_t n) {
  std::string digits = absl::StrCat(n);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string FormatBytes(double bytes) {
  if (std::abs(bytes) < 1000) return absl::StrFormat("%.0f B", bytes);
  const char* units[] = {"KB", "MB", "GB", "TB"};
  size_t unit = 0;
  double value = bytes / 1000;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  const int digits = std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, units[unit]);
}

std::string FormatMicros(uint64_t micros) {
  if (micros < 1000) return absl::StrCat(micros, " us");
  const double ms = static_cast<double>(micros) / 1000;
  if (ms < 1000) return absl::StrFormat("%.*f ms", ms < 100 ? 2 : 0, ms);
  return absl::StrFormat("%.2f s", ms / 1000);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 10) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 119.5) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<long>(std::lround(seconds));
  return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
}

}  // namespace sluice::examples
