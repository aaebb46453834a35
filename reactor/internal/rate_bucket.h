// Internal: token buckets of 8 bytes.
#ifndef SLUICE_REACTOR_INTERNAL_RATE_BUCKET_H_
#define SLUICE_REACTOR_INTERNAL_RATE_BUCKET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "reactor/internal/clock.h"

namespace sluice::internal {

// So many units a second, and so many at once: the size of a bucket and what
// runs into it. Shared by all buckets that have the same limit.
//
// 0.001 to 1e9 units a second. What takes longer than kForever to refill counts
// as that long, so nothing here overflows; each taking is rounded down to a
// nanosecond, so a burst of whole units is never short of its last one.
class RateLimit {
 public:
  static constexpr int64_t kForever = int64_t{1} << 60;  // ns, 36 years

  RateLimit() = default;  // none: always enough
  RateLimit(double units_per_second, double burst)
      : nanos_per_unit_(kNanosPerSecond / units_per_second),
        span_(Nanos(burst)) {}

  bool limited() const { return nanos_per_unit_ != 0; }
  // How long `units` take to run in.
  int64_t Nanos(double units) const {
    const double nanos = units * nanos_per_unit_;
    return nanos < static_cast<double>(kForever) ? static_cast<int64_t>(nanos)
                                                 : kForever;
  }
  double Units(int64_t nanos) const {
    return static_cast<double>(nanos) / nanos_per_unit_;
  }
  // An empty bucket is full again after this time.
  int64_t span() const { return span_; }

 private:
  double nanos_per_unit_ = 0;
  int64_t span_ = kForever;
};

// The whole state is the time at which the bucket is full again (GCRA): at
// `now` it lacks what runs in until then. More than the burst lacking is debt.
// `now` is any clock in nanoseconds from 0 to RateLimit::kForever; one that
// goes back makes the bucket emptier, never fuller. Zeros are a full bucket.
// Thread: one; see SharedRateBucket.
struct RateBucket {
  int64_t full_at = 0;

  // All `n` or none. More than the burst at once never succeeds.
  bool TryTake(const RateLimit& limit, int64_t n, int64_t now) {
    const int64_t then =
        std::max(full_at, now) + limit.Nanos(static_cast<double>(n));
    if (then - now > limit.span()) return false;
    full_at = then;
    return true;
  }

  // Takes `n` in any case. How long the debt lasts, in nanoseconds; 0: none.
  int64_t Charge(const RateLimit& limit, int64_t n, int64_t now) {
    const int64_t worst = now + limit.span() + RateLimit::kForever;
    full_at = std::min(
        std::max(full_at, now) + limit.Nanos(static_cast<double>(n)), worst);
    return std::max<int64_t>(full_at - now - limit.span(), 0);
  }

  // Undoes a taking of `n`.
  void GiveBack(const RateLimit& limit, int64_t n) {
    full_at =
        std::max<int64_t>(full_at - limit.Nanos(static_cast<double>(n)), 0);
  }

  // Nanoseconds until TryTake of `n` succeeds if nobody else takes any; 0: now.
  // kForever for more than the burst.
  int64_t WaitFor(const RateLimit& limit, int64_t n, int64_t now) const {
    const int64_t cost = limit.Nanos(static_cast<double>(n));
    if (cost > limit.span()) return RateLimit::kForever;
    return std::max<int64_t>(std::max(full_at, now) + cost - now - limit.span(),
                             0);
  }
};
static_assert(sizeof(RateBucket) == 8);

// The same for many threads; what each call says is exact.
class SharedRateBucket {
 public:
  bool TryTake(const RateLimit& limit, int64_t n, int64_t now) {
    return Change([&](RateBucket& b) { return b.TryTake(limit, n, now); });
  }
  int64_t Charge(const RateLimit& limit, int64_t n, int64_t now) {
    return Change([&](RateBucket& b) { return b.Charge(limit, n, now); });
  }
  void GiveBack(const RateLimit& limit, int64_t n) {
    Change([&](RateBucket& b) {
      b.GiveBack(limit, n);
      return true;
    });
  }
  int64_t WaitFor(const RateLimit& limit, int64_t n, int64_t now) const {
    return RateBucket{full_at_.load()}.WaitFor(limit, n, now);
  }

 private:
  template <typename Function>
  std::invoke_result_t<Function, RateBucket&> Change(Function function) {
    int64_t before = full_at_.load();
    for (;;) {
      RateBucket bucket{before};
      const auto result = function(bucket);
      if (bucket.full_at == before ||
          full_at_.compare_exchange_weak(before, bucket.full_at)) {
        return result;
      }
    }
  }

  std::atomic<int64_t> full_at_{0};
};
static_assert(sizeof(SharedRateBucket) == 8);

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_RATE_BUCKET_H_
