// c1000k: how many dials may be made now.
#ifndef SLUICE_EXAMPLES_C1000K_DIAL_PACER_H_
#define SLUICE_EXAMPLES_C1000K_DIAL_PACER_H_

#include <algorithm>
#include <cstdint>

namespace sluice::c1000k {

// What is known of the dials at one moment.
struct DialCounts {
  uint64_t issued = 0;         // dials begun
  uint64_t connected = 0;      // of them, those the client has
  uint64_t failed = 0;         // of them, those that ended without
  uint64_t server_opened = 0;  // connections the server has taken
};

// Keeps the listener's queue from overflowing (the kernel would drop SYNs, and
// those clients would wait for a second), and the rate below a bound.
class DialPacer {
 public:
  // `window`: the most connections that may be on their way to the server's
  // handler. `per_second` 0: no bound.
  DialPacer(uint64_t window, double per_second)
      : window_(window), per_second_(per_second) {}

  // Dials allowed now, at most `wanted`; they count as made. `now` in seconds
  // of any steady clock.
  uint64_t Take(uint64_t wanted, const DialCounts& counts, double now) {
    const uint64_t dialing = counts.issued - counts.connected - counts.failed;
    // Connected for the client, but the server has not accepted it yet.
    const uint64_t queued = counts.connected > counts.server_opened
                                ? counts.connected - counts.server_opened
                                : 0;
    const uint64_t on_their_way = dialing + queued;
    uint64_t n = on_their_way < window_ ? window_ - on_their_way : 0;
    n = std::min(n, wanted);
    if (per_second_ <= 0) return n;
    if (last_ >= 0) {
      // At most a tenth of a second is caught up on in one burst.
      tokens_ = std::min(tokens_ + (now - last_) * per_second_,
                         std::max(1.0, per_second_ / 10));
    }
    last_ = now;
    n = std::min(n, static_cast<uint64_t>(tokens_));
    tokens_ -= static_cast<double>(n);
    return n;
  }

 private:
  uint64_t window_;
  double per_second_;
  double tokens_ = 1;
  double last_ = -1;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_DIAL_PACER_H_
