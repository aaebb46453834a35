#include "reactor/options.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reactor/close.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// The message of what `change` makes of good options; "" if they stay good.
template <typename Change>
std::string OptionsError(Change change) {
  Options options;
  change(options);
  const absl::Status status = ValidateOptions(options);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  return std::string(status.message());
}

template <typename Change>
std::string SocketError(Change change) {
  SocketOptions options;
  change(options);
  const absl::Status status = ValidateSocketOptions(options);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  return std::string(status.message());
}

TEST(OptionsTest, DefaultsAreGood) {
  EXPECT_EQ(ValidateOptions(Options()), absl::OkStatus());
  EXPECT_EQ(ValidateSocketOptions(SocketOptions()), absl::OkStatus());
}

TEST(OptionsTest, Bounds) {
  EXPECT_EQ(OptionsError([](Options& o) { o.reactors = 1024; }), "");
  EXPECT_EQ(OptionsError([](Options& o) { o.reactors = 1025; }),
            "reactors is 1025: must be 0 to 1024");
  EXPECT_EQ(OptionsError([](Options& o) { o.reactors = -1; }),
            "reactors is -1: must be 0 to 1024");
  EXPECT_EQ(OptionsError([](Options& o) { o.edge_chunk = 1; }), "");
  EXPECT_EQ(OptionsError([](Options& o) { o.edge_chunk = 0; }),
            "edge_chunk is 0: must be at least 1");
  EXPECT_EQ(OptionsError([](Options& o) { o.read_buffer = 1 << 10; }), "");
  EXPECT_EQ(OptionsError([](Options& o) { o.read_buffer = 16 << 20; }), "");
  EXPECT_EQ(OptionsError([](Options& o) { o.read_buffer = 1023; }),
            "read_buffer is 1023: must be 1024 to 16777216");
  EXPECT_EQ(OptionsError([](Options& o) { o.read_buffer = (16 << 20) + 1; }),
            "read_buffer is 16777217: must be 1024 to 16777216");
  EXPECT_EQ(OptionsError([](Options& o) { o.accept_batch = 1; }), "");
  EXPECT_EQ(OptionsError([](Options& o) { o.accept_batch = 0; }),
            "accept_batch is 0: must be at least 1");
  EXPECT_EQ(OptionsError([](Options& o) {
              o.limits.max_outbound = 1000;
              o.limits.high_water = 1000;
            }),
            "limits.high_water is 1000: must be below limits.max_outbound, "
            "1000");
  EXPECT_EQ(OptionsError([](Options& o) {
              o.limits.high_water = 500;
              o.limits.low_water = 500;
            }),
            "limits.low_water is 500: must be below the high water, 500");
  EXPECT_EQ(OptionsError([](Options& o) { o.limits.max_inbound = 0; }),
            "limits.max_inbound is 0: must be at least 1");
  EXPECT_EQ(OptionsError([](Options& o) { o.limits.max_outbound = 0; }), "");
}

TEST(OptionsTest, Durations) {
  const auto expect = [](auto set, const char* name) {
    const auto error = [&](milliseconds value) {
      return OptionsError([&](Options& o) { set(o) = value; });
    };
    EXPECT_EQ(error(milliseconds(0)), "");
    EXPECT_EQ(error(milliseconds(INT32_MAX)), "");
    EXPECT_EQ(error(milliseconds(-1)),
              std::string(name) + " (ms) is -1: must be 0 to 2147483647");
    EXPECT_THAT(error(milliseconds::max()), HasSubstr(name));
    EXPECT_THAT(error(milliseconds::min()), HasSubstr(name));
  };
  expect([](Options& o) -> milliseconds& { return o.tick; }, "tick");
  expect([](Options& o) -> milliseconds& { return o.limits.idle_timeout; },
         "limits.idle_timeout");
  expect([](Options& o) -> milliseconds& { return o.limits.read_timeout; },
         "limits.read_timeout");
  expect([](Options& o) -> milliseconds& { return o.limits.write_timeout; },
         "limits.write_timeout");
  expect([](Options& o) -> milliseconds& { return o.limits.handshake_timeout; },
         "limits.handshake_timeout");
  expect([](Options& o) -> milliseconds& { return o.limits.flush_timeout; },
         "limits.flush_timeout");
  expect([](Options& o) -> milliseconds& { return o.limits.linger_timeout; },
         "limits.linger_timeout");
}

