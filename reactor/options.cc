#include "reactor/options.h"

#include <net/if.h>

#include <algorithm>
#include <climits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "reactor/internal/errno_status.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

// Deadlines are 32-bit counts of milliseconds that may wrap: half their range.
constexpr int64_t kMaxMilliseconds = INT32_MAX;

// Collects the first complaint; the checks after it do nothing.
class Checker {
 public:
  template <typename T, typename L, typename M>
  void Range(std::string_view field, T value, L least, M most) {
    if (value < T{least} || value > T{most}) {
      Fail(field, absl::StrCat(value), absl::StrCat(least, " to ", most));
    }
  }
  // 0 stands for a default, or for none. NaN is not in any range.
  void ZeroOrRange(std::string_view field, double value, double least,
                   double most) {
    if (value != 0 && !(value >= least && value <= most)) {
      Fail(field, absl::StrCat(value),
           absl::StrCat("0, or ", least, " to ", most));
    }
  }
  // NaN is out of every range.
  void Real(std::string_view field, double value, double least, double most) {
    if (!(value >= least && value <= most)) {
      Fail(field, absl::StrCat(value), absl::StrCat(least, " to ", most));
    }
  }
  template <typename T>
  void AtLeast(std::string_view field, T value, T least) {
    if (value < least) {
      Fail(field, absl::StrCat(value), absl::StrCat("at least ", least));
    }
  }
  void Duration(std::string_view field, milliseconds value, int64_t least) {
    Range(field, int64_t{value.count()}, least, kMaxMilliseconds);
  }
  // An enumeration whose last enumerator is `last`.
  template <typename E>
  void Enum(std::string_view field, E value, E last) {
    if (value > last) {
      Fail(field, absl::StrCat(static_cast<int>(value)),
           "one of its enumerators");
    }
  }
  void Fail(std::string_view field, const std::string& value,
            const std::string& allowed) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(
        internal::ToAbsl(field), " is ", value, ": must be ", allowed));
  }

  absl::Status status() const { return status_; }

 private:
  absl::Status status_;
};

void CheckPinning(const CpuPinning& pinning, Checker* check) {
  check->Enum("pinning.mode", pinning.mode, CpuPinning::Mode::kList);
  const bool list = pinning.mode == CpuPinning::Mode::kList;
  if (list && pinning.cpus.empty()) {
    check->Fail("pinning.cpus", "empty", "a list of CPUs in mode kList");
  }
  if (!list && !pinning.cpus.empty()) {
    check->Fail("pinning.cpus", absl::StrCat("a list of ", pinning.cpus.size()),
                "empty unless pinning.mode is kList");
  }
  for (int cpu : pinning.cpus) check->AtLeast("pinning.cpus", cpu, 0);
}

// Of one of the two bounds of a RateLimit.
void CheckRate(std::string_view rate_name, double rate,
               std::string_view burst_name, double burst, Checker* check) {
  if (rate == 0) {
    if (burst != 0) {
      check->Fail(burst_name, absl::StrCat(burst),
                  absl::StrCat("0 while ", internal::ToAbsl(rate_name),
                               " is 0, no limit"));
    }
    return;
  }
  check->Real(rate_name, rate, 0.001, 1e9);
  check->Real(burst_name, burst, 1, 1e15);
}

void CheckRateLimit(const std::string& prefix, const RateLimit& limit,
                    Checker* check) {
  CheckRate(prefix + "bytes_per_second", limit.bytes_per_second,
            prefix + "byte_burst", limit.byte_burst, check);
  CheckRate(prefix + "messages_per_second", limit.messages_per_second,
            prefix + "message_burst", limit.message_burst, check);
  check->Enum(prefix + "when_over", limit.when_over, WhenOverRate::kClose);
}

void CheckLimits(const ConnectionLimits& limits, Checker* check) {
  check->AtLeast("limits.max_inbound", limits.max_inbound, size_t{1});
  if (limits.max_outbound != 0 && limits.high_water >= limits.max_outbound) {
    check->Fail(
        "limits.high_water", absl::StrCat(limits.high_water),
        absl::StrCat("below limits.max_outbound, ", limits.max_outbound));
  }
  if (limits.low_water && *limits.low_water >= HighWaterOf(limits)) {
    check->Fail("limits.low_water", absl::StrCat(*limits.low_water),
                absl::StrCat("below the high water, ", HighWaterOf(limits)));
  }
  check->Enum("limits.when_overflow", limits.when_overflow,
              WhenOverflow::kRefuse);
  check->Duration("limits.idle_timeout (ms)", limits.idle_timeout, 0);
  check->Duration("limits.read_timeout (ms)", limits.read_timeout, 0);
  check->Duration("limits.write_timeout (ms)", limits.write_timeout, 0);
  check->Duration("limits.handshake_timeout (ms)", limits.handshake_timeout, 0);
  CheckRateLimit("limits.rate_limit.", limits.rate_limit, check);
  check->Duration("limits.flush_timeout (ms)", limits.flush_timeout, 0);
  check->Duration("limits.linger_timeout (ms)", limits.linger_timeout, 0);
}

}  // namespace

