// Engine::Drain.

#include <chrono>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr char kTcp[] = "tcp://127.0.0.1:0";

TEST(Drain, WaitsForTheLastConnectionAndAcceptsNoMore) {
  for (const int reactors : {1, 3}) {
    LifeHandler handler;
    handler.on_traffic = EchoTraffic;
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    const Address address = server.address();
    Client first = Client::Connect(address);
    Client second = Client::Connect(address);
    EXPECT_TRUE(first.Echo("a"));
    EXPECT_TRUE(second.Echo("a"));

    server.engine().Drain(std::chrono::minutes(10));
    ASSERT_TRUE(WaitUntil([&] { return handler.drains == 1; }));
    int error = 0;
    Client late = Client::TryConnect(address, &error);
    EXPECT_TRUE(first.Echo("still here"));
    first.Close();
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_TRUE(second.Echo("me too"));
    EXPECT_FALSE(server.run_returned());
    second.Close();
    EXPECT_TRUE(server.WaitForRun().ok());
    EXPECT_EQ(handler.opened, 2) << "accepted while draining";
    EXPECT_EQ(handler.drains, 1);
    handler.ExpectOrderlyEnd();
  }
}

TEST(Drain, ClosesWhatIsLeftAtTheDeadline) {
  for (const int reactors : {1, 3}) {
    LifeHandler handler;
    std::atomic<int> drained{0};
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      if (info.reason == CloseReason::kDrain) ++drained;
    };
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    std::vector<Client> clients;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(Client::Connect(server.address()));
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.opened == 5; }));
    const auto start = std::chrono::steady_clock::now();
    server.engine().Drain(milliseconds(100));
    EXPECT_TRUE(server.WaitForRun().ok());
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(100));
    EXPECT_EQ(drained, 5);
    EXPECT_EQ(handler.drains, 1);
    handler.ExpectOrderlyEnd();
  }
}

TEST(Drain, WithoutConnectionsEndsTheRun) {
  for (const int reactors : {1, 3}) {
    LifeHandler handler;
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    server.engine().Drain(std::chrono::minutes(10));
    EXPECT_TRUE(server.WaitForRun().ok());
    EXPECT_EQ(handler.drains, 1);
    handler.ExpectOrderlyEnd();
  }
}

TEST(Drain, HandlersMayCloseTheirConnectionsInOnDrain) {
  LifeHandler handler;
  std::atomic<int> local{0};
  std::mutex mutex;
  std::vector<ConnectionRef> refs;
  handler.on_open = [&](Connection& c) {
    std::lock_guard<std::mutex> lock(mutex);
    refs.push_back(c.ref());
    return Action::kNone;
  };
  handler.on_drain = [&](Engine&) {
    std::lock_guard<std::mutex> lock(mutex);
    for (const ConnectionRef& ref : refs) {
      EXPECT_TRUE(ref.Write("bye").ok());
      EXPECT_TRUE(ref.Close().ok());
    }
  };
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    if (info.reason == CloseReason::kLocal) ++local;
  };
  TestServer server(handler, {kTcp}, TestOptions(2));
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Client::Connect(server.address()));
  }
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == 4; }));
  server.engine().Drain(std::chrono::minutes(10));
  for (Client& client : clients) {
    EXPECT_EQ(client.ReadToEof(), "bye");
    client.Close();
  }
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_EQ(local, 4);
  handler.ExpectOrderlyEnd();
}

TEST(Drain, StopCutsItShort) {
  LifeHandler handler;
  std::atomic<int> shut{0};
  handler.on_close = [&](Connection&, const CloseInfo& info) {
    if (info.reason == CloseReason::kShutdown) ++shut;
  };
  TestServer server(handler, {kTcp}, TestOptions(2));
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(WaitUntil([&] { return handler.opened == 1; }));
  server.engine().Drain(std::chrono::minutes(10));
  ASSERT_TRUE(WaitUntil([&] { return handler.drains == 1; }));
  server.engine().Drain(std::chrono::minutes(20));  // once is enough
  server.Stop();
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_EQ(shut, 1);
  EXPECT_EQ(handler.drains, 1);
  handler.ExpectOrderlyEnd();
}

}  // namespace
}  // namespace sluice::test
