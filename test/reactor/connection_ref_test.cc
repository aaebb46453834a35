// Tickets for connections, used from other threads and after the end.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

constexpr char kTcp[] = "tcp://127.0.0.1:0";

void ExpectEveryCallIs(absl::StatusCode code, const ConnectionRef& ref) {
  EXPECT_EQ(ref.Write("x").code(), code) << ref.Write("x").ToString();
  bool ran = false;
  auto held = std::make_shared<int>(0);
  EXPECT_EQ(ref.Post([&ran, held](Connection&) { ran = true; }).code(), code);
  EXPECT_FALSE(ran);
  EXPECT_EQ(held.use_count(), 1) << "the function was kept";
  EXPECT_EQ(ref.Wake().code(), code);
  EXPECT_EQ(ref.Close().code(), code);
  EXPECT_EQ(ref.Close(CloseMode::kReset).code(), code);
}

TEST(ConnectionRefTest, ReferringToNothing) {
  ExpectEveryCallIs(absl::StatusCode::kNotFound, ConnectionRef());
  EXPECT_EQ(ConnectionRef(), ConnectionRef());
}

TEST(ConnectionRefTest, ComparesAndHashes) {
  RefHandler handler;
  TestServer server(handler, {kTcp}, TestOptions(2));
  std::vector<Client> clients;
  absl::flat_hash_set<ConnectionRef> set;
  for (size_t i = 0; i < 20; ++i) {
    clients.push_back(Client::Connect(server.address()));
    EXPECT_TRUE(set.insert(handler.WaitFor(i)).second);
  }
  for (const ConnectionRef& ref : handler.refs()) {
    EXPECT_TRUE(set.contains(ref));
    EXPECT_NE(ref, ConnectionRef());
  }
}

TEST(ConnectionRefTest, EveryCallWorksFromAnotherThread) {
  for (const int reactors : {1, 3}) {
    RefHandler handler;
    std::atomic<int> woken{0};
    handler.on_traffic = [&](Connection& c) {
      EXPECT_TRUE(c.reactor().InLoop());
      EXPECT_EQ(c.inbound(), 0u);
      ++woken;
      return Action::kNone;
    };
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    EXPECT_TRUE(ref.Write("written").ok());
    EXPECT_EQ(client.ReadExactly(7), "written");
    EXPECT_TRUE(ref.Post([&](Connection& c) {
                     EXPECT_TRUE(c.reactor().InLoop());
                     EXPECT_EQ(c.ref(), ref);
                     EXPECT_TRUE(c.Write("posted").ok());
                   })
                    .ok());
    EXPECT_EQ(client.ReadExactly(6), "posted");
    EXPECT_TRUE(ref.Wake().ok());
    EXPECT_TRUE(WaitUntil([&] { return woken == 1; }));
    EXPECT_TRUE(ref.Close().ok());
    EXPECT_EQ(client.ReadToEof(), "");
  }
}

TEST(ConnectionRefTest, NotFoundAfterOnClose) {
  for (const FdTables tables : FdTableChoices()) {
    RefHandler handler;
    handler.on_traffic = EchoTraffic;
    Options options = TestOptions(2);
    options.fd_tables = tables;
    TestServer server(handler, {kTcp}, options);
    for (size_t i = 0; i < 10; ++i) {
      Client client = Client::Connect(server.address());
      const ConnectionRef ref = handler.WaitFor(i);
      EXPECT_TRUE(client.Echo("x"));
      client.Close();
      ASSERT_TRUE(
          WaitUntil([&] { return handler.closed == static_cast<int>(i) + 1; }));
      ASSERT_TRUE(server.WaitForNoConnections());
      ExpectEveryCallIs(absl::StatusCode::kNotFound, ref);
    }
    for (const ConnectionRef& ref : handler.refs()) {
      ExpectEveryCallIs(absl::StatusCode::kNotFound, ref);
    }
    EXPECT_EQ(server.stats().posts_dropped, 0u);
  }
}

// The record is used again; the old ticket must not reach its new owner.
TEST(ConnectionRefTest, AnOldTicketNeverReachesANewConnection) {
  RefHandler handler;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {kTcp}, TestOptions(1));
  std::set<int> descriptors;
  for (size_t i = 0; i < 50; ++i) {
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(i);
    for (size_t old = 0; old < i; ++old) {
      EXPECT_NE(handler.at(old), ref);
      EXPECT_EQ(handler.at(old).Write("LEAK").code(),
                absl::StatusCode::kNotFound);
      EXPECT_EQ(handler.at(old).Close().code(), absl::StatusCode::kNotFound);
    }
    EXPECT_TRUE(client.Echo("mine"));
    client.Close();
    ASSERT_TRUE(server.WaitForNoConnections());
  }
}