size_t HighWaterOf(const ConnectionLimits& limits) {
  constexpr size_t kUsual = size_t{1} << 20;
  if (limits.high_water != 0) return limits.high_water;
  if (limits.max_outbound == 0) return kUsual;
  return std::min(kUsual, std::max<size_t>(limits.max_outbound / 2, 1));
}

size_t LowWaterOf(const ConnectionLimits& limits) {
  return limits.low_water.value_or(HighWaterOf(limits) / 2);
}

double AcceptBurstOf(const ListenOptions& options) {
  if (options.accept_burst != 0) return options.accept_burst;
  return std::max(options.accept_rate / 10, 1.0);
}

absl::Status ValidateOptions(const Options& options) {
  Checker check;
  check.Range("reactors", options.reactors, 0, 1024);
  check.Enum("accept_mode", options.accept_mode, AcceptMode::kReusePort);
  check.Enum("load_balancing", options.load_balancing,
             LoadBalancing::kSourceAddressHash);
  check.Enum("trigger", options.trigger, Trigger::kEdge);
  check.AtLeast("edge_chunk", options.edge_chunk, size_t{1});
  check.Enum("fd_tables", options.fd_tables, FdTables::kPerReactor);
  CheckPinning(options.pinning, &check);
  check.Enum("when_full", options.when_full, WhenFull::kReject);
  CheckLimits(options.limits, &check);
  check.Range("read_buffer", options.read_buffer, size_t{1} << 10,
              size_t{16} << 20);
  check.AtLeast("accept_batch", options.accept_batch, 1);
  check.Duration("tick (ms)", options.tick, 0);
  return check.status();
}

absl::Status ValidateListenOptions(const ListenOptions& options) {
  Checker check;
  check.Enum("when_full", options.when_full, WhenFull::kReject);
  check.ZeroOrRange("accept_rate", options.accept_rate, 0.001, 1e9);
  check.ZeroOrRange("accept_burst", options.accept_burst, 1, 1e12);
  if (options.accept_rate == 0 && options.accept_burst != 0) {
    check.Fail("accept_burst", absl::StrCat(options.accept_burst),
               "0 without an accept_rate");
  }
  absl::Status status = check.status();
  status.Update(ValidateSocketOptions(options.socket));
  return status;
}

absl::Status ValidateRateLimit(const RateLimit& limit) {
  Checker check;
  CheckRateLimit("", limit, &check);
  return check.status();
}

absl::Status ValidateSocketOptions(const SocketOptions& options) {
  Checker check;
  if (options.keep_alive) {
    // The bounds are the kernel's (MAX_TCP_KEEPIDLE, ..._KEEPINTVL,
    // ..._KEEPCNT).
    check.Range("keep_alive.idle (s)",
                int64_t{options.keep_alive->idle.count()}, 1, 32767);
    check.Range("keep_alive.interval (s)",
                int64_t{options.keep_alive->interval.count()}, 1, 32767);
    check.Range("keep_alive.count", options.keep_alive->count, 1, 127);
  }
  check.Range("user_timeout (ms)", int64_t{options.user_timeout.count()}, 0,
              INT_MAX);
  check.AtLeast("receive_buffer", options.receive_buffer, 0);
  check.AtLeast("send_buffer", options.send_buffer, 0);
  check.AtLeast("not_sent_low_water", options.not_sent_low_water, 0);
  if (options.linger) {
    check.Range("linger (s)", int64_t{options.linger->count()}, 0, INT_MAX);
  }
  // The kernel would cut a longer name short and take another device.
  if (options.bind_to_device.size() >= IFNAMSIZ ||
      options.bind_to_device.find('\0') != std::string::npos) {
    check.Fail(
        "bind_to_device",
        absl::StrCat("\"", absl::CHexEscape(options.bind_to_device), "\""),
        absl::StrCat("at most ", IFNAMSIZ - 1, " bytes without NUL"));
  }
  return check.status();
}

}  // namespace sluice
