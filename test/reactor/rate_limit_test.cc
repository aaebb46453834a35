// How much a peer may send: never more than burst and rate allow, all of it in
// the end, and nothing of the connection's end missed meanwhile.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "codec/frames.h"
#include "codec/line_codec.h"
#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/dial_result.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/test_server.h"
#include "test/support/timed_close.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

RateLimit Messages(double rate, double burst,
                   WhenOverRate when_over = WhenOverRate::kPause) {
  RateLimit limit;
  limit.messages_per_second = rate;
  limit.message_burst = burst;
  limit.when_over = when_over;
  return limit;
}

RateLimit Bytes(double rate, double burst,
                WhenOverRate when_over = WhenOverRate::kPause) {
  RateLimit limit;
  limit.bytes_per_second = rate;
  limit.byte_burst = burst;
  limit.when_over = when_over;
  return limit;
}

// So slow that no test sees the next one.
constexpr double kNever = 0.001;

// Lines, each with the time at which it was handled.
class LineHandler : public TimedCloseHandler {
 public:
  struct Line {
    std::string text;
    Clock::time_point at;
  };

  LineHandler() : decoder_(*LineDecoder::Create({})) {
    on_open = [](Connection& c) {
      c.Emplace<DecodeState>();
      return Action::kNone;
    };
    on_traffic = [this](Connection& c) {
      return ForEachFrame(c, decoder_, c.Get<DecodeState>(),
                          [this](std::string_view line) {
                            std::lock_guard<std::mutex> lock(mutex_);
                            lines_.push_back({std::string(line), Clock::now()});
                          });
    };
  }
  std::vector<Line> lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }
  std::string text() {
    std::string text;
    for (const Line& line : lines()) text += line.text + "\n";
    return text;
  }

 private:
  LineDecoder decoder_;
  std::mutex mutex_;
  std::vector<Line> lines_;
};

std::string Lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += std::to_string(i) + "\n";
  return lines;
}

class RateLimits : public ::testing::TestWithParam<MatrixParam> {
 protected:
  Options WithLimit(const RateLimit& limit) {
    Options options = GetParam().MakeOptions();
    options.limits.rate_limit = limit;
    options.log = [this](LogLevel, std::string_view line) {
      std::lock_guard<std::mutex> lock(log_mutex_);
      log_ += std::string(line) + "\n";
    };
    return options;
  }
  std::string log() {
    std::lock_guard<std::mutex> lock(log_mutex_);
    return log_;
  }

 private:
  std::mutex log_mutex_;
  std::string log_;
};

// Frames by ForEachFrame: to the message.
TEST_P(RateLimits, MessagesNeverTooManyAndAllInTheEnd) {
  constexpr double kRate = 100;
  constexpr int kBurst = 20;
  constexpr int kCount = 60;
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kRate, kBurst)));
  const Clock::time_point start = Clock::now();
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(kCount)));
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() == kCount; }));
  EXPECT_EQ(handler.text(), Lines(kCount));
  int count = 0;
  for (const LineHandler::Line& line : handler.lines()) {
    const double passed =
        std::chrono::duration<double>(line.at - start).count();
    EXPECT_LE(++count, kBurst + kRate * passed + 1e-6) << "at " << passed;
  }
  EXPECT_GE(server.stats().rate_paused, 1u);
  EXPECT_EQ(handler.closed, 0);
  EXPECT_TRUE(
      WaitUntil([&] { return server.stats().buffers_outstanding == 0; }));
  // After a rest a whole burst is there again.
  std::this_thread::sleep_for(milliseconds(250));
  const uint64_t pauses = server.stats().rate_paused;
  ASSERT_TRUE(client.SendAll(Lines(kBurst - 1)));
  ASSERT_TRUE(
      WaitUntil([&] { return handler.lines().size() == kCount + kBurst - 1; }));
  EXPECT_EQ(server.stats().rate_paused, pauses);
}

