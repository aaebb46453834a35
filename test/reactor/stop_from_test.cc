// B74: Engine::Stop and Action::kShutdown from every place.

#include <chrono>
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

using std::chrono::milliseconds;

constexpr char kTcp[] = "tcp://127.0.0.1:0";

enum class From {
  kOpen,
  kTraffic,
  kPeerShutdown,
  kClose,
  kTick,
  kTask,
  kTimer,
  kRefPost,
  kOtherThread,
  kOpenAction,
  kTrafficAction,
  kPeerShutdownAction,
};
constexpr const char* kFromNames[] = {
    "Open",        "Traffic",    "PeerShutdown",  "Close",
    "Tick",        "Task",       "Timer",         "RefPost",
    "OtherThread", "OpenAction", "TrafficAction", "PeerShutdownAction"};

class StopFrom : public ::testing::TestWithParam<From> {
 protected:
  // Stops, the first time; in the calling callback.
  void StopNow(Engine& engine) {
    if (stopped_.exchange(true)) return;
    engine.Stop();
    engine.Stop();
  }
  Action ShutdownAction(From from) {
    return GetParam() == from ? Action::kShutdown : Action::kNone;
  }

  void SetUpHandler() {
    handler_.on_open = [this](Connection& c) {
      if (opened_++ == kConnections - 1) {
        if (GetParam() == From::kOpen) StopNow(c.reactor().engine());
        return ShutdownAction(From::kOpenAction);
      }
      return Action::kNone;
    };
    handler_.on_traffic = [this](Connection& c) {
      c.Discard();
      if (GetParam() == From::kTraffic) StopNow(c.reactor().engine());
      if (GetParam() == From::kRefPost) {
        const absl::Status posted = c.ref().Post(
            [this](Connection& same) { StopNow(same.reactor().engine()); });
        EXPECT_TRUE(posted.ok()) << posted.ToString();
      }
      if (GetParam() == From::kTimer) {
        c.reactor().RunAfter(
            milliseconds(1),
            [this, &engine = c.reactor().engine()] { StopNow(engine); });
      }
      return ShutdownAction(From::kTrafficAction);
    };
    handler_.on_peer_shutdown = [this](Connection& c) {
      if (GetParam() == From::kPeerShutdown) StopNow(c.reactor().engine());
      if (GetParam() == From::kPeerShutdownAction) return Action::kShutdown;
      return Action::kClose;
    };
    handler_.on_close = [this](Connection& c, const CloseInfo&) {
      if (GetParam() == From::kClose) StopNow(c.reactor().engine());
    };
    handler_.on_tick = [this](Reactor& reactor) {
      if (GetParam() == From::kTick && go_) StopNow(reactor.engine());
    };
  }

  // What the clients and this thread do to bring it about.
  void Provoke(TestServer& server, std::vector<Client>& clients) {
    switch (GetParam()) {
      case From::kOpen:
      case From::kOpenAction:
        return;  // the last OnOpen did it
      case From::kTraffic:
      case From::kRefPost:
      case From::kTimer:
      case From::kTrafficAction:
        EXPECT_TRUE(clients[4].SendAll("x"));
        return;
      case From::kPeerShutdown:
      case From::kPeerShutdownAction:
        clients[4].ShutdownWrite();
        return;
      case From::kClose:
        clients[4].Close();
        return;
      case From::kTick:
        go_ = true;
        return;
      case From::kTask:
        EXPECT_TRUE(server.engine()
                        .reactor(1)
                        .Post([&] { StopNow(server.engine()); })
                        .ok());
        return;
      case From::kOtherThread:
        std::thread([&] { StopNow(server.engine()); }).join();
        return;
    }
  }

  static constexpr int kConnections = 10;
  LifeHandler handler_;
  std::atomic<int> opened_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> go_{false};
};

TEST_P(StopFrom, B74_ReturnsAndEndsTheRun) {
  const size_t fds_before = CountOpenFds();
  SetUpHandler();
  Options options = TestOptions(3);
  options.tick = milliseconds(5);
  {
    TestServer server(handler_, {kTcp}, options);
    std::vector<Client> clients;
    for (int i = 0; i < kConnections; ++i) {
      clients.push_back(Client::Connect(server.address()));
    }
    ASSERT_TRUE(WaitUntil([&] { return handler_.opened == kConnections; }))
        << handler_.opened << " of " << kConnections << " opened";
    const auto start = std::chrono::steady_clock::now();
    Provoke(server, clients);
    const absl::Status run = server.WaitForRun();
    EXPECT_TRUE(run.ok()) << run.ToString();
    // 1 s on a quiet machine; what matters is that nothing waits for a timeout.
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(9));
    EXPECT_EQ(server.stats().connections, 0u);
    server.Stop();  // harmless
    for (Client& client : clients) {
      if (!client.connected()) continue;
      int error = 0;
      EXPECT_EQ(client.ReadToEnd(&error), "");
    }
  }
  EXPECT_EQ(handler_.closed, kConnections);
  handler_.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, StopFrom,
    ::testing::Values(From::kOpen, From::kTraffic, From::kPeerShutdown,
                      From::kClose, From::kTick, From::kTask, From::kTimer,
                      From::kRefPost, From::kOtherThread, From::kOpenAction,
                      From::kTrafficAction, From::kPeerShutdownAction),
    [](const ::testing::TestParamInfo<From>& from) {
      return std::string(kFromNames[static_cast<int>(from.param)]);
    });

}  // namespace
}  // namespace sluice::test
