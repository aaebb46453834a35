#include "reactor/internal/broadcast_pace.h"

#include <array>
#include <charconv>
#include <string>

#include "absl/status/status.h"

namespace sluice::internal {

absl::StatusOr<double> BroadcastPace::PagesPerSecond(
    std::string_view tcp_mem, std::chrono::milliseconds round_trip) {
  std::array<uint64_t, 3> pages{};
  const char* at = tcp_mem.data();
  const char* const end = at + tcp_mem.size();
  for (uint64_t& count : pages) {
    while (at != end && (*at == ' ' || *at == '\t')) ++at;
    const auto [behind, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count == 0) {
      return absl::InvalidArgumentError(
          "net.ipv4.tcp_mem is \"" + std::string(tcp_mem) +
          "\"; three positive counts of pages were expected");
    }
    at = behind;
  }
  const double seconds = std::chrono::duration<double>(round_trip).count();
  return 0.5 * static_cast<double>(pages[1]) / seconds;
}

}  // namespace sluice::internal