// Up to one read more, which is no larger than the burst.
TEST_P(RateLimits, BytesNeverTooManyAndAllInTheEnd) {
  constexpr double kRate = 100'000;
  constexpr double kBurst = 8'000;
  constexpr size_t kCount = 60'000;
  TimedCloseHandler handler;
  Clock::time_point start;
  std::mutex mutex;
  std::string read;
  std::atomic<int> too_many{0};
  handler.on_traffic = [&](Connection& c) {
    std::lock_guard<std::mutex> lock(mutex);
    read += c.Next();
    const double passed =
        std::chrono::duration<double>(Clock::now() - start).count();
    too_many += static_cast<double>(read.size()) >
                kBurst + kRate * passed + kBurst + 1e-6;
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Bytes(kRate, kBurst)));
  start = Clock::now();
  Client client = Client::Connect(server.address());
  std::string bytes(kCount, '\0');
  for (size_t i = 0; i < kCount; ++i) {
    bytes[i] = static_cast<char>('a' + (i * 31 >> 3) % 23);
  }
  ASSERT_TRUE(client.SendAll(bytes));
  ASSERT_TRUE(WaitUntil([&] {
    std::lock_guard<std::mutex> lock(mutex);
    return read.size() >= kCount;
  }));
  std::lock_guard<std::mutex> lock(mutex);
  EXPECT_TRUE(read == bytes);
  EXPECT_EQ(too_many, 0);
  EXPECT_GE(server.stats().rate_paused, 1u);
  EXPECT_EQ(server.stats().bytes_in, kCount);
}

TEST_P(RateLimits, APausedPeerCostsNoTurns) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 3)));
  std::vector<Client> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().SendAll(Lines(100)));
  }
  ASSERT_TRUE(WaitUntil([&] { return server.stats().rate_paused == 20; }));
  ExpectIdle(server);
  EXPECT_EQ(handler.lines().size(), 60u);
  // What else there is on the connection goes on.
  for (size_t i = 0; i < clients.size(); ++i) {
    ASSERT_TRUE(handler.at(i).Write("out").ok());
  }
  for (Client& client : clients) EXPECT_EQ(client.ReadExactly(3), "out");
  EXPECT_EQ(server.stats().rate_paused, 20u);
}

TEST_P(RateLimits, AFinWithNothingBeforeItIsNoticed) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 3)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(3)));
  ASSERT_TRUE(WaitUntil([&] { return server.stats().rate_paused == 1; }));
  ASSERT_TRUE(client.ShutdownWrite());
  EXPECT_EQ(client.ReadToEof(), "");
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kPeerClosed);
  EXPECT_EQ(handler.text(), Lines(3));
}

TEST_P(RateLimits, AFinWaitsForTheBytesBeforeIt) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()}, WithLimit(Messages(50, 3)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(10)));
  ASSERT_TRUE(client.ShutdownWrite());
  EXPECT_EQ(client.ReadToEof(), "");
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.text(), Lines(10));
  EXPECT_EQ(handler.reason.load(), CloseReason::kPeerClosed);
}

TEST_P(RateLimits, AResetIsNoticed) {
  if (GetParam().family == Family::kUnix) GTEST_SKIP();
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 3)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(10)));
  ASSERT_TRUE(WaitUntil([&] { return server.stats().rate_paused == 1; }));
  client.CloseWithReset();
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kReset);
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().buffers_outstanding, 0u);
}

TEST_P(RateLimits, ClosedForTheFirstMessageTooMany) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 5, WhenOverRate::kClose)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(5)));
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() == 5; }));
  TurnOver(HomeOf(server, handler.WaitFor(0)));
  EXPECT_EQ(handler.closed, 0);
  ASSERT_TRUE(client.SendAll("one\nmore\n"));
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kRateLimit);
  EXPECT_EQ(handler.text(), Lines(5));
  const EngineStats stats = server.stats();
  EXPECT_EQ(stats.closed_for(CloseReason::kRateLimit), 1u);
  EXPECT_EQ(stats.rate_paused, 0u);
  EXPECT_NE(log().find("(rate limit)"), std::string::npos) << log();
  EXPECT_NE(log().find("messages a second, burst 5"), std::string::npos)
      << log();
  if (GetParam().family != Family::kUnix) {
    EXPECT_NE(log().find(client.local().ToString()), std::string::npos)
        << log();
  }
}

TEST_P(RateLimits, ClosedForTheFirstByteTooMany) {
  TimedCloseHandler handler;
  std::atomic<size_t> read{0};
  handler.on_traffic = [&](Connection& c) {
    read += c.Discard();
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Bytes(kNever, 1000, WhenOverRate::kClose)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(std::string(1000, 'x')));
  ASSERT_TRUE(WaitUntil([&] { return read == 1000; }));
  TurnOver(HomeOf(server, handler.WaitFor(0)));
  EXPECT_EQ(handler.closed, 0);
  ASSERT_TRUE(client.SendAll("x"));
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kRateLimit);
  EXPECT_EQ(read, 1000u);
  EXPECT_NE(log().find("bytes a second, burst 1000"), std::string::npos);
}

