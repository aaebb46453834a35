#include "examples/c1000k/settings.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace sluice::c1000k {
namespace {

constexpr int64_t kMaxConnections = 100'000'000;
constexpr int64_t kMaxRate = 10'000'000;
constexpr double kMaxHold = 7 * 24 * 3600.0;

absl::Status InRange(const char* flag, int64_t value, int64_t low,
                     int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": ", low, " to ", high, " is wanted"));
}

}  // namespace

absl::Status ValidateSettings(const Settings& s) {
  if (absl::Status e =
          InRange("connections", s.connections, 0, kMaxConnections);
      !e.ok()) {
    return e;
  }
  if (absl::Status e = InRange("reactors", s.reactors, 0, kMaxReactors);
      !e.ok()) {
    return e;
  }
  if (absl::Status e = InRange("heartbeat_qps", s.heartbeat_qps, 0, kMaxRate);
      !e.ok()) {
    return e;
  }
  if (absl::Status e = InRange("connect_rate", s.connect_rate, 0, kMaxRate);
      !e.ok()) {
    return e;
  }
  if (!(s.hold_seconds >= 0 && s.hold_seconds <= kMaxHold)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hold=", s.hold_seconds, ": 0 to ", kMaxHold,
                     " seconds (a week) is wanted"));
  }
  if (s.fd_tables != "auto" && s.fd_tables != "shared" &&
      s.fd_tables != "per_reactor") {
    return absl::InvalidArgumentError(
        absl::StrCat("--fd_tables=", s.fd_tables,
                     ": auto, shared or per_reactor is wanted"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::c1000k
