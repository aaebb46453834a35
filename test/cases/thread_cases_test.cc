// Cases of threads: stopping, posting, dialing and exceptions.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/ref_handler.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr char kTcp[] = "tcp://127.0.0.1:0";

// --- B75: posts while the engine stops

// What became of the things posted.
struct Tally {
  std::atomic<uint64_t> accepted{0};   // Post said OK
  std::atomic<uint64_t> refused{0};    // Post said anything else
  std::atomic<uint64_t> ran{0};        // and it ran
  std::atomic<uint64_t> destroyed{0};  // and the function was destroyed
};

// A function that is counted when it runs and when it goes, once each.
struct Counted {
  explicit Counted(Tally* t) : tally(t) {}
  Counted(Counted&& other) noexcept
      : tally(std::exchange(other.tally, nullptr)) {}
  Counted& operator=(Counted&&) = delete;
  ~Counted() {
    if (tally != nullptr) ++tally->destroyed;
  }
  void operator()() { ++tally->ran; }
  void operator()(Connection&) { ++tally->ran; }
  Tally* tally;
};

void Note(const absl::Status& posted, Tally& tally) {
  if (posted.ok()) {
    ++tally.accepted;
  } else {
    ++tally.refused;
    EXPECT_TRUE(posted.code() == absl::StatusCode::kUnavailable ||
                posted.code() == absl::StatusCode::kNotFound)
        << posted.ToString();
  }
}

TEST(ThreadCases, B75_PostsAndWritesWhileTheEngineStops) {
  constexpr int kRounds = 200;
  constexpr int kThreads = 4;
  for (int round = 0; round < kRounds && !testing::Test::HasFailure();
       ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Tally tasks;
    Tally functions;
    Tally writes;
    EngineStats stats;
    {
      RefHandler handler;
      TestServer server(handler, {UniqueUnixAddress()},
                        TestOptions(round % 2 == 0 ? 1 : 2));
      ASSERT_TRUE(server.created().ok()) << server.created().ToString();
      Client client = Client::Connect(server.address());
      const ConnectionRef ref = handler.WaitFor(0);
      Reactor& loop = server.engine().reactor(server.engine().reactors() - 1);
      std::atomic<int> started{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
          ++started;
          // Until both say that the engine has stopped.
          for (;;) {
            const absl::Status task = loop.Post(Counted(&tasks));
            Note(task, tasks);
            const absl::Status function = ref.Post(Counted(&functions));
            Note(function, functions);
            const absl::Status write = ref.Write("w");
            Note(write, writes);
            if (task.code() == absl::StatusCode::kUnavailable &&
                write.code() == absl::StatusCode::kUnavailable) {
              return;
            }
            std::this_thread::yield();
          }
        });
      }
      while (started < kThreads) std::this_thread::yield();
      // At another moment each time.
      std::this_thread::sleep_for(std::chrono::microseconds(37 * (round % 20)));
      server.Stop();
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(server.WaitForRun().ok());
      stats = server.stats();
    }
    EXPECT_EQ(tasks.ran, tasks.accepted) << "a task was accepted and lost";
    EXPECT_EQ(tasks.destroyed, tasks.accepted + tasks.refused);
    EXPECT_LE(functions.ran, functions.accepted);
    EXPECT_EQ(functions.destroyed, functions.accepted + functions.refused);
    // What did not run is told: for a function that is exact.
    const uint64_t unrun = functions.accepted - functions.ran;
    EXPECT_GE(stats.posts_dropped, unrun);
    EXPECT_LE(stats.posts_dropped, unrun + writes.accepted);
  }
}

// --- B77: connections under way while the engine stops

class StopCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(StopCases, B77_StopDuringAFloodOfAccepts) {
  constexpr int kClients = 20;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const size_t fds_before = CountOpenFds();
    LifeHandler handler;
    handler.on_traffic = EchoTraffic;
    {
      TestServer server(handler, {GetParam().Listen()},
                        GetParam().MakeOptions());
      ASSERT_TRUE(server.created().ok()) << server.created().ToString();
      const Address address = server.address();
      std::atomic<bool> over{false};
      std::vector<std::thread> threads;
      for (int i = 0; i < kClients; ++i) {
        threads.emplace_back([&] {
          while (!over) {
            int error = 0;
            Client client = Client::TryConnect(address, &error);
            // No ports left in TIME_WAIT.
            if (client.connected()) client.CloseWithReset();
          }
        });
      }
      EXPECT_TRUE(WaitUntil([&] { return handler.opened >= 50; }));
      server.Stop();
      EXPECT_TRUE(server.WaitForRun().ok());
      EXPECT_EQ(server.stats().connections, 0u);
      EXPECT_EQ(handler.shutdowns, 1);
      // The flood goes on against what is no more.
      std::this_thread::sleep_for(milliseconds(5));
      over = true;
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(server.StopAndDestroy().ok());
    }
    handler.ExpectOrderlyEnd();
    EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
  }
}

TEST_P(StopCases, B77_DrainEndsWithTheLastConnection) {
  LifeHandler handler;
  Event in_traffic;
  std::chrono::steady_clock::time_point closed_at;
  handler.on_traffic = [&](Connection& c) {
    in_traffic.Set();
    std::this_thread::sleep_for(milliseconds(300));
    c.Close(CloseMode::kNow);
    return Action::kNone;
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    EXPECT_EQ(info.reason, CloseReason::kLocal);
    closed_at = std::chrono::steady_clock::now();
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(client.SendAll("x"));
  ASSERT_TRUE(in_traffic.Wait());
  server.engine().Drain(std::chrono::hours(1));
  // Its deadline is far beyond this test's patience.
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_EQ(handler.closed, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - closed_at,
            std::chrono::seconds(10));
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

std::vector<MatrixParam> StopCombinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.reactors != 2 && param.trigger == Trigger::kLevel &&
        (param.family == Family::kTcp4 ||
         (param.family == Family::kUnix &&
          param.accept == AcceptMode::kHandOff))) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, StopCases,
                         ::testing::ValuesIn(StopCombinations()), MatrixName);

// --- B79, B80: tasks

class TaskCases : public ::testing::TestWithParam<int> {};

TEST_P(TaskCases, B79_NoWakeUpIsLost) {
  constexpr int kThreads = 8;
  constexpr int kTasks = kTsan ? 20'000 : 100'000;
  LambdaHandler handler;
  TestServer server(handler, {kTcp}, TestOptions(GetParam()));
  Reactor& loop = server.engine().reactor(0);
  // The loop's, so that a task that runs twice, or out of turn, is seen.
  std::vector<std::vector<int>> ran(kThreads);
  for (std::vector<int>& one : ran) one.reserve(kTasks);
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        ASSERT_TRUE(loop.Post([&, t, i] {
                          ran[static_cast<size_t>(t)].push_back(i);
                          ++count;
                        })
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // After silence there is nothing else that would wake the loop.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(WaitUntil([&] { return count >= kThreads * kTasks; }))
        << count << " of " << kThreads * kTasks;
    if (i == 0) std::this_thread::sleep_for(milliseconds(50));
    Event last;
    ASSERT_TRUE(loop.Post([&] { last.Set(); }).ok());
    ASSERT_TRUE(last.Wait()) << "the wake-up was lost";
  }
  RunOn(loop, [&] {
    for (const std::vector<int>& one : ran) {
      ASSERT_EQ(one.size(), static_cast<size_t>(kTasks));
      for (int i = 0; i < kTasks; ++i) {
        ASSERT_EQ(one[static_cast<size_t>(i)], i);
      }
    }
  });
  EXPECT_EQ(count, kThreads * kTasks);
}