// Without a codec: what is left unread is told again, without another byte.
TEST_P(RateLimits, WhatIsLeftUnreadIsToldAgain) {
  TimedCloseHandler handler;
  std::mutex mutex;
  std::string read;
  handler.on_traffic = [&](Connection& c) {
    std::lock_guard<std::mutex> lock(mutex);
    while (c.inbound() > 0) {
      read += c.Next(1);
      if (!c.CountMessages()) {
        EXPECT_FALSE(c.reading());
        EXPECT_TRUE(c.open());
        break;
      }
      EXPECT_TRUE(c.reading());
    }
    return Action::kNone;
  };
  TestServer server(handler, {GetParam().Listen()}, WithLimit(Messages(60, 2)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll("abcdefghij"));
  ASSERT_TRUE(WaitUntil([&] {
    std::lock_guard<std::mutex> lock(mutex);
    return read == "abcdefghij";
  }));
  EXPECT_GE(handler.traffic, 2);
}

// A pause of the handler's and one of the limit: reading needs the end of both.
TEST_P(RateLimits, BesideAPauseOfTheHandlers) {
  LineHandler handler;
  ReadPause pause;
  TestServer server(handler, {GetParam().Listen()}, WithLimit(Messages(50, 4)));
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  RunOn(home, [&] { pause = home.Find(ref)->PauseRead(); });
  ASSERT_TRUE(client.SendAll(Lines(10)));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(handler.lines().size(), 0u);
  RunOn(home, [&] { pause.Release(); });
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() >= 4; }));
  // In the middle of what the limit holds back.
  size_t at_pause = 0;
  RunOn(home, [&] {
    pause = home.Find(ref)->PauseRead();
    at_pause = handler.lines().size();
  });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(handler.lines().size(), at_pause);
  RunOn(home, [&] { pause.Release(); });
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() == 10; }));
  EXPECT_EQ(handler.text(), Lines(10));
}

TEST_P(RateLimits, APausedPeerDoesNotRunIntoTheReadTimeout) {
  LineHandler handler;
  Options options = WithLimit(Messages(kNever, 1));
  options.limits.read_timeout = milliseconds(100);
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  // It may be too late already; then there is nothing to see here.
  EXPECT_EQ(send(client.fd(), "0\n", 2, MSG_NOSIGNAL), 2);
  ASSERT_TRUE(WaitUntil(
      [&] { return server.stats().rate_paused == 1 || handler.closed == 1; }));
  if (handler.closed == 1) GTEST_SKIP() << "the machine is too slow";
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(handler.closed, 0);
}

TEST_P(RateLimits, PerConnectionAndAtAnyTime) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()}, WithLimit(RateLimit()));
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  const auto set = [&](const RateLimit& limit) {
    absl::Status status;
    RunOn(home, [&] { status = home.Find(ref)->SetRateLimit(limit); });
    return status;
  };
  const auto send_ten_expect = [&](size_t count) {
    const size_t before = handler.lines().size();
    ASSERT_TRUE(client.SendAll(Lines(10)));
    ASSERT_TRUE(
        WaitUntil([&] { return handler.lines().size() >= before + count; }));
    std::this_thread::sleep_for(milliseconds(60));
    TurnOver(home);
    EXPECT_EQ(handler.lines().size(), before + count);
  };
  send_ten_expect(10);
  EXPECT_TRUE(set(Messages(kNever, 4)).ok());
  send_ten_expect(4);
  // The pause ends with the limit that caused it; six were left.
  EXPECT_TRUE(set(Messages(kNever, 8)).ok());
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() == 20; }));
  send_ten_expect(2);
  // A bad one changes nothing.
  RateLimit bad = Messages(kNever, 8);
  bad.message_burst = 0;
  EXPECT_EQ(set(bad).code(), absl::StatusCode::kInvalidArgument);
  TurnOver(home);
  EXPECT_EQ(handler.lines().size(), 22u);
  EXPECT_TRUE(set(RateLimit()).ok());
  ASSERT_TRUE(WaitUntil([&] { return handler.lines().size() == 30; }));
  send_ten_expect(10);
  EXPECT_EQ(handler.text(), Lines(10) + Lines(10) + Lines(10) + Lines(10));
  EXPECT_EQ(server.stats().rate_paused, 2u);
}

