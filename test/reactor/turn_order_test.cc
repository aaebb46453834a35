// The order of one turn of a loop, as reactor/reactor.h promises it: events,
// timers, tasks, sends, OnClose, release.
//
// A Unix socket hands bytes and EOF over inside the system call, so a look at
// the client's end says exactly whether the engine has made that call.

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using Log = std::vector<std::string>;

// Bytes that lie in the client's receive queue now.
int Arrived(const Client& client) {
  int bytes = -1;
  EXPECT_EQ(ioctl(client.fd(), FIONREAD, &bytes), 0);
  return bytes;
}

bool SeesEof(const Client& client) {
  pollfd entry = {client.fd(), POLLIN | POLLRDHUP, 0};
  EXPECT_GE(poll(&entry, 1, 0), 0);
  return (entry.revents & (POLLRDHUP | POLLHUP)) != 0;
}

// `count` connections of a single reactor; everything logs on its loop.
class TurnOrder : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void Start(size_t count) {
    handler_.on_open = [this](Connection& c) {
      refs_.push_back(c.ref());
      return Action::kNone;
    };
    Options options = GetParam().MakeOptions();
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{UniqueUnixAddress()}, options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    for (size_t i = 0; i < count; ++i) {
      clients_.push_back(Client::Connect(server_->address()));
      // One at a time: refs_[i] belongs to clients_[i].
      ASSERT_TRUE(WaitUntil(
          [&] { return handler_.opened == static_cast<int>(i) + 1; }));
    }
    TurnOver(reactor());
  }
  ~TurnOrder() override { server_.reset(); }

  Reactor& reactor() { return server_->engine().reactor(0); }
  Connection* Find(size_t index) { return reactor().Find(refs_[index]); }
  bool Is(Connection& c, size_t index) { return c.ref() == refs_[index]; }

  // Sets a timer on the loop and holds the loop until the timer is due;
  // `meanwhile` runs on the test's thread while the loop stands.
  template <typename Timer, typename Meanwhile>
  void HoldWithTimer(Timer timer, Meanwhile meanwhile) {
    auto standing = std::make_shared<Event>();
    auto release = std::make_shared<Event>();
    const absl::Status posted = reactor().Post(
        [this, standing, release, timer = std::move(timer)]() mutable {
          reactor().RunAfter(milliseconds(1), std::move(timer));
          standing->Set();
          EXPECT_TRUE(release->Wait());
        });
    ASSERT_TRUE(posted.ok()) << posted.ToString();
    ASSERT_TRUE(standing->Wait());
    meanwhile();
    const auto due = std::chrono::steady_clock::now() + milliseconds(10);
    EXPECT_TRUE(
        WaitUntil([&] { return std::chrono::steady_clock::now() >= due; }));
    release->Set();
  }

  LambdaHandler handler_;
  std::unique_ptr<TestServer> server_;
  std::vector<Client> clients_;
  std::vector<ConnectionRef> refs_;  // the loop's until it is turned over
  Log log_;                          // the loop's
  Event done_;
};

TEST_P(TurnOrder, EventsTimersTasksSendsCloses) {
  constexpr size_t kActor = 0, kWritten = 1, kClosed = 2;
  int arrived_after_write = -1;
  int arrived_at_close = -1;
  bool eof_at_close = true;
  bool fd_open_at_close = false;
  handler_.on_traffic = [&](Connection& c) {
    log_.push_back("event");
    c.Discard();
    Find(kClosed)->Close(CloseMode::kNow);
    EXPECT_FALSE(Find(kClosed) != nullptr && Find(kClosed)->open());
    return Action::kNone;
  };
  handler_.on_close = [&](Connection& c, const CloseInfo&) {
    if (!Is(c, kClosed)) return;  // those of the end
    log_.push_back("close");
    arrived_at_close = Arrived(clients_[kWritten]);
    eof_at_close = SeesEof(clients_[kClosed]);
    fd_open_at_close = fcntl(c.fd(), F_GETFD) >= 0;
  };
  Start(3);
  HoldWithTimer(
      [&] { log_.push_back("timer"); },
      [&] {
        // Posted before the bytes are sent, and yet after them.
        EXPECT_TRUE(reactor()
                        .Post([&] {
                          log_.push_back("task");
                          EXPECT_TRUE(Find(kWritten)->Write("hello").ok());
                          arrived_after_write = Arrived(clients_[kWritten]);
                          EXPECT_TRUE(reactor()
                                          .Post([&] {
                                            log_.push_back("next");
                                            done_.Set();
                                          })
                                          .ok());
                        })
                        .ok());
        EXPECT_TRUE(clients_[kActor].SendAll("x"));
      });
  ASSERT_TRUE(done_.Wait());
  EXPECT_EQ(log_, (Log{"event", "timer", "task", "close", "next"}));
  EXPECT_EQ(arrived_after_write, 0) << "sent inside the task";
  EXPECT_EQ(arrived_at_close, 5) << "not sent before OnClose";
  EXPECT_FALSE(eof_at_close) << "the descriptor was released before OnClose";
  EXPECT_TRUE(fd_open_at_close);
  EXPECT_EQ(clients_[kWritten].ReadExactly(5), "hello");
  EXPECT_EQ(clients_[kClosed].ReadToEof(), "");
}

