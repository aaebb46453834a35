// Engine::Dial when it cannot be done.

#include <chrono>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/engine.h"
#include "test/support/dial_result.h"
#include "test/support/life_handler.h"
#include "test/support/process_info.h"
#include "test/support/raw_listener.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

TEST(DialFailure, ARefusedOneSaysSo) {
  for (const int reactors : {1, 2}) {
    LifeHandler handler;
    TestServer server(handler, {}, TestOptions(reactors));
    // Bound and not listening: connecting is refused, and nobody takes the
    // port meanwhile.
    RawListener bound("tcp://127.0.0.1:0", RawListener::kOnlyBind);
    DialResult result;
    ASSERT_TRUE(server.engine().Dial(bound.address(), {}, result.Done()).ok());
    const absl::Status status = result.Wait();
    EXPECT_TRUE(Contains(status, "refused")) << status.ToString();
    EXPECT_TRUE(Contains(status, bound.address().ToString()))
        << status.ToString();
    EXPECT_TRUE(WaitUntil([&] { return server.stats().dials_failed == 1; }));
    EXPECT_TRUE(WaitUntil([&] { return result.destroyed(); }));
    EXPECT_EQ(result.calls(), 1);
    EXPECT_EQ(handler.opened, 0);
    EXPECT_TRUE(server.WaitForNoConnections());
  }
}

TEST(DialFailure, AUnixPathWithoutAListenerFails) {
  LifeHandler handler;
  TestServer server(handler, {}, TestOptions(2));
  DialResult missing;
  const Address nowhere = Address::Parse(UniqueUnixAddress()).value();
  ASSERT_TRUE(server.engine().Dial(nowhere, {}, missing.Done()).ok());
  const absl::Status status = missing.Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(Contains(status, nowhere.path())) << status.ToString();
  DialResult abstract;
  ASSERT_TRUE(server.engine()
                  .Dial(Address::Parse(UniqueAbstractAddress()).value(), {},
                        abstract.Done())
                  .ok());
  EXPECT_FALSE(abstract.Wait().ok());
  EXPECT_EQ(handler.opened, 0);
}

TEST(DialFailure, TheTimeoutEndsIt) {
  for (const int reactors : {1, 2}) {
    LifeHandler handler;
    const size_t fds_before = CountOpenFds();
    {
      // Its queue is full, so a SYN is dropped and the dial hangs.
      RawListener full("tcp://127.0.0.1:0", RawListener::kFullQueue);
      TestServer server(handler, {}, TestOptions(reactors));
      DialOptions options;
      options.timeout = milliseconds(150);
      DialResult result;
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(
          server.engine().Dial(full.address(), options, result.Done()).ok());
      const absl::Status status = result.Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded)
          << status.ToString();
      EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(150));
      EXPECT_TRUE(WaitUntil([&] { return server.stats().dials_failed == 1; }));
      EXPECT_TRUE(server.WaitForNoConnections());
      EXPECT_EQ(handler.opened, 0);
    }
    EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
  }
}

// OK from Dial means that done is called, whatever happens.
TEST(DialFailure, StopEndsThoseUnderWay) {
  for (const int reactors : {1, 3}) {
    LifeHandler handler;
    RawListener full("tcp://127.0.0.1:0", RawListener::kFullQueue);
    TestServer server(handler, {}, TestOptions(reactors));
    std::vector<DialResult> results(5);
    for (DialResult& result : results) {
      DialOptions options;
      options.timeout = std::chrono::hours(1);
      ASSERT_TRUE(
          server.engine().Dial(full.address(), options, result.Done()).ok());
    }
    server.Stop();
    EXPECT_TRUE(server.WaitForRun().ok());
    for (DialResult& result : results) {
      EXPECT_FALSE(result.Wait().ok());
      EXPECT_EQ(result.calls(), 1);
      EXPECT_TRUE(result.destroyed());
    }
    handler.ExpectOrderlyEnd();
  }
}

TEST(DialFailure, BadInputIsRefusedAndDoneDestroyedUncalled) {
  LifeHandler handler;
  RawListener listener("tcp://127.0.0.1:0");
  TestServer server(handler, {}, TestOptions(2));
  const Address good = listener.address();
  DialOptions no_time;
  no_time.timeout = milliseconds(0);
  DialOptions less_time;
  less_time.timeout = milliseconds(-1);
  DialOptions beyond;
  beyond.reactor = 2;
  DialOptions below;
  below.reactor = -2;
  struct Bad {
    Address address;
    DialOptions options;
    std::string named;
  };
  const std::vector<Bad> bad = {
      {Address(), {}, "address"}, {good, no_time, "0"}, {good, less_time, "-1"},
      {good, beyond, "2"},        {good, below, "-2"},
  };
  for (const Bad& input : bad) {
    DialResult result;
    const absl::Status status =
        server.engine().Dial(input.address, input.options, result.Done());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << input.named << ": " << status.ToString();
    EXPECT_TRUE(Contains(status, input.named)) << status.ToString();
    EXPECT_TRUE(result.destroyed());
    EXPECT_EQ(result.calls(), 0);
  }
  EXPECT_EQ(server.stats().dials_failed, 0u);
}

TEST(DialFailure, EndsThatCannotMeetAreRefusedToo) {
  LifeHandler handler;
  RawListener listener("tcp://127.0.0.1:0");
  TestServer server(handler, {}, TestOptions(2));
  DialOptions other_family;
  other_family.source = Address::Parse("tcp://[::1]:0").value();
  struct Bad {
    Address address;
    DialOptions options;
    std::string named;
  };
  const std::vector<Bad> bad = {
      {Address::Parse("tcp://127.0.0.1:0").value(), {}, "tcp://127.0.0.1:0"},
      {listener.address(), other_family, "tcp://[::1]:0"},
  };
  for (const Bad& input : bad) {
    DialResult result;
    const absl::Status status =
        server.engine().Dial(input.address, input.options, result.Done());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << input.named << ": " << status.ToString();
    EXPECT_TRUE(Contains(status, input.named)) << status.ToString();
    EXPECT_TRUE(result.destroyed());
    EXPECT_EQ(result.calls(), 0);
  }
}

TEST(DialFailure, UnavailableBeforeAndAfterRun) {
  LifeHandler handler;
  RawListener listener("tcp://127.0.0.1:0");
  {
    auto engine = Engine::Create(handler, {}, TestOptions(2));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    DialResult result;
    EXPECT_EQ((*engine)->Dial(listener.address(), {}, result.Done()).code(),
              absl::StatusCode::kUnavailable);
    EXPECT_TRUE(result.destroyed());
    EXPECT_EQ(result.calls(), 0);
  }
  TestServer server(handler, {}, TestOptions(2));
  server.Stop();
  EXPECT_TRUE(server.WaitForRun().ok());
  DialResult result;
  EXPECT_EQ(server.engine().Dial(listener.address(), {}, result.Done()).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(result.destroyed());
  EXPECT_EQ(result.calls(), 0);
}

}  // namespace
}  // namespace sluice::test
