// Every callback closes its own connection, another one, the listener and the
// engine, with every CloseMode. Nothing dies inside its own callback.

#include <errno.h>

#include <chrono>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_block.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

enum class Place {
  kOpen,
  kTraffic,
  kPeerShutdown,
  kClose,
  kTick,
  kTask,
  kTimer,
  kRefPost
};
constexpr const char* kPlaceNames[] = {"Open",  "Traffic", "PeerShutdown",
                                       "Close", "Tick",    "Task",
                                       "Timer", "RefPost"};
enum class Target { kSelf, kPeer, kListener, kDrain, kEngine };
constexpr const char* kTargetNames[] = {"Self", "Peer", "Listener", "Drain",
                                        "Engine"};
constexpr const char* kModeNames[] = {"Flush", "Now", "Reset"};

struct Param {
  Place place;
  Target target;
  CloseMode mode;
  int reactors;  // with 2 the connections live on different ones
  Trigger trigger;
};

void PrintTo(const Param& param, std::ostream* out) {
  *out << kPlaceNames[static_cast<int>(param.place)] << "Closes"
       << kTargetNames[static_cast<int>(param.target)]
       << kModeNames[static_cast<int>(param.mode)] << "_" << param.reactors
       << (param.trigger == Trigger::kEdge ? "edge" : "level");
}

std::vector<Param> AllParams() {
  std::vector<Param> all;
  for (int place = 0; place < 8; ++place) {
    for (int target = 0; target < 5; ++target) {
      for (int mode = 0; mode < 3; ++mode) {
        // Only connections are closed with a mode.
        if (target >= 2 && mode > 0) continue;
        for (const int reactors : {1, 2}) {
          for (const Trigger trigger : {Trigger::kLevel, Trigger::kEdge}) {
            all.push_back({static_cast<Place>(place),
                           static_cast<Target>(target),
                           static_cast<CloseMode>(mode), reactors, trigger});
          }
        }
      }
    }
  }
  return all;
}

// Callbacks of connections that the calling thread is inside of.
thread_local int callback_depth = 0;
struct Inside {
  Inside() { ++callback_depth; }
  ~Inside() { --callback_depth; }
};

// Two connections: the peer, opened first, and the actor.
class CloseEverywhere : public ::testing::TestWithParam<Param> {
 protected:
  // What the test is about; the first call does it.
  void Act(Reactor& reactor) {
    if (acted_.exchange(true)) return;
    switch (GetParam().target) {
      case Target::kSelf:
        CloseOne(reactor, actor_);
        break;
      case Target::kPeer:
        CloseOne(reactor, peer_);
        break;
      case Target::kListener:
        reactor.engine().CloseListener(0);
        break;
      case Target::kDrain:
        reactor.engine().Drain(std::chrono::minutes(10));
        break;
      case Target::kEngine:
        reactor.engine().Stop();
        break;
    }
  }

  void CloseOne(Reactor& reactor, const ConnectionRef& ref) {
    if (Connection* c = reactor.Find(ref)) {
      c->Close(GetParam().mode);
      c->Close(GetParam().mode);
      EXPECT_FALSE(c->open());
      EXPECT_EQ(c->Write("too late").code(),
                absl::StatusCode::kFailedPrecondition);
    } else {
      const absl::Status closed = ref.Close(GetParam().mode);
      EXPECT_TRUE(closed.ok() || GetParam().place == Place::kClose)
          << closed.ToString();
    }
  }

  struct Role {
    bool actor;
    int closes = 0;
  };
  static bool IsActor(Connection& c) { return c.Get<Role>().actor; }

  void SetUpHandler() {
    handler_.on_open = [this](Connection& c) {
      Inside inside;
      if (ready_ == 2) {
        c.Emplace<Role>(Role{false});
        return Action::kNone;
      }
      const bool actor = ready_ == 1;
      c.Emplace<Role>(Role{actor});
      (actor ? actor_ : peer_) = c.ref();
      if (actor && GetParam().place == Place::kOpen) Act(c.reactor());
      ++ready_;
      return Action::kNone;
    };
    handler_.on_traffic = [this](Connection& c) {
      Inside inside;
      if (GetParam().place == Place::kTraffic && !acted_ && IsActor(c)) {
        c.Discard();
        Act(c.reactor());
        return Action::kNone;
      }
      return EchoTraffic(c);
    };
    handler_.on_peer_shutdown = [this](Connection& c) {
      Inside inside;
      if (GetParam().place == Place::kPeerShutdown && IsActor(c)) {
        Act(c.reactor());
      }
      return Action::kClose;
    };
    handler_.on_close = [this](Connection& c, const CloseInfo& info) {
      EXPECT_EQ(callback_depth, 0) << "OnClose inside another callback";
      Inside inside;
      EXPECT_EQ(++c.Get<Role>().closes, 1) << "a second OnClose";
      if (IsActor(c)) {
        actor_reason_ = info.reason;
        if (GetParam().place == Place::kClose) Act(c.reactor());
      } else {
        peer_reason_ = info.reason;
      }
    };
    handler_.on_tick = [this](Reactor& reactor) {
      Inside inside;
      if (GetParam().place == Place::kTick && go_) Act(reactor);
    };
  }

