// libevent inside our loop: its timers, descriptors, signals and events made
// active by hand work, and the loop does not spin because of them.
#include "reactor/internal/embedded_base.h"

#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using internal::EmbeddedBase;
using internal::UniqueFd;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// An event of libevent's that calls a function.
class LibEvent {
 public:
  using Function = std::function<void(short what)>;
  LibEvent(event_base* base, int fd, short what, Function function)
      : function_(std::move(function)),
        event_(event_new(base, fd, what, Call, this)) {
    EXPECT_NE(event_, nullptr);
  }
  ~LibEvent() { event_free(event_); }
  LibEvent(const LibEvent&) = delete;
  LibEvent& operator=(const LibEvent&) = delete;

  void Add() { EXPECT_EQ(event_add(event_, nullptr), 0); }
  void AddFor(std::chrono::microseconds time) {
    timeval wait;
    wait.tv_sec = time.count() / 1'000'000;
    wait.tv_usec = time.count() % 1'000'000;
    EXPECT_EQ(event_add(event_, &wait), 0);
  }
  void Delete() { EXPECT_EQ(event_del(event_), 0); }
  void MakeActive() { event_active(event_, EV_TIMEOUT, 0); }

 private:
  static void Call(evutil_socket_t, short what, void* self) {
    static_cast<LibEvent*>(self)->function_(what);
  }
  Function function_;
  event* event_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    out.Reset(ends[0]);
    in.Reset(ends[1]);
  }
  void Write() const { EXPECT_EQ(write(in.get(), "x", 1), 1); }
  void Read() const {
    char byte;
    EXPECT_EQ(read(out.get(), &byte, 1), 1);
  }
  UniqueFd out;
  UniqueFd in;
};

// --- The unit

class EmbeddedBaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto base = EmbeddedBase::Create();
    ASSERT_TRUE(base.ok()) << base.status().ToString();
    base_ = *std::move(base);
  }
  bool Readable() const {
    pollfd entry = {base_->epoll_fd(), POLLIN, 0};
    EXPECT_GE(poll(&entry, 1, 0), 0);
    return entry.revents & POLLIN;
  }
  std::unique_ptr<EmbeddedBase> base_;
};

TEST_F(EmbeddedBaseTest, EmptyItHasNothing) {
  EXPECT_FALSE(base_->HasEvents());
  EXPECT_FALSE(base_->HasActive());
  EXPECT_EQ(base_->NextTimer(), EmbeddedBase::kNever);
  EXPECT_FALSE(Readable());
  base_->RunPass();
  EXPECT_STREQ(event_base_get_method(base_->base()), "epoll");
}

TEST_F(EmbeddedBaseTest, EachBaseFindsItsOwnSet) {
  auto other = EmbeddedBase::Create();
  ASSERT_TRUE(other.ok());
  EXPECT_NE((*other)->epoll_fd(), base_->epoll_fd());
  const Pipe pipe;
  LibEvent event((*other)->base(), pipe.out.get(), EV_READ, [](short) {});
  event.Add();
  pipe.Write();
  EXPECT_FALSE(Readable());
  pollfd entry = {(*other)->epoll_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1);
}

TEST_F(EmbeddedBaseTest, ADescriptorMakesTheSetReadable) {
  const Pipe pipe;
  int calls = 0;
  LibEvent event(base_->base(), pipe.out.get(), EV_READ | EV_PERSIST,
                 [&](short what) {
                   EXPECT_EQ(what, EV_READ);
                   pipe.Read();
                   ++calls;
                 });
  event.Add();
  EXPECT_TRUE(base_->HasEvents());
  EXPECT_EQ(base_->NextTimer(), EmbeddedBase::kNever);
  EXPECT_FALSE(Readable());
  base_->RunPass();
  EXPECT_EQ(calls, 0);
  pipe.Write();
  EXPECT_TRUE(Readable());
  base_->RunPass();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(Readable());
  event.Delete();
  EXPECT_FALSE(base_->HasEvents());
}

