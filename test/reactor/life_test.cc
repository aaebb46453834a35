// An engine from Run to OnShutdown.

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr char kTcp[] = "tcp://127.0.0.1:0";

TEST(Life, StopBeforeRunEndsItAfterOnBoot) {
  const size_t fds_before = CountOpenFds();
  LifeHandler handler;
  for (const int reactors : {1, 3}) {
    handler.boots = 0;
    auto engine = Engine::Create(handler, {kTcp}, TestOptions(reactors));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    (*engine)->Stop();
    (*engine)->Stop();
    const absl::Status run = (*engine)->Run();
    EXPECT_TRUE(run.ok()) << run.ToString();
    EXPECT_EQ(handler.boots, 1);
    EXPECT_EQ(handler.opened, 0);
  }
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST(Life, AnEngineThatNeverRanLeavesNothing) {
  const size_t fds_before = CountOpenFds();
  LifeHandler handler;
  const std::string path = UniqueUnixPath();
  {
    auto engine =
        Engine::Create(handler, {kTcp, "unix://" + path}, TestOptions(2));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
    EXPECT_EQ((*engine)->reactors(), 2);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_EQ(handler.boots, 0);
  EXPECT_EQ(handler.shutdowns, 0);
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST(Life, RunIsOnceAnEngine) {
  LifeHandler handler;
  auto engine = Engine::Create(handler, {kTcp}, TestOptions(2));
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  (*engine)->Stop();
  EXPECT_TRUE((*engine)->Run().ok());
  EXPECT_EQ((*engine)->Run().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(handler.boots, 1);
}

TEST(Life, OnBootMayEndTheRun) {
  const size_t fds_before = CountOpenFds();
  LifeHandler handler;
  handler.on_boot = [](Engine&) { return Action::kShutdown; };
  {
    auto engine = Engine::Create(handler, {kTcp}, TestOptions(2));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const absl::Status run = (*engine)->Run();
    EXPECT_TRUE(run.ok()) << run.ToString();
    EXPECT_EQ(handler.boots, 1);
    EXPECT_EQ(handler.opened, 0);
  }
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST(Life, StopInsideOnBootEndsTheRun) {
  LifeHandler handler;
  handler.on_boot = [](Engine& engine) {
    engine.Stop();
    return Action::kNone;
  };
  auto engine = Engine::Create(handler, {kTcp}, TestOptions(2));
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const absl::Status run = (*engine)->Run();
  EXPECT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(handler.opened, 0);
}

TEST(Life, OnBootAndOnShutdownRunOnTheThreadOfRun) {
  for (const int reactors : {1, 3}) {
    LifeHandler handler;
    const std::thread::id self = std::this_thread::get_id();
    std::thread stopper;
    handler.on_boot = [&](Engine& engine) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      stopper = std::thread([&engine] { engine.Stop(); });
      return Action::kNone;
    };
    handler.on_shutdown = [&](Engine&) {
      EXPECT_EQ(std::this_thread::get_id(), self);
    };
    auto engine = Engine::Create(handler, {kTcp}, TestOptions(reactors));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    EXPECT_TRUE((*engine)->Run().ok());
    stopper.join();
    EXPECT_EQ(handler.boots, 1);
  }
}

// Before OnBoot the listeners listen: who connects inside it is served later.
TEST(Life, ClientsOfOnBootAreServedAfterIt) {
  for (const int reactors : {1, 2}) {
    LifeHandler handler;
    Client client;
    handler.on_traffic = EchoTraffic;
    handler.on_boot = [&](Engine& engine) {
      client = Client::Connect(engine.bound()[0]);
      EXPECT_EQ(handler.opened, 0);
      return Action::kNone;
    };
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    EXPECT_TRUE(client.Echo("hello"));
  }
}

TEST(Life, CallbacksRunOnTheirReactor) {
  LifeHandler handler;
  std::atomic<int> wrong{0};
  const auto check = [&](Connection& c) {
    if (!c.reactor().InLoop()) ++wrong;
    if (c.reactor().index() < 0 || c.reactor().index() > 2) ++wrong;
    if (&c.reactor().engine().reactor(c.reactor().index()) != &c.reactor()) {
      ++wrong;
    }
    if (c.reactor().Find(c.ref()) != &c) ++wrong;
  };
  handler.on_open = [&](Connection& c) {
    check(c);
    return Action::kNone;
  };
  handler.on_traffic = [&](Connection& c) {
    check(c);
    return EchoTraffic(c);
  };
  TestServer server(handler, {kTcp}, TestOptions(3));
  EXPECT_EQ(server.engine().reactors(), 3);
  EXPECT_FALSE(server.engine().reactor(0).InLoop());
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(Client::Connect(server.address()).Echo("x"));
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Life, TasksAcceptedBeforeStopRun) {
  LifeHandler handler;
  TestServer server(handler, {kTcp}, TestOptions(2));
  std::atomic<int> accepted{0};
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (;;) {
        const absl::Status posted =
            server.engine().reactor(t % 2).Post([&] { ++ran; });
        if (posted.ok()) {
          ++accepted;
        } else {
          EXPECT_EQ(posted.code(), absl::StatusCode::kUnavailable);
          return;
        }
      }
    });
  }
  ASSERT_TRUE(WaitUntil([&] { return ran > 1000; }));
  server.Stop();
  EXPECT_TRUE(server.WaitForRun().ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, accepted);
}

// Stop gives each connection one attempt to send what is queued.
TEST(Life, StopSendsWhatIsQueued) {
  LifeHandler handler;
  handler.on_traffic = [](Connection& c) {
    c.Discard();
    EXPECT_TRUE(c.Write("last words").ok());
    c.reactor().engine().Stop();
    return Action::kNone;
  };
  for (const int reactors : {1, 2}) {
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    Client client = Client::Connect(server.address());
    EXPECT_TRUE(client.SendAll("x"));
    EXPECT_EQ(client.ReadToEof(), "last words");
    EXPECT_TRUE(server.WaitForRun().ok());
  }
}

TEST(Life, EnginesSideBySide) {
  LifeHandler handlers[2];
  for (LifeHandler& handler : handlers) handler.on_traffic = EchoTraffic;
  TestServer first(handlers[0], {kTcp}, TestOptions(2));
  TestServer second(handlers[1], {kTcp}, TestOptions(1));
  Client a = Client::Connect(first.address());
  Client b = Client::Connect(second.address());
  EXPECT_TRUE(a.Echo("one"));
  EXPECT_TRUE(b.Echo("two"));
  EXPECT_TRUE(first.StopAndDestroy().ok());
  EXPECT_TRUE(b.Echo("three"));
  b.Close();
  EXPECT_TRUE(second.StopAndDestroy().ok());
  handlers[0].ExpectOrderlyEnd();
  handlers[1].ExpectOrderlyEnd();
}

}  // namespace
}  // namespace sluice::test