TEST(ConnectionRefTest, UnavailableAfterTheEngineIsGone) {
  for (const int reactors : {1, 3}) {
    RefHandler handler;
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    Client gone = Client::Connect(server.address());
    const ConnectionRef old = handler.WaitFor(0);
    gone.Close();
    ASSERT_TRUE(server.WaitForNoConnections());
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(1);
    server.Stop();
    EXPECT_TRUE(server.WaitForRun().ok());
    EXPECT_FALSE(ref.Write("x").ok());
    EXPECT_FALSE(ref.Wake().ok());
    EXPECT_TRUE(server.StopAndDestroy().ok());
    ExpectEveryCallIs(absl::StatusCode::kUnavailable, ref);
    EXPECT_FALSE(old.Write("x").ok());

    // Nor does a later engine take them for its own.
    RefHandler next_handler;
    next_handler.on_traffic = EchoTraffic;
    TestServer next(next_handler, {kTcp}, TestOptions(reactors));
    Client other = Client::Connect(next.address());
    EXPECT_NE(next_handler.WaitFor(0), ref);
    EXPECT_FALSE(ref.Write("LEAK").ok());
    EXPECT_FALSE(ref.Close().ok());
    EXPECT_FALSE(ref.Wake().ok());
    EXPECT_TRUE(other.Echo("only mine"));
  }
}

// --- Order

TEST(ConnectionRefTest, CallsOfOneThreadKeepTheirOrder) {
  for (const int reactors : {1, 2}) {
    RefHandler handler;
    TestServer server(handler, {kTcp}, TestOptions(reactors));
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    std::string expected;
    for (int i = 0; i < 200; ++i) {
      const std::string text = std::to_string(i) + ",";
      if (i % 2 == 0) {
        EXPECT_TRUE(ref.Write(text).ok());
      } else {
        EXPECT_TRUE(
            ref.Post([text](Connection& c) { EXPECT_TRUE(c.Write(text).ok()); })
                .ok());
      }
      expected += text;
    }
    EXPECT_TRUE(ref.Close().ok());
    EXPECT_EQ(client.ReadToEof(), expected);
  }
}

TEST(ConnectionRefTest, OnTheLoopItTakesEffectAtOnce) {
  RefHandler handler;
  handler.on_traffic = [](Connection& c) {
    c.Discard();
    const ConnectionRef ref = c.ref();
    EXPECT_TRUE(c.Write("1").ok());
    EXPECT_TRUE(ref.Write("2").ok());
    EXPECT_TRUE(c.Write("3").ok());
    EXPECT_TRUE(ref.Write("4").ok());
    EXPECT_TRUE(ref.Close().ok());
    EXPECT_FALSE(c.open());
    EXPECT_EQ(c.Write("5").code(), absl::StatusCode::kFailedPrecondition);
    return Action::kNone;
  };
  TestServer server(handler, {kTcp}, TestOptions(2));
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.SendAll("go"));
  EXPECT_EQ(client.ReadToEof(), "1234");
}

TEST(ConnectionRefTest, AWriteOnTheLoopInBetweenGoesFirst) {
  RefHandler handler;
  Event in_callback;
  Event written;
  handler.on_traffic = [&](Connection& c) {
    c.Discard();
    in_callback.Set();
    EXPECT_TRUE(written.Wait());
    EXPECT_TRUE(c.Write("first ").ok());
    return Action::kNone;
  };
  TestServer server(handler, {kTcp}, TestOptions(2));
  Client client = Client::Connect(server.address());
  EXPECT_TRUE(client.SendAll("go"));
  ASSERT_TRUE(in_callback.Wait());
  EXPECT_TRUE(handler.at(0).Write("second").ok());
  written.Set();
  EXPECT_EQ(client.ReadExactly(12), "first second");
}

// A call that was accepted while OnClose runs finds nobody: it is dropped,
// destroyed and counted.
TEST(ConnectionRefTest, DuringOnCloseCallsAreRefusedOrDroppedAndCounted) {
  RefHandler handler;
  Event closing;
  Event go_on;
  handler.on_close = [&](Connection& c, const CloseInfo&) {
    EXPECT_EQ(c.Write("x").code(), absl::StatusCode::kFailedPrecondition);
    closing.Set();
    EXPECT_TRUE(go_on.Wait());
  };
  TestServer server(handler, {kTcp}, TestOptions(2));
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  client.Close();
  ASSERT_TRUE(closing.Wait());
  auto held = std::make_shared<int>(0);
  std::atomic<bool> ran{false};
  const absl::Status posted =
      ref.Post([held, &ran](Connection&) { ran = true; });
  EXPECT_TRUE(posted.ok() || posted.code() == absl::StatusCode::kNotFound)
      << posted.ToString();
  go_on.Set();
  ASSERT_TRUE(server.WaitForNoConnections());
  EXPECT_TRUE(WaitUntil([&] { return held.use_count() == 1; }));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(WaitUntil([&] {
    return server.stats().posts_dropped == (posted.ok() ? 1u : 0u);
  })) << server.stats().posts_dropped;
}

}  // namespace
}  // namespace sluice::test