// libevent tells a timer's end in the time of the day, and adds to the clock
// that counts from the start how far apart the two were when it last looked:
// that is right within a tick of the coarse clock, which a busy machine makes
// longer.
TEST_F(EmbeddedBaseTest, NextTimerIsTheEarliest) {
  constexpr int64_t kTick = 1'000'000'000;
  LibEvent late(base_->base(), -1, 0, [](short) {});
  LibEvent early(base_->base(), -1, 0, [](short) {});
  late.AddFor(std::chrono::hours(2));
  constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;
  EXPECT_LE(base_->NextTimer(), 2 * kHour + kTick);
  EXPECT_GT(base_->NextTimer(), kHour);
  early.AddFor(std::chrono::hours(1));
  EXPECT_LE(base_->NextTimer(), kHour + kTick);
  EXPECT_GT(base_->NextTimer(), kHour / 2);
  early.Delete();
  EXPECT_GT(base_->NextTimer(), kHour);
}

// Nanoseconds end after 292 years.
TEST_F(EmbeddedBaseTest, AVeryLongTimerIsFar) {
  constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;
  LibEvent event(base_->base(), -1, 0, [](short) {});
  for (const int years : {30, 291, 293, 1000, 200'000}) {
    event.AddFor(std::chrono::hours(24) * 365 * years);
    EXPECT_GT(base_->NextTimer(), kHour) << years << " years";
  }
}

TEST_F(EmbeddedBaseTest, ADueTimerRuns) {
  int calls = 0;
  LibEvent event(base_->base(), -1, 0, [&](short what) {
    EXPECT_EQ(what, EV_TIMEOUT);
    ++calls;
  });
  event.AddFor(milliseconds(5));
  EXPECT_TRUE(WaitUntil([&] { return base_->NextTimer() == 0; }));
  EXPECT_TRUE(WaitUntil([&] {
    base_->RunPass();
    return calls > 0;
  }));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(base_->NextTimer(), EmbeddedBase::kNever);
}

TEST_F(EmbeddedBaseTest, OneMadeActiveByHandIsActive) {
  int calls = 0;
  LibEvent event(base_->base(), -1, 0, [&](short) { ++calls; });
  event.MakeActive();
  EXPECT_TRUE(base_->HasActive());
  base_->RunPass();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(base_->HasActive());
}

TEST_F(EmbeddedBaseTest, OurOwnEventsAreNoReason) {
  event* ours = evsignal_new(
      base_->base(), SIGUSR2, [](int, short, void*) {}, nullptr);
  ASSERT_EQ(event_add(ours, nullptr), 0);
  EXPECT_TRUE(base_->HasEvents());
  base_->CountAsOurs(1);
  EXPECT_FALSE(base_->HasEvents());
  const Pipe pipe;
  LibEvent theirs(base_->base(), pipe.out.get(), EV_READ, [](short) {});
  theirs.Add();
  EXPECT_TRUE(base_->HasEvents());
  event_free(ours);
}

TEST_F(EmbeddedBaseTest, APassEndsThoughAnEventIsActiveAgain) {
  int calls = 0;
  LibEvent* self = nullptr;
  LibEvent event(base_->base(), -1, 0, [&](short) {
    ++calls;
    ASSERT_LT(calls, 1'000'000) << "the pass has no end";
    self->MakeActive();
  });
  self = &event;
  event.MakeActive();
  base_->RunPass();
  EXPECT_GE(calls, 1);
  EXPECT_TRUE(base_->HasActive());
  const int before = calls;
  base_->RunPass();
  EXPECT_GT(calls, before);
  event.Delete();
  EXPECT_FALSE(base_->HasActive());
}

// It cannot be got out of libevent and leave it whole.
TEST(EmbeddedBaseDeathTest, AnExceptionEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    auto base = EmbeddedBase::Create();
    LibEvent event((*base)->base(), -1, 0, [](short) {
      throw std::runtime_error("thrown by the test");
    });
    event.MakeActive();
    (*base)->RunPass();
  };
  EXPECT_DEATH(run(), "exception left a libevent callback");
}

// --- Inside a running engine

class BaseInEngine : public ::testing::TestWithParam<int> {
 protected:
  struct EchoHandler : LambdaHandler {
    EchoHandler() {
      on_traffic = [this](Connection& c) {
        LibEvent* event = make_active;
        if (event != nullptr && c.reactor().index() == 0) event->MakeActive();
        return EchoTraffic(c);
      };
    }
    std::atomic<LibEvent*> make_active{nullptr};  // reactor 0's
  };
  BaseInEngine()
      : server_(handler_, {"tcp://127.0.0.1:0"}, TestOptions(GetParam())) {}
  // Whatever the test has put there must go on the loop.
  ~BaseInEngine() override {
    RunOn(loop(), [this] { events_.clear(); });
  }
  Reactor& loop() { return server_.engine().reactor(0); }
  // [loop]
  LibEvent& New(int fd, short what, LibEvent::Function function) {
    events_.push_back(std::make_unique<LibEvent>(loop().base(), fd, what,
                                                 std::move(function)));
    return *events_.back();
  }
  void ExpectNoSpin(milliseconds time, uint64_t most_turns) {
    TurnOver(loop());
    const uint64_t turns = server_.stats().turns;
    std::this_thread::sleep_for(time);
    EXPECT_LE(server_.stats().turns - turns, most_turns);
  }