// Lifted from inside a callback it counts at once.
TEST_P(RateLimits, LiftedInsideACallback) {
  TimedCloseHandler handler;
  handler.on_traffic = [&](Connection& c) {
    EXPECT_FALSE(c.CountMessages(5));
    EXPECT_FALSE(c.reading());
    EXPECT_TRUE(c.SetRateLimit(RateLimit()).ok());
    EXPECT_TRUE(c.reading());
    EXPECT_TRUE(c.CountMessages(1'000'000));
    return EchoTraffic(c);
  };
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 2)));
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.Echo("x"));
  EXPECT_FALSE(client.Readable(milliseconds(50)));
  EXPECT_EQ(handler.closed, 0);
}

// Counted where no bytes came at all.
TEST_P(RateLimits, CountedFromOutside) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 10, WhenOverRate::kClose)));
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  RunOn(home, [&] {
    EXPECT_TRUE(home.Find(ref)->CountMessages(10));
    EXPECT_TRUE(home.Find(ref)->open());
    EXPECT_FALSE(home.Find(ref)->CountMessages(SIZE_MAX));
    EXPECT_FALSE(home.Find(ref)->open());
    EXPECT_FALSE(home.Find(ref)->CountMessages());
  });
  ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
  EXPECT_EQ(handler.reason.load(), CloseReason::kRateLimit);
}

// A paused peer can be closed, and flushed.
TEST_P(RateLimits, ClosedWhilePaused) {
  LineHandler handler;
  TestServer server(handler, {GetParam().Listen()},
                    WithLimit(Messages(kNever, 2)));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll(Lines(100)));
  ASSERT_TRUE(WaitUntil([&] { return server.stats().rate_paused == 1; }));
  ASSERT_TRUE(handler.at(0).Write("bye").ok());
  ASSERT_TRUE(handler.at(0).Close().ok());
  EXPECT_EQ(client.ReadToEof(), "bye");
  client.Close();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(handler.reason.load(), CloseReason::kLocal);
}

INSTANTIATE_TEST_SUITE_P(
    Some, RateLimits,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp4, 1, AcceptMode::kHandOff, Trigger::kEdge},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2}),
    MatrixName);

TEST(RateLimitOptions, WhatIsBadIsNamed) {
  const auto error = [](const RateLimit& limit) {
    Options options;
    options.limits.rate_limit = limit;
    const absl::Status whole = ValidateOptions(options);
    const absl::Status alone = ValidateRateLimit(limit);
    EXPECT_EQ(whole.code(), alone.code());
    if (whole.ok()) return std::string();
    EXPECT_EQ(whole.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(whole.message()).rfind("limits.rate_limit.", 0), 0u);
    return std::string(alone.message());
  };
  EXPECT_EQ(error(RateLimit()), "");
  EXPECT_EQ(error(Messages(0.001, 1)), "");
  EXPECT_EQ(error(Bytes(1e9, 1e15)), "");
  EXPECT_EQ(error(Messages(-1, 1)),
            "messages_per_second is -1: must be 0.001 to 1e+09");
  EXPECT_EQ(error(Bytes(100, 0)), "byte_burst is 0: must be 1 to 1e+15");
  EXPECT_EQ(error(Bytes(100, 0.5)), "byte_burst is 0.5: must be 1 to 1e+15");
  EXPECT_EQ(error(Bytes(0, 7)),
            "byte_burst is 7: must be 0 while bytes_per_second is 0, no limit");
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), 1e10}) {
    EXPECT_NE(error(Bytes(bad, 1)), "") << bad;
    EXPECT_NE(error(Messages(bad, 1)), "") << bad;
  }
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), -1.0}) {
    EXPECT_NE(error(Bytes(1, bad)), "") << bad;
    EXPECT_NE(error(Messages(1, bad)), "") << bad;
  }
  EXPECT_EQ(error(Bytes(1, 1, WhenOverRate{9})),
            "when_over is 9: must be one of its enumerators");
}

}  // namespace
}  // namespace sluice::test
