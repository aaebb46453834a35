// Engine::Dial.

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/client.h"
#include "test/support/dial_result.h"
#include "test/support/life_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/raw_listener.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Dialed connections send "hello" when they open; accepted ones echo.
class DialHandler : public LifeHandler {
 public:
  DialHandler() {
    on_open = [this](Connection& c) {
      if (c.listener() < 0) {
        ++dialed;
        EXPECT_TRUE(c.Write("hello").ok());
      }
      return Action::kNone;
    };
    on_traffic = [this](Connection& c) {
      if (c.listener() >= 0) return EchoTraffic(c);
      if (c.inbound() < 5) return Action::kNone;
      EXPECT_EQ(c.Next(), "hello");
      ++answered;
      return Action::kNone;
    };
  }
  std::atomic<int> dialed{0};
  std::atomic<int> answered{0};
};

class DialMatrix : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(DialMatrix, ConnectsOpensAndTalks) {
  const size_t fds_before = CountOpenFds();
  DialHandler handler;
  constexpr int kDials = 8;
  {
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    const Address address = server.address();
    std::atomic<int> done{0};
    for (int i = 0; i < kDials; ++i) {
      const absl::Status accepted =
          server.engine().Dial(address, {}, [&](absl::StatusOr<Connection*> c) {
            ASSERT_TRUE(c.ok()) << c.status().ToString();
            EXPECT_TRUE((*c)->reactor().InLoop());
            EXPECT_EQ((*c)->listener(), -1);
            EXPECT_EQ((*c)->peer(), address);
            EXPECT_TRUE((*c)->open());
            // Before its OnOpen, which finds this.
            (*c)->Emplace<std::string>("from done");
            ++done;
          });
      ASSERT_TRUE(accepted.ok()) << accepted.ToString();
    }
    EXPECT_TRUE(WaitUntil([&] { return handler.answered == kDials; }))
        << handler.answered << " answered, " << done << " done";
    EXPECT_EQ(done, kDials);
    EXPECT_EQ(handler.dialed, kDials);
    EXPECT_EQ(server.stats().opened, uint64_t{2 * kDials});
    EXPECT_EQ(server.stats().accepted, uint64_t{kDials});
    EXPECT_EQ(server.stats().dials_failed, 0u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  handler.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST_P(DialMatrix, TheReactorIsTheOneAskedFor) {
  DialHandler handler;
  RawListener listener(ListenAddress(GetParam().family));
  TestServer server(handler, {}, GetParam().MakeOptions());
  for (int i = 0; i < GetParam().reactors; ++i) {
    for (int round = 0; round < 3; ++round) {
      DialOptions options;
      options.reactor = i;
      std::atomic<int> index{-2};
      Event called;
      ASSERT_TRUE(server.engine()
                      .Dial(listener.address(), options,
                            [&](absl::StatusOr<Connection*> c) {
                              EXPECT_TRUE(c.ok()) << c.status().ToString();
                              if (c.ok()) index = (*c)->reactor().index();
                              called.Set();
                            })
                      .ok());
      ASSERT_TRUE(called.Wait());
      EXPECT_EQ(index, i);
    }
    EXPECT_EQ(server.engine().reactor(i).connections(), 3u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DialMatrix,
                         ::testing::ValuesIn(AllCombinations()), MatrixName);

TEST(Dial, DoneComesJustBeforeOnOpen) {
  LambdaHandler handler;
  std::vector<std::string> log;
  Event closed;
  handler.on_open = [&](Connection& c) {
    log.push_back("open");
    EXPECT_EQ(c.Get<std::string>(), "from done");
    return Action::kClose;
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    EXPECT_EQ(info.reason, CloseReason::kLocal);
    log.push_back("close");
    closed.Set();
  };
  RawListener listener("tcp://127.0.0.1:0");
  TestServer server(handler, {}, TestOptions(2));
  ASSERT_TRUE(server.engine()
                  .Dial(listener.address(), {},
                        [&](absl::StatusOr<Connection*> c) {
                          ASSERT_TRUE(c.ok());
                          log.push_back("done");
                          (*c)->Emplace<std::string>("from done");
                          EXPECT_TRUE((*c)->Write("early ").ok());
                        })
                  .ok());
  internal::UniqueFd peer = listener.Accept();
  ASSERT_TRUE(peer);
  char block[16];
  EXPECT_EQ(recv(peer.get(), block, sizeof(block), MSG_WAITALL), 6);
  peer.Reset();
  ASSERT_TRUE(closed.Wait());
  EXPECT_EQ(log, (std::vector<std::string>{"done", "open", "close"}));
}

TEST(Dial, DoneMayCloseTheConnection) {
  for (const CloseMode mode :
       {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
    LifeHandler handler;
    RawListener listener("tcp://127.0.0.1:0");
    TestServer server(handler, {}, TestOptions(2));
    Event called;
    ASSERT_TRUE(server.engine()
                    .Dial(listener.address(), {},
                          [&](absl::StatusOr<Connection*> c) {
                            ASSERT_TRUE(c.ok());
                            (*c)->Close(mode);
                            called.Set();
                          })
                    .ok());
    listener.Accept().Reset();
    ASSERT_TRUE(called.Wait());
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler.ExpectOrderlyEnd();
  }
}

TEST(Dial, TheSourceIsBoundFirst) {
  DialHandler handler;
  RawListener listener("tcp://127.0.0.1:0");
  TestServer server(handler, {}, TestOptions(2));
  for (const std::string host : {"127.0.0.5", "127.8.9.10"}) {
    DialOptions options;
    options.source = Address::Parse("tcp://" + host + ":0").value();
    std::string local;
    Event called;
    ASSERT_TRUE(server.engine()
                    .Dial(listener.address(), options,
                          [&](absl::StatusOr<Connection*> c) {
                            EXPECT_TRUE(c.ok()) << c.status().ToString();
                            if (c.ok()) local = (*c)->local().ToString();
                            called.Set();
                          })
                    .ok());
    Address peer;
    internal::UniqueFd fd = listener.Accept(&peer);
    ASSERT_TRUE(fd);
    ASSERT_TRUE(called.Wait());
    EXPECT_EQ(peer.ToString(), local);
    EXPECT_EQ(local.rfind("tcp://" + host + ":", 0), 0u) << local;
  }
  // One that this machine does not have.
  DialOptions options;
  options.source = Address::Parse("tcp://192.0.2.77:0").value();
  DialResult result;
  const absl::Status accepted =
      server.engine().Dial(listener.address(), options, result.Done());
  const absl::Status status = accepted.ok() ? result.Wait() : accepted;
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(Contains(status, "192.0.2.77")) << status.ToString();
}

TEST(Dial, FromInsideEveryCallback) {
  for (const int reactors : {1, 2}) {
    LifeHandler handler;
    std::atomic<int> done{0};
    std::atomic<bool> tick_dialed{false};
    RawListener target("tcp://127.0.0.1:0");
    const Address address = target.address();
    std::mutex mutex;
    std::set<std::string> from;
    const auto dial = [&](Engine& engine, const std::string& name) {
      const absl::Status status =
          engine.Dial(address, {}, [&, name](absl::StatusOr<Connection*> c) {
            EXPECT_TRUE(c.ok()) << c.status().ToString();
            std::lock_guard<std::mutex> lock(mutex);
            from.insert(name);
            ++done;
          });
      EXPECT_TRUE(status.ok()) << name << ": " << status.ToString();
    };
    handler.on_open = [&](Connection& c) {
      if (c.listener() >= 0) dial(c.reactor().engine(), "open");
      return Action::kNone;
    };
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      Engine& engine = c.reactor().engine();
      dial(engine, "traffic");
      // And from done itself.
      EXPECT_TRUE(
          engine
              .Dial(address, {},
                    [&](absl::StatusOr<Connection*>) { dial(engine, "done"); })
              .ok());
      return Action::kNone;
    };
    handler.on_peer_shutdown = [&](Connection& c) {
      dial(c.reactor().engine(), "peer shutdown");
      return Action::kClose;
    };
    handler.on_close = [&](Connection& c, const CloseInfo& info) {
      if (c.listener() >= 0 && info.reason != CloseReason::kShutdown) {
        dial(c.reactor().engine(), "close");
      }
    };
    handler.on_tick = [&](Reactor& reactor) {
      if (!tick_dialed.exchange(true)) dial(reactor.engine(), "tick");
    };
    Options options = TestOptions(reactors);
    options.tick = milliseconds(3);
    TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
    Client client = Client::Connect(server.address());
    EXPECT_TRUE(client.SendAll("x"));
    ASSERT_TRUE(WaitUntil([&] { return handler.traffic > 0; }));
    client.Close();
    EXPECT_TRUE(WaitUntil([&] { return done == 6; })) << done;
    std::lock_guard<std::mutex> lock(mutex);
    EXPECT_EQ(from, (std::set<std::string>{"open", "traffic", "done", "close",
                                           "peer shutdown", "tick"}));
  }
}

TEST(Dial, HooksSeeTheDescriptorAndMaySayNo) {
  DialHandler handler;
  RawListener listener("tcp://127.0.0.1:0");
  TestServer server(handler, {}, TestOptions(2));
  std::atomic<int> before{0};
  std::atomic<int> after{0};
  DialOptions options;
  options.socket.before_bind = [&](int fd) {
    EXPECT_GE(fd, 0);
    ++before;
    return absl::OkStatus();
  };
  options.socket.after_accept = [&](int fd) {
    EXPECT_GE(fd, 0);
    ++after;
    return absl::OkStatus();
  };
  DialResult fine;
  ASSERT_TRUE(
      server.engine().Dial(listener.address(), options, fine.Done()).ok());
  EXPECT_TRUE(fine.Wait().ok());
  EXPECT_EQ(before, 1);
  EXPECT_TRUE(WaitUntil([&] { return after == 1; }));
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == 1; }));

  DialOptions no = options;
  no.socket.before_bind = [](int) { return absl::DataLossError("no way"); };
  DialResult refused;
  const absl::Status accepted =
      server.engine().Dial(listener.address(), no, refused.Done());
  const absl::Status status = accepted.ok() ? refused.Wait() : accepted;
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status.ToString();
  EXPECT_TRUE(Contains(status, "no way"));

  no = options;
  no.socket.after_accept = [](int) { return absl::DataLossError("not you"); };
  DialResult late;
  ASSERT_TRUE(server.engine().Dial(listener.address(), no, late.Done()).ok());
  EXPECT_FALSE(late.Wait().ok());
  EXPECT_EQ(late.calls(), 1);
  EXPECT_EQ(handler.opened, 1);
}

TEST(Dial, ManyAtOnceFromManyThreads) {
  for (const FdTables tables : FdTableChoices()) {
    DialHandler handler;
    Options options = TestOptions(3);
    options.fd_tables = tables;
    TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
    const Address address = server.address();
    constexpr int kThreads = 4;
    constexpr int kEach = 100;
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          if (!server.engine()
                   .Dial(address, {},
                         [&](absl::StatusOr<Connection*> c) {
                           if (!c.ok()) ++failed;
                         })
                   .ok()) {
            ++failed;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(WaitUntil([&] { return handler.answered == kThreads * kEach; }))
        << handler.answered << " answered, " << failed << " failed";
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler.ExpectOrderlyEnd();
  }
}

}  // namespace
}  // namespace sluice::test