TEST(OptionsTest, Enumerations) {
  EXPECT_EQ(OptionsError([](Options& o) { o.accept_mode = AcceptMode{9}; }),
            "accept_mode is 9: must be one of its enumerators");
  EXPECT_THAT(
      OptionsError([](Options& o) { o.load_balancing = LoadBalancing{9}; }),
      HasSubstr("load_balancing is 9"));
  EXPECT_THAT(OptionsError([](Options& o) { o.trigger = Trigger{9}; }),
              HasSubstr("trigger is 9"));
  EXPECT_THAT(OptionsError([](Options& o) { o.fd_tables = FdTables{9}; }),
              HasSubstr("fd_tables is 9"));
  EXPECT_THAT(OptionsError([](Options& o) { o.when_full = WhenFull{9}; }),
              HasSubstr("when_full is 9"));
  EXPECT_THAT(OptionsError(
                  [](Options& o) { o.limits.when_overflow = WhenOverflow{9}; }),
              HasSubstr("limits.when_overflow is 9"));
  EXPECT_THAT(
      OptionsError([](Options& o) { o.pinning.mode = CpuPinning::Mode{9}; }),
      HasSubstr("pinning.mode is 9"));
}

TEST(OptionsTest, Pinning) {
  using Mode = CpuPinning::Mode;
  const auto error = [](Mode mode, std::vector<int> cpus) {
    return OptionsError([&](Options& o) { o.pinning = {mode, cpus}; });
  };
  EXPECT_EQ(error(Mode::kOff, {}), "");
  EXPECT_EQ(error(Mode::kList, {0}), "");
  EXPECT_THAT(error(Mode::kList, {}), HasSubstr("pinning.cpus is empty"));
  EXPECT_THAT(error(Mode::kAuto, {0}), HasSubstr("pinning.mode is kList"));
  EXPECT_EQ(error(Mode::kList, {0, -3}),
            "pinning.cpus is -3: must be at least 0");
}

TEST(OptionsTest, SocketOptionBounds) {
  const auto keep = [](KeepAlive value) {
    return SocketError([&](SocketOptions& o) { o.keep_alive = value; });
  };
  EXPECT_EQ(keep({}), "");
  EXPECT_EQ(keep({seconds(1), seconds(1), 1}), "");
  EXPECT_EQ(keep({seconds(0), seconds(1), 1}),
            "keep_alive.idle (s) is 0: must be 1 to 32767");
  EXPECT_EQ(keep({seconds(1), seconds(32768), 1}),
            "keep_alive.interval (s) is 32768: must be 1 to 32767");
  EXPECT_EQ(keep({seconds(1), seconds(1), 128}),
            "keep_alive.count is 128: must be 1 to 127");
  EXPECT_EQ(SocketError([](SocketOptions& o) {
              o.user_timeout = milliseconds(int64_t{1} << 32);
            }),
            "user_timeout (ms) is 4294967296: must be 0 to 2147483647");
  EXPECT_EQ(SocketError([](SocketOptions& o) { o.receive_buffer = -1; }),
            "receive_buffer is -1: must be at least 0");
  EXPECT_EQ(SocketError([](SocketOptions& o) { o.send_buffer = -1; }),
            "send_buffer is -1: must be at least 0");
  EXPECT_EQ(SocketError([](SocketOptions& o) { o.not_sent_low_water = -1; }),
            "not_sent_low_water is -1: must be at least 0");
  EXPECT_EQ(SocketError([](SocketOptions& o) { o.linger = seconds(0); }), "");
  EXPECT_EQ(SocketError([](SocketOptions& o) { o.linger = seconds(-1); }),
            "linger (s) is -1: must be 0 to 2147483647");
  EXPECT_EQ(SocketError(
                [](SocketOptions& o) { o.bind_to_device = "interface-15by"; }),
            "");
  // 16 bytes: the kernel would silently take the first 15.
  EXPECT_THAT(SocketError([](SocketOptions& o) {
                o.bind_to_device = "interface-16byte";
              }),
              HasSubstr("bind_to_device is \"interface-16byte\""));
  EXPECT_THAT(SocketError([](SocketOptions& o) {
                o.bind_to_device = std::string("lo\0x", 4);
              }),
              HasSubstr("bind_to_device"));
}