TEST_P(TaskCases, B80_ATaskThatPostsItselfStarvesNobody) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {kTcp}, TestOptions(GetParam()));
  Reactor& loop = server.engine().reactor(0);
  std::atomic<uint64_t> runs{0};
  std::atomic<int> timer_runs{0};
  std::function<void()> again = [&] {
    ++runs;
    // Refused only when the engine has stopped.
    (void)loop.Post([&] { again(); });
  };
  RunOn(loop, [&] {
    again();
    loop.RunEvery(milliseconds(1), [&] { ++timer_runs; });
  });
  ASSERT_TRUE(WaitUntil([&] { return runs > 100; }));
  Client client = Client::Connect(server.address());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Echo("ping"));
  EXPECT_TRUE(WaitUntil([&] { return timer_runs > 5; }));
  // One run a turn, no more: only what was there when the turn began.
  uint64_t runs_before = 0;
  uint64_t turns_before = 0;
  RunOn(loop, [&] {
    runs_before = runs;
    turns_before = server.stats().turns;
  });
  ASSERT_TRUE(WaitUntil([&] { return runs > runs_before + 1000; }));
  RunOn(loop, [&] {
    EXPECT_LE(runs - runs_before, server.stats().turns - turns_before + 1);
  });
  server.Stop();
  EXPECT_TRUE(server.WaitForRun().ok());
}

INSTANTIATE_TEST_SUITE_P(Reactors, TaskCases, ::testing::Values(1, 2));

// --- B82: exceptions

class ExceptionCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  // Of different kinds; the last is not derived from std::exception.
  static void Throw(int kind) {
    if (kind % 2 == 0) throw std::runtime_error("thrown by the test");
    throw 42;
  }
};

