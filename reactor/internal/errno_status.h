// Internal: statuses that name what failed, and std::string_view for abseil.
#ifndef SLUICE_REACTOR_INTERNAL_ERRNO_STATUS_H_
#define SLUICE_REACTOR_INTERNAL_ERRNO_STATUS_H_

#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::internal {

// Debian's abseil has a string_view of its own that std's does not convert to.
inline absl::string_view ToAbsl(std::string_view s) {
  return absl::string_view(s.data(), s.size());
}

// A status for errno `error` with the canonical code abseil gives it and the
// text "`what`: <strerror>". Not absl::ErrnoToStatus: its table of texts is
// made on first use, which ThreadSanitizer cannot see to be safe in Debian's
// abseil.
inline absl::Status ErrnoStatus(int error, std::string_view what) {
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat(ToAbsl(what), ": ", std::generic_category().message(error)));
}

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_ERRNO_STATUS_H_