TEST(OptionsTest, ListenOptionBounds) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto error = [](auto change) {
    ListenOptions options;
    change(options);
    const absl::Status status = ValidateListenOptions(options);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    }
    return std::string(status.message());
  };
  const auto rate = [&](double value) {
    return error([&](ListenOptions& o) { o.accept_rate = value; });
  };
  const auto burst = [&](double value) {
    return error([&](ListenOptions& o) {
      o.accept_rate = 10;
      o.accept_burst = value;
    });
  };
  EXPECT_EQ(error([](ListenOptions&) {}), "");
  for (const double good : {0.0, 0.001, 1.0, 0.5, 1e9}) {
    EXPECT_EQ(rate(good), "") << good;
  }
  EXPECT_EQ(rate(-1), "accept_rate is -1: must be 0, or 0.001 to 1e+09");
  EXPECT_THAT(rate(0.0009), HasSubstr("accept_rate is 0.0009"));
  EXPECT_THAT(rate(2e9), HasSubstr("accept_rate is 2e+09"));
  EXPECT_THAT(rate(kInfinity), HasSubstr("accept_rate is inf"));
  EXPECT_THAT(rate(-kInfinity), HasSubstr("accept_rate is -inf"));
  EXPECT_THAT(rate(std::nan("")), HasSubstr("accept_rate is nan"));
  for (const double good : {0.0, 1.0, 1.5, 1e12}) {
    EXPECT_EQ(burst(good), "") << good;
  }
  EXPECT_EQ(burst(0.5), "accept_burst is 0.5: must be 0, or 1 to 1e+12");
  EXPECT_THAT(burst(-1), HasSubstr("accept_burst is -1"));
  EXPECT_THAT(burst(1e13), HasSubstr("accept_burst is 1e+13"));
  EXPECT_THAT(burst(kInfinity), HasSubstr("accept_burst is inf"));
  EXPECT_THAT(burst(std::nan("")), HasSubstr("accept_burst is nan"));
  EXPECT_EQ(error([](ListenOptions& o) { o.accept_burst = 5; }),
            "accept_burst is 5: must be 0 without an accept_rate");
  EXPECT_THAT(error([](ListenOptions& o) { o.when_full = WhenFull{9}; }),
              HasSubstr("when_full is 9"));
  EXPECT_THAT(error([](ListenOptions& o) { o.socket.send_buffer = -1; }),
              HasSubstr("send_buffer is -1"));
}

TEST(OptionsTest, TheBurstFollowsFromTheRate) {
  ListenOptions options;
  options.accept_rate = 1000;
  EXPECT_EQ(AcceptBurstOf(options), 100);
  options.accept_rate = 3;
  EXPECT_EQ(AcceptBurstOf(options), 1);
  options.accept_burst = 7;
  EXPECT_EQ(AcceptBurstOf(options), 7);
}

TEST(OptionsTest, TheFirstErrorIsTold) {
  EXPECT_THAT(OptionsError([](Options& o) {
                o.reactors = -1;
                o.accept_batch = 0;
              }),
              HasSubstr("reactors"));
}

TEST(CloseReasonTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  const int last = static_cast<int>(CloseReason::kError);
  for (int i = 0; i <= last; ++i) {
    names.insert(CloseReasonName(static_cast<CloseReason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(last) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(CloseReasonName(CloseReason::kIdleTimeout), "idle timeout");
  EXPECT_EQ(CloseReasonName(CloseReason::kReset), "reset by peer");
  EXPECT_EQ(CloseReasonName(static_cast<CloseReason>(200)), "unknown");
}

TEST(WaterMarkOptions, WhatIsNotSetFollowsFromTheRest) {
  ConnectionLimits limits;
  EXPECT_EQ(HighWaterOf(limits), size_t{1} << 20);
  EXPECT_EQ(LowWaterOf(limits), size_t{1} << 19);
  limits.max_outbound = 1000;
  EXPECT_EQ(HighWaterOf(limits), 500u);
  EXPECT_EQ(LowWaterOf(limits), 250u);
  limits.max_outbound = 0;
  EXPECT_EQ(HighWaterOf(limits), size_t{1} << 20);
  limits.high_water = 1;
  EXPECT_EQ(LowWaterOf(limits), 0u);
  limits.high_water = 100;
  limits.low_water = 99;
  EXPECT_EQ(HighWaterOf(limits), 100u);
  EXPECT_EQ(LowWaterOf(limits), 99u);
}

}  // namespace
}  // namespace sluice