TEST_P(ExceptionCases, B82_OnlyTheConnectionWhoseTrafficThrewIsClosed) {
  LifeHandler handler;
  std::atomic<int> broken{0};
  std::atomic<int> kind{0};
  handler.on_traffic = [&](Connection& c) {
    if (c.Peek().front() == 'A') Throw(kind++);
    return EchoTraffic(c);
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    broken += info.reason == CloseReason::kHandlerException;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  std::vector<Client> others;
  for (int i = 0; i < 10; ++i) {
    others.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(others.back().Echo("before"));
  }
  for (int i = 0; i < 4; ++i) {
    Client a = Client::Connect(server.address());
    EXPECT_TRUE(a.SendAll("A"));
    int error = 0;
    EXPECT_EQ(a.ReadToEnd(&error), "");
    EXPECT_TRUE(WaitUntil([&] { return broken == i + 1; }));
  }
  for (Client& client : others) EXPECT_TRUE(client.Echo("after"));
  EXPECT_EQ(server.stats().handler_exceptions, 4u);
  EXPECT_EQ(handler.closed, 4);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

TEST_P(ExceptionCases, B82_OnOpenThrows) {
  LifeHandler handler;
  std::atomic<int> opens{0};
  std::atomic<int> broken{0};
  handler.on_open = [&](Connection&) -> Action {
    const int number = opens++;
    if (number < 4) Throw(number);
    return Action::kNone;
  };
  handler.on_traffic = EchoTraffic;
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    broken += info.reason == CloseReason::kHandlerException;
  };
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  for (int i = 0; i < 4; ++i) {
    Client client = Client::Connect(server.address());
    int error = 0;
    EXPECT_EQ(client.ReadToEnd(&error), "");
  }
  EXPECT_TRUE(WaitUntil([&] { return broken == 4; }));
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.Echo("after"));
  EXPECT_EQ(server.stats().handler_exceptions, 4u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

TEST_P(ExceptionCases, B82_OnCloseThrows) {
  LifeHandler handler;
  std::atomic<int> closes{0};
  handler.on_traffic = EchoTraffic;
  handler.on_close = [&](Connection&, const CloseInfo&) { Throw(closes++); };
  const size_t fds_before = CountOpenFds();
  {
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    for (int i = 0; i < 4; ++i) {
      Client client = Client::Connect(server.address());
      EXPECT_TRUE(client.Echo("x"));
    }
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(closes, 4);
    Client client = Client::Connect(server.address());
    EXPECT_TRUE(client.Echo("after"));
    // And in the OnClose of the end.
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  EXPECT_EQ(closes, 5);
  handler.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST_P(ExceptionCases, B82_OnTickThrows) {
  LifeHandler handler;
  std::atomic<int> ticks{0};
  handler.on_traffic = EchoTraffic;
  handler.on_tick = [&](Reactor&) { Throw(ticks++); };
  Options options = GetParam().MakeOptions();
  options.tick = milliseconds(2);
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.Echo("before"));
  EXPECT_TRUE(WaitUntil([&] { return ticks > 20; }));
  EXPECT_TRUE(client.Echo("after"));
  EXPECT_GE(server.stats().handler_exceptions, 20u);
  EXPECT_EQ(handler.closed, 0);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler.ExpectOrderlyEnd();
}

// What is no connection's own: nobody is closed for it.
TEST_P(ExceptionCases, B82_TasksAndTimersThrow) {
  LifeHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.Echo("before"));
  Reactor& loop = server.engine().reactor(0);
  std::atomic<int> thrown{0};
  Event behind;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(loop.Post([&, i] {
                      ++thrown;
                      Throw(i);
                    })
                    .ok());
  }
  EXPECT_TRUE(loop.Post([&] {
                    for (int i = 0; i < 3; ++i) {
                      loop.RunAfter(milliseconds(1), [&, i] {
                        ++thrown;
                        Throw(i);
                      });
                    }
                    loop.RunAfter(milliseconds(2), [&] { behind.Set(); });
                  })
                  .ok());
  EXPECT_TRUE(behind.Wait()) << "what threw took the others with it";
  EXPECT_TRUE(WaitUntil([&] { return thrown == 6; }));
  EXPECT_TRUE(
      WaitUntil([&] { return server.stats().handler_exceptions == 6; }));
  EXPECT_TRUE(client.Echo("after"));
  EXPECT_EQ(server.stats().timers, 0u);
}

std::vector<MatrixParam> ExceptionCombinations() {
  return {{Family::kTcp4, 1},
          {Family::kTcp4, 2},
          {Family::kTcp6, 2, AcceptMode::kReusePort, Trigger::kEdge},
          {Family::kUnix, 1, AcceptMode::kHandOff, Trigger::kEdge}};
}

INSTANTIATE_TEST_SUITE_P(Some, ExceptionCases,
                         ::testing::ValuesIn(ExceptionCombinations()),
                         MatrixName);

// --- B86: dialing from many threads while the loops serve

class DialCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(DialCases, B86_FourThreadsDialTwoThousandConnections) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  constexpr int kAll = kThreads * kEach;
  LifeHandler handler;
  std::atomic<int> answered{0};
  handler.on_open = [](Connection& c) {
    if (c.listener() < 0) {
      EXPECT_TRUE(c.Write("hello").ok());
    }
    return Action::kNone;
  };
  handler.on_traffic = [&](Connection& c) {
    if (c.listener() >= 0) return EchoTraffic(c);
    if (c.inbound() == 5) {
      EXPECT_EQ(c.Next(), "hello");
      ++answered;
    }
    return Action::kNone;
  };
  Options options = GetParam().MakeOptions();
  TestServer server(handler, {GetParam().Listen()}, options);
  Client client = Client::Connect(server.address());
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        DialOptions dial;
        dial.timeout = std::chrono::minutes(2);
        const absl::Status dialed = server.engine().Dial(
            server.address(), dial, [&](absl::StatusOr<Connection*> result) {
              if (!result.ok()) {
                ++failed;
                ADD_FAILURE() << result.status().ToString();
              }
              ++done;
            });
        ASSERT_TRUE(dialed.ok()) << dialed.ToString();
      }
    });
  }
  while (done < kAll / 2 && failed == 0) {
    if (!client.Echo("traffic goes on")) break;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(WaitUntil([&] { return done == kAll; })) << done;
  EXPECT_TRUE(WaitUntil([&] { return answered == kAll; })) << answered;
  EXPECT_TRUE(client.Echo("and on"));
  EXPECT_EQ(server.stats().connections, size_t{2 * kAll + 1});
  EXPECT_EQ(server.stats().dials_failed, 0u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  EXPECT_EQ(handler.opened, 2 * kAll + 1);
  handler.ExpectOrderlyEnd();
}

INSTANTIATE_TEST_SUITE_P(Some, DialCases,
                         ::testing::Values(MatrixParam{Family::kTcp4, 1},
                                           MatrixParam{Family::kTcp4, 3},
                                           MatrixParam{Family::kTcp6, 2,
                                                       AcceptMode::kReusePort}),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
