// gateway: how many packets a connection may send.
#ifndef SLUICE_EXAMPLES_GATEWAY_PACKET_BUDGET_H_
#define SLUICE_EXAMPLES_GATEWAY_PACKET_BUDGET_H_

#include <algorithm>
#include <chrono>

namespace sluice::gateway {

using Clock = std::chrono::steady_clock;

// The same for all connections.
struct PacketRate {
  double per_second = 100;  // 0: no limit
  int burst = 100;          // tokens in a full bucket; at least 1
};

// A token bucket: a packet takes a token, `per_second` tokens come back each
// second, and no more than `burst` are kept. It is 8 bytes and needs no timer:
// the one thing to remember is when the bucket will be full again, from which
// follows how many tokens are missing now.
class PacketBudget {
 public:
  // False, and nothing taken, if there is no token.
  bool Take(const PacketRate& rate, Clock::time_point now) {
    if (rate.per_second <= 0) return true;
    if (Wait(rate, 1, now) > Clock::duration::zero()) return false;
    full_at_ = std::max(full_at_, now) + Token(rate);
    return true;
  }

  // How long until there are `tokens`, at most `burst` of them; 0: there are.
  Clock::duration Wait(const PacketRate& rate, int tokens,
                       Clock::time_point now) const {
    if (rate.per_second <= 0) return Clock::duration::zero();
    const int spare = rate.burst - std::min(tokens, rate.burst);
    return std::max(full_at_ - now - spare * Token(rate),
                    Clock::duration::zero());
  }

 private:
  // The time in which one token comes back.
  static Clock::duration Token(const PacketRate& rate) {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(1 / rate.per_second));
  }

  Clock::time_point full_at_{};  // long ago: full
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_PACKET_BUDGET_H_