  EchoHandler handler_;
  TestServer server_;
  std::vector<std::unique_ptr<LibEvent>> events_;  // the loop's
};

TEST_P(BaseInEngine, ATimerRunsOnceOnTheLoop) {
  for (const milliseconds time :
       {milliseconds(0), milliseconds(1), milliseconds(30)}) {
    Event ran;
    std::atomic<int> calls{0};
    std::atomic<uint64_t> turns{0};
    RunOn(loop(), [&] {
      const Clock::time_point set = Clock::now();
      const uint64_t before = server_.stats().turns;
      New(-1, 0, [&, set, before, time](short what) {
        EXPECT_TRUE(loop().InLoop());
        EXPECT_EQ(what, EV_TIMEOUT);
        // libevent's clock is the kernel's coarse one: 4 ms (HZ=250).
        EXPECT_GE(Clock::now() - set, time - milliseconds(11));
        turns = server_.stats().turns - before;
        ++calls;
        ran.Set();
      }).AddFor(time);
    });
    ASSERT_TRUE(ran.Wait()) << time.count() << " ms";
    // Its coarse clock may call it not yet due for some turns of 1 ms each.
    EXPECT_LE(turns, 25u) << time.count() << " ms";
    ExpectNoSpin(milliseconds(100), 4);
    EXPECT_EQ(calls, 1);
  }
}

TEST_P(BaseInEngine, APersistentTimerGoesOn) {
  std::atomic<int> calls{0};
  RunOn(loop(), [&] {
    New(-1, EV_PERSIST, [&](short) { ++calls; }).AddFor(milliseconds(10));
  });
  ASSERT_TRUE(WaitUntil([&] { return calls >= 10; }));
  const int before = calls;
  const uint64_t turns = server_.stats().turns;
  ASSERT_TRUE(WaitUntil([&] { return calls >= before + 20; }));
  // A few for each: the coarse clock.
  EXPECT_LE(server_.stats().turns - turns,
            static_cast<uint64_t>(calls - before + 1) * 10);
  // Beside our own timers and traffic.
  Event ours;
  RunOn(loop(), [&] { loop().RunAfter(milliseconds(3), [&] { ours.Set(); }); });
  EXPECT_TRUE(ours.Wait());
  Client client = Client::Connect(server_.address());
  EXPECT_TRUE(client.Echo("hello"));
  RunOn(loop(), [&] { events_.back()->Delete(); });
  const int at_end = calls;
  ExpectNoSpin(milliseconds(50), 4);
  EXPECT_EQ(calls, at_end);
}

TEST_P(BaseInEngine, ALongTimerDoesNotSpin) {
  RunOn(loop(), [&] {
    New(-1, 0, [](short) { FAIL(); }).AddFor(std::chrono::hours(24 * 30));
  });
  ExpectNoSpin(milliseconds(300), 4);
}

TEST_P(BaseInEngine, ADescriptorIsTold) {
  const Pipe pipe;
  std::atomic<int> calls{0};
  RunOn(loop(), [&] {
    New(pipe.out.get(), EV_READ | EV_PERSIST, [&](short what) {
      EXPECT_TRUE(loop().InLoop());
      EXPECT_EQ(what, EV_READ);
      pipe.Read();
      ++calls;
    }).Add();
  });
  ExpectNoSpin(milliseconds(50), 4);
  EXPECT_EQ(calls, 0);
  for (int i = 1; i <= 20; ++i) {
    pipe.Write();
    ASSERT_TRUE(WaitUntil([&] { return calls == i; }));
  }
  ExpectNoSpin(milliseconds(100), 4);
  EXPECT_EQ(calls, 20);
  // Several bytes there, one taken a call: level-triggered.
  {
    LoopBlock block(loop());
    for (int i = 0; i < 5; ++i) pipe.Write();
  }
  EXPECT_TRUE(WaitUntil([&] { return calls == 25; }));
  RunOn(loop(), [&] { events_.clear(); });
  pipe.Write();
  ExpectNoSpin(milliseconds(50), 4);
  EXPECT_EQ(calls, 25);
}