TEST_P(TurnOrder, ATaskPostedByATaskWaitsForTheNextTurn) {
  Start(1);
  Event standing;
  Event release;
  std::atomic<int> events_seen{-1};
  ASSERT_TRUE(reactor()
                  .Post([&] {
                    standing.Set();
                    EXPECT_TRUE(release.Wait());
                    EXPECT_TRUE(reactor()
                                    .Post([&] {
                                      events_seen = handler_.traffic.load();
                                      done_.Set();
                                    })
                                    .ok());
                  })
                  .ok());
  ASSERT_TRUE(standing.Wait());
  EXPECT_TRUE(clients_[0].SendAll("x"));
  release.Set();
  ASSERT_TRUE(done_.Wait());
  EXPECT_EQ(events_seen, 1) << "the task ran in the turn that posted it";
}

TEST_P(TurnOrder, ATimerAddedByATimerWaitsForTheNextTurn) {
  Start(1);
  int events_seen = -1;
  HoldWithTimer(
      [&] {
        // Due at once, but the task that is there already goes first.
        reactor().RunAfter(milliseconds(0), [&] {
          log_.push_back("second timer");
          events_seen = handler_.traffic.load();
          done_.Set();
        });
        reactor().RunAfter(milliseconds(-5), [] {});
        log_.push_back("first timer");
      },
      [&] {
        EXPECT_TRUE(reactor().Post([&] { log_.push_back("task"); }).ok());
        EXPECT_TRUE(clients_[0].SendAll("x"));
      });
  ASSERT_TRUE(done_.Wait());
  EXPECT_EQ(log_, (Log{"first timer", "task", "second timer"}));
  EXPECT_EQ(events_seen, 1);
}

TEST_P(TurnOrder, TimersRunByTheirDeadline) {
  Start(0);
  RunOn(reactor(), [&] {
    for (const int ms : {9, 3, 7, 1, 5, 3}) {
      reactor().RunAfter(milliseconds(ms), [&, ms] {
        log_.push_back(std::to_string(ms));
        if (log_.size() == 6) done_.Set();
      });
    }
    // All of them are due when the loop looks again.
    const auto due = std::chrono::steady_clock::now() + milliseconds(20);
    EXPECT_TRUE(
        WaitUntil([&] { return std::chrono::steady_clock::now() >= due; }));
  });
  ASSERT_TRUE(done_.Wait());
  EXPECT_EQ(log_, (Log{"1", "3", "3", "5", "7", "9"}));
}

TEST_P(TurnOrder, TasksOfAThreadKeepTheirOrder) {
  Start(0);
  std::vector<int> order;
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(reactor().Post([&order, i] { order.push_back(i); }).ok());
  }
  RunOn(reactor(), [] {});
  ASSERT_EQ(order.size(), 5000u);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

// A batch is at most 256 events: then the tasks have their turn.
TEST_P(TurnOrder, ABatchIsBounded) {
  constexpr size_t kMany = 600;
  std::atomic<int> events_seen{-1};
  Start(kMany);
  {
    LoopBlock block(reactor());
    for (Client& client : clients_) EXPECT_TRUE(client.SendAll("x"));
    EXPECT_TRUE(
        reactor().Post([&] { events_seen = handler_.traffic.load(); }).ok());
  }
  ASSERT_TRUE(
      WaitUntil([&] { return handler_.traffic == static_cast<int>(kMany); }));
  TurnOver(reactor());
  EXPECT_GE(events_seen, 1);
  EXPECT_LE(events_seen, 256);
  EXPECT_EQ(handler_.traffic, static_cast<int>(kMany));
}

// Small writes of a callback are gathered, and leave when it returns: not
// before, and not only at the end of the turn.
TEST_P(TurnOrder, WritesOfACallbackLeaveWhenItReturns) {
  std::vector<int> inside;
  std::vector<int> after;
  const Client* last = nullptr;
  handler_.on_traffic = [&](Connection& c) {
    if (last != nullptr) after.push_back(Arrived(*last));
    const Client& own = clients_[Is(c, 0) ? 0 : 1];
    c.Discard();
    for (const std::string_view piece : {"a", "bc", "def"}) {
      EXPECT_TRUE(c.Write(piece).ok());
    }
    inside.push_back(Arrived(own));
    last = &own;
    return Action::kNone;
  };
  Start(2);
  {
    LoopBlock block(reactor());
    EXPECT_TRUE(clients_[0].SendAll("x"));
    EXPECT_TRUE(clients_[1].SendAll("x"));
  }
  ASSERT_TRUE(WaitUntil([&] { return handler_.traffic == 2; }));
  TurnOver(reactor());
  EXPECT_EQ(inside, (std::vector<int>{0, 0}));
  EXPECT_EQ(after, (std::vector<int>{6}));
  EXPECT_EQ(clients_[0].ReadExactly(6), "abcdef");
  EXPECT_EQ(clients_[1].ReadExactly(6), "abcdef");
}

// What was marked for closing by an event gets no event of the same batch.
TEST_P(TurnOrder, AnEventOfTheSameBatchForAClosedConnectionIsDropped) {
  handler_.on_traffic = [&](Connection& c) {
    c.Discard();
    Connection* other = Find(Is(c, 0) ? 1 : 0);
    if (other != nullptr) other->Close(CloseMode::kNow);
    return Action::kNone;
  };
  Start(2);
  {
    LoopBlock block(reactor());
    EXPECT_TRUE(clients_[0].SendAll("x"));
    EXPECT_TRUE(clients_[1].SendAll("x"));
  }
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  TurnOver(reactor());
  EXPECT_EQ(handler_.traffic, 1);
}

std::vector<MatrixParam> OneReactor() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.family == Family::kUnix && param.reactors == 1 &&
        param.accept == AcceptMode::kHandOff &&
        // The loop looks at the clients' descriptors.
        param.fd_tables == FdTables::kShared) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(All, TurnOrder, ::testing::ValuesIn(OneReactor()),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