  void Provoke(TestServer& server) {
    Reactor& reactor = server.engine().reactor(0);
    switch (GetParam().place) {
      case Place::kOpen:
        break;
      case Place::kTraffic:
        EXPECT_TRUE(actor_client_.SendAll("x"));
        break;
      case Place::kPeerShutdown:
        actor_client_.ShutdownWrite();
        break;
      case Place::kClose:
        actor_client_.Close();
        break;
      case Place::kTick:
        go_ = true;
        break;
      case Place::kTask:
        EXPECT_TRUE(reactor.Post([&] { Act(reactor); }).ok());
        break;
      case Place::kTimer:
        EXPECT_TRUE(reactor
                        .Post([&] {
                          reactor.RunAfter(milliseconds(1),
                                           [&] { Act(reactor); });
                        })
                        .ok());
        break;
      case Place::kRefPost:
        EXPECT_TRUE(
            actor_.Post([this](Connection& c) { Act(c.reactor()); }).ok());
        break;
    }
  }

  // The client of the connection that was closed sees the end.
  void ExpectEnd(Client& client) {
    if (!client.connected()) return;
    int error = 0;
    EXPECT_EQ(client.ReadToEnd(&error), "");
    EXPECT_EQ(error, GetParam().mode == CloseMode::kReset ? ECONNRESET : 0);
    client.Close();
  }

  LifeHandler handler_;
  Client peer_client_;
  Client actor_client_;
  // Written before `ready_` says so: whoever sees that may read them.
  ConnectionRef peer_;
  ConnectionRef actor_;
  std::atomic<int> ready_{0};
  std::atomic<bool> acted_{false};
  std::atomic<bool> go_{false};
  std::atomic<CloseReason> actor_reason_{CloseReason::kNone};
  std::atomic<CloseReason> peer_reason_{CloseReason::kNone};
};

TEST_P(CloseEverywhere, EndsOnceAndCleanly) {
  const Param& param = GetParam();
  const size_t fds_before = CountOpenFds();
  SetUpHandler();
  Options options = TestOptions(param.reactors);
  options.trigger = param.trigger;
  options.tick = milliseconds(2);
  {
    TestServer server(handler_, {"tcp://127.0.0.1:0"}, options);
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    const Address address = server.address();
    peer_client_ = Client::Connect(address);
    ASSERT_TRUE(WaitUntil([&] { return ready_ == 1; }));
    actor_client_ = Client::Connect(address);
    ASSERT_TRUE(WaitUntil([&] { return ready_ == 2; }));
    Provoke(server);
    ASSERT_TRUE(WaitUntil([&] { return acted_.load(); }));

    switch (param.target) {
      case Target::kSelf:
        ExpectEnd(actor_client_);
        ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
        if (param.place != Place::kClose) {
          EXPECT_EQ(actor_reason_.load(), CloseReason::kLocal);
        }
        EXPECT_TRUE(peer_client_.Echo("the other one goes on"));
        break;
      case Target::kPeer:
        ExpectEnd(peer_client_);
        ASSERT_TRUE(
            WaitUntil([&] { return peer_reason_ != CloseReason::kNone; }));
        EXPECT_EQ(peer_reason_.load(), CloseReason::kLocal);
        if (param.place != Place::kPeerShutdown &&
            param.place != Place::kClose) {
          EXPECT_TRUE(actor_client_.Echo("the other one goes on"));
        }
        break;
      case Target::kListener:
        // Those who come until it is closed are of no interest.
        EXPECT_TRUE(WaitUntil([&] {
          int error = 0;
          (void)Client::TryConnect(address, &error);
          return error == ECONNREFUSED;
        }));
        EXPECT_TRUE(peer_client_.Echo("the other one goes on"));
        break;
      case Target::kDrain:
        ASSERT_TRUE(WaitUntil([&] { return handler_.drains == 1; }));
        EXPECT_TRUE(peer_client_.Echo("the other one goes on"));
        peer_client_.Close();
        actor_client_.Close();
        EXPECT_TRUE(server.WaitForRun().ok());
        break;
      case Target::kEngine:
        EXPECT_TRUE(server.WaitForRun().ok());
        break;
    }
    EXPECT_TRUE(server.StopAndDestroy().ok());
    peer_client_.Close();
    actor_client_.Close();
  }
  EXPECT_GE(handler_.opened, 2);
  handler_.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

INSTANTIATE_TEST_SUITE_P(All, CloseEverywhere, ::testing::ValuesIn(AllParams()),
                         [](const ::testing::TestParamInfo<Param>& param) {
                           std::ostringstream name;
                           PrintTo(param.param, &name);
                           return name.str();
                         });

}  // namespace
}  // namespace sluice::test