TEST_P(BaseInEngine, ADescriptorWithATimeout) {
  const Pipe pipe;
  std::atomic<int> what_came{0};
  RunOn(loop(), [&] {
    New(pipe.out.get(), EV_READ, [&](short what) {
      what_came = what;
    }).AddFor(milliseconds(10));
  });
  EXPECT_TRUE(WaitUntil([&] { return what_came != 0; }));
  EXPECT_EQ(what_came, EV_TIMEOUT);
  ExpectNoSpin(milliseconds(50), 4);
}

TEST_P(BaseInEngine, OneMadeActiveByHandRuns) {
  std::atomic<int> calls{0};
  LibEvent* event = nullptr;
  RunOn(loop(), [&] {
    event = &New(-1, 0, [&](short) {
      EXPECT_TRUE(loop().InLoop());
      ++calls;
    });
    event->MakeActive();  // by a task
  });
  EXPECT_TRUE(WaitUntil([&] { return calls == 1; }));
  RunOn(loop(), [&] {  // by one of our timers
    loop().RunAfter(milliseconds(1), [&] { event->MakeActive(); });
  });
  EXPECT_TRUE(WaitUntil([&] { return calls == 2; }));
  RunOn(loop(), [&] {  // by one of its own
    New(-1, 0, [&](short) { event->MakeActive(); }).AddFor(milliseconds(1));
  });
  EXPECT_TRUE(WaitUntil([&] { return calls == 3; }));
  ExpectNoSpin(milliseconds(100), 4);
  EXPECT_EQ(calls, 3);
}

TEST_P(BaseInEngine, OneMadeActiveInACallbackOfAConnectionRuns) {
  std::atomic<int> calls{0};
  LibEvent* event = nullptr;
  RunOn(loop(), [&] { event = &New(-1, 0, [&](short) { ++calls; }); });
  // The reactors are taken in turn: one of these is ours.
  std::vector<Client> clients;
  for (int i = 0; i < GetParam(); ++i) {
    clients.push_back(Client::Connect(server_.address()));
  }
  ASSERT_TRUE(WaitUntil([&] { return loop().connections() == 1; }));
  handler_.make_active = event;
  for (Client& client : clients) EXPECT_TRUE(client.Echo("x"));
  EXPECT_TRUE(WaitUntil([&] { return calls == 1; }));
}

TEST_P(BaseInEngine, ASignalIsTold) {
  std::atomic<int> calls{0};
  RunOn(loop(), [&] {
    New(SIGUSR1, EV_SIGNAL | EV_PERSIST, [&](short) { ++calls; }).Add();
  });
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  EXPECT_TRUE(WaitUntil([&] { return calls == 1; }));
  ExpectNoSpin(milliseconds(50), 4);
  RunOn(loop(), [&] { events_.clear(); });
}

// An event that makes itself active for ever leaves the others their turn.
TEST_P(BaseInEngine, OneThatIsAlwaysActiveStarvesNobody) {
  std::atomic<uint64_t> calls{0};
  std::atomic<int> others{0};
  LibEvent* self = nullptr;
  RunOn(loop(), [&] {
    self = &New(-1, 0, [&](short) {
      ++calls;
      self->MakeActive();
    });
    self->MakeActive();
    New(-1, EV_PERSIST, [&](short) { ++others; }).AddFor(milliseconds(2));
  });
  ASSERT_TRUE(WaitUntil([&] { return calls > 100; }));
  Client client = Client::Connect(server_.address());
  EXPECT_TRUE(client.Echo("hello"));
  Event ours;
  RunOn(loop(), [&] { loop().RunAfter(milliseconds(1), [&] { ours.Set(); }); });
  EXPECT_TRUE(ours.Wait());
  EXPECT_TRUE(WaitUntil([&] { return others > 5; }));
  RunOn(loop(), [&] { events_.clear(); });
}

INSTANTIATE_TEST_SUITE_P(Reactors, BaseInEngine, ::testing::Values(1, 2));

}  // namespace
}  // namespace sluice::test
