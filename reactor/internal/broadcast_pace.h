// Internal: how fast a Broadcaster may send.
#ifndef SLUICE_REACTOR_INTERNAL_BROADCAST_PACE_H_
#define SLUICE_REACTOR_INTERNAL_BROADCAST_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "reactor/internal/rate_bucket.h"

namespace sluice::internal {

// Sends a second, and pages of TCP's memory a second: what is sent and not yet
// acknowledged is about that rate times the round trip, and each such message
// holds a page at least.
// Thread: one.
class BroadcastPace {
 public:
  static constexpr size_t kPage = 4096;

  BroadcastPace() = default;  // none
  // 0: no limit. `burst` sends, and as many pages, go at once.
  BroadcastPace(double sends_per_second, double pages_per_second, int burst) {
    if (sends_per_second > 0) sends_limit_ = RateLimit(sends_per_second, burst);
    if (pages_per_second > 0) pages_limit_ = RateLimit(pages_per_second, burst);
  }

  bool limited() const {
    return sends_limit_.limited() || pages_limit_.limited();
  }
  // Nanoseconds until there may be a send; 0: now.
  int64_t Wait(int64_t now) const {
    return std::max(sends_.WaitFor(sends_limit_, 1, now),
                    pages_.WaitFor(pages_limit_, 1, now));
  }
  void Sent(size_t bytes, int64_t now) {
    sends_.Charge(sends_limit_, 1, now);
    pages_.Charge(
        pages_limit_,
        static_cast<int64_t>(std::max<size_t>((bytes + kPage - 1) / kPage, 1)),
        now);
  }

  // Half of the pressure mark in a round trip. `tcp_mem` is the text of
  // /proc/sys/net/ipv4/tcp_mem: three counts of pages (ip-sysctl: min,
  // pressure, max). InvalidArgument: it is not that.
  static absl::StatusOr<double> PagesPerSecond(
      std::string_view tcp_mem, std::chrono::milliseconds round_trip);

 private:
  RateLimit sends_limit_;
  RateLimit pages_limit_;
  RateBucket sends_;
  RateBucket pages_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_BROADCAST_PACE_H_
