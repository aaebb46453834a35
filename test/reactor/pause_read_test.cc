// Connection::PauseRead: counted, noticed by nobody but the reader, released
// from anywhere and at any time.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// How long we watch that something does not happen.
constexpr milliseconds kWhile{60};

class PauseReadTest : public ::testing::TestWithParam<MatrixParam> {
 protected:
  // The first connection opens with `pauses` pauses; all do with pause_all_.
  void Start(int pauses, Options options) {
    handler_.on_open = [this, pauses](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (pause_all_ || first_++ == 0) {
        for (int i = 0; i < pauses; ++i) pauses_.push_back(c.PauseRead());
      }
      return Action::kNone;
    };
    handler_.on_traffic = [this](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex_);
      read_ += c.Next();
      return Action::kNone;
    };
    handler_.on_close = [this](Connection&, const CloseInfo& info) {
      reason_ = info.reason;
    };
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{GetParam().Listen()}, options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    client_ = Client::Connect(server_->address());
    ref_ = handler_.WaitFor(0);
    // Of the loop it is on.
    const absl::Status posted =
        ref_.Post([this](Connection& c) { loop_ = &c.reactor(); });
    ASSERT_TRUE(posted.ok());
    ASSERT_TRUE(WaitUntil([this] { return loop_ != nullptr; }));
    TurnOver(loop());
  }
  void Start(int pauses) { Start(pauses, GetParam().MakeOptions()); }
  ~PauseReadTest() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }

  Reactor& loop() { return *loop_.load(); }
  std::string read() {
    std::lock_guard<std::mutex> lock(mutex_);
    return read_;
  }
  // Runs on the connection, and waits for it.
  void OnConnection(std::function<void(Connection&)> function) {
    RunOn(loop(), [&] {
      Connection* c = loop().Find(ref_);
      ASSERT_NE(c, nullptr);
      function(*c);
    });
  }
  void ExpectNothingRead(const std::string& so_far) {
    std::this_thread::sleep_for(kWhile);
    TurnOver(loop());
    EXPECT_EQ(read(), so_far);
  }

  RefHandler handler_;
  std::unique_ptr<TestServer> server_;
  Client client_;
  ConnectionRef ref_;
  std::atomic<Reactor*> loop_{nullptr};
  std::vector<ReadPause> pauses_;  // the loop's, once it is known
  std::atomic<bool> pause_all_{false};
  int first_ = 0;
  std::mutex mutex_;
  std::string read_;
  std::atomic<CloseReason> reason_{CloseReason::kNone};
};

TEST_P(PauseReadTest, ReadingResumesWhenTheLastPauseIsGone) {
  Start(3);
  ASSERT_TRUE(client_.SendAll("hello"));
  ExpectNothingRead("");
  for (int i = 0; i < 2; ++i) {
    OnConnection([&](Connection&) { pauses_.pop_back(); });
    ExpectNothingRead("");
  }
  OnConnection([&](Connection&) { pauses_.pop_back(); });
  // Without another byte from the peer.
  ASSERT_TRUE(WaitUntil([&] { return read() == "hello"; })) << read();
  ASSERT_TRUE(client_.SendAll("again"));
  ASSERT_TRUE(WaitUntil([&] { return read() == "helloagain"; })) << read();
}

TEST_P(PauseReadTest, ReleasedTwiceAndMovedItCountsOnce) {
  Start(2);
  ASSERT_TRUE(client_.SendAll("x"));
  OnConnection([&](Connection&) {
    pauses_[0].Release();
    pauses_[0].Release();
    ReadPause moved = std::move(pauses_[0]);
    moved.Release();
    ReadPause second = std::move(pauses_[1]);
    pauses_[1] = std::move(second);
    second.Release();
    ReadPause none;
    none.Release();
  });
  ExpectNothingRead("");
  OnConnection([&](Connection& c) {
    // A pause that replaces another lets that one go.
    pauses_[1] = c.PauseRead();
  });
  ExpectNothingRead("");
  OnConnection([&](Connection&) { pauses_.clear(); });
  ASSERT_TRUE(WaitUntil([&] { return read() == "x"; }));
}

// In the middle of a stream, from inside OnTraffic: nothing is lost and nothing
// overtakes, however much is there.
TEST_P(PauseReadTest, PausedAndReleasedInTheMiddleOfAStream) {
  Options options = GetParam().MakeOptions();
  options.read_buffer = 4096;
  options.edge_chunk = 3 * 4096;
  Start(0, options);
  constexpr size_t kBytes = 400'000;
  RunOn(loop(), [this] {
    handler_.on_traffic = [this](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex_);
      read_ += c.Next();
      pauses_.clear();
      pauses_.push_back(c.PauseRead());
      c.reactor().RunAfter(milliseconds(0), [this] { pauses_.clear(); });
      return Action::kNone;
    };
  });
  std::string stream(kBytes, '\0');
  for (size_t i = 0; i < kBytes; ++i) {
    stream[i] = static_cast<char>('a' + (i * 31 >> 3) % 23);
  }
  ASSERT_TRUE(client_.SendAll(stream));
  ASSERT_TRUE(WaitUntil([&] { return read().size() >= kBytes; }))
      << read().size();
  EXPECT_TRUE(read() == stream);
  RunOn(loop(), [this] { pauses_.clear(); });
}

TEST_P(PauseReadTest, WhatHasArrivedInTheCallbackCanStillBeRead) {
  Start(0);
  std::string seen;
  Event paused;
  RunOn(loop(), [&] {
    handler_.on_traffic = [&, this](Connection& c) {
      if (seen.empty()) {
        pauses_.push_back(c.PauseRead());
        EXPECT_EQ(c.inbound(), 6u);
        seen += c.Next(2);
        seen += c.Peek();
        paused.Set();
      } else {
        seen += c.Next();
      }
      return Action::kNone;
    };
  });
  ASSERT_TRUE(client_.SendAll("abcdef"));
  ASSERT_TRUE(paused.Wait());
  ASSERT_TRUE(client_.SendAll("ghi"));
  std::this_thread::sleep_for(kWhile);
  OnConnection([&](Connection& c) {
    EXPECT_EQ(seen, "abcdef");
    // What was left is there all the while.
    EXPECT_EQ(c.Peek(), "cdef");
    seen = "|";
    pauses_.clear();
  });
  ASSERT_TRUE(WaitUntil([&] {
    std::string now;
    RunOn(loop(), [&] { now = seen; });
    return now == "|cdefghi";
  }));
}

// What is left unread is told again when the last pause goes, and once.
TEST_P(PauseReadTest, InputLeftUnreadIsToldAgain) {
  Start(0);
  std::vector<std::string> seen;
  RunOn(loop(), [&] {
    handler_.on_traffic = [&, this](Connection& c) {
      seen.emplace_back(c.Peek());
      if (seen.size() == 1) {
        pauses_.push_back(c.PauseRead());
        pauses_.push_back(c.PauseRead());
        EXPECT_FALSE(c.reading());
      } else {
        EXPECT_TRUE(c.reading());
        c.Discard();
      }
      return Action::kNone;
    };
  });
  ASSERT_TRUE(client_.SendAll("abc"));
  ASSERT_TRUE(WaitUntil([&] { return handler_.traffic == 1; }));
  OnConnection([&](Connection&) { pauses_.pop_back(); });
  TurnOver(loop());
  EXPECT_EQ(handler_.traffic, 1) << "one pause holds";
  OnConnection([&](Connection&) { pauses_.clear(); });
  ASSERT_TRUE(WaitUntil([&] { return handler_.traffic == 2; }));
  TurnOver(loop());
  RunOn(loop(), [&] {
    EXPECT_EQ(seen, (std::vector<std::string>{"abc", "abc"}));
  });
  // Nothing was left: nothing is told.
  OnConnection([&](Connection& c) { pauses_.push_back(c.PauseRead()); });
  OnConnection([&](Connection&) { pauses_.clear(); });
  TurnOver(loop());
  EXPECT_EQ(handler_.traffic, 2);
}

// From a thread that is not the loop's.
TEST_P(PauseReadTest, AnybodyMayPauseByRef) {
  Start(0);
  ReadPause pause(ref_);
  TurnOver(loop());
  ASSERT_TRUE(client_.SendAll("hello"));
  ExpectNothingRead("");
  pause.Release();
  ASSERT_TRUE(WaitUntil([&] { return read() == "hello"; })) << read();
  ReadPause nobody{ConnectionRef()};
  nobody.Release();
}

TEST_P(PauseReadTest, WritingGoesOn) {
  Start(1);
  OnConnection([](Connection& c) { EXPECT_TRUE(c.Write("hello").ok()); });
  EXPECT_EQ(client_.ReadExactly(5), "hello");
  // A lot, so that EPOLLOUT is needed beside the pause.
  const std::string big(size_t{8} << 20, 'b');
  OnConnection([&](Connection& c) { EXPECT_TRUE(c.Write(big).ok()); });
  EXPECT_TRUE(client_.ReadExactly(big.size()) == big);
  ASSERT_TRUE(client_.SendAll("x"));
  ExpectNothingRead("");
  OnConnection([&](Connection&) { pauses_.clear(); });
  EXPECT_TRUE(WaitUntil([&] { return read() == "x"; }));
}

TEST_P(PauseReadTest, AWakeCallsOnTrafficAllTheSame) {
  Start(1);
  const int before = handler_.traffic;
  EXPECT_TRUE(ref_.Wake().ok());
  EXPECT_TRUE(WaitUntil([&] { return handler_.traffic == before + 1; }));
  OnConnection([&](Connection&) { pauses_.clear(); });
}

TEST_P(PauseReadTest, AFinWithNothingBeforeItIsNoticed) {
  Start(1);
  ASSERT_TRUE(client_.ShutdownWrite());
  EXPECT_TRUE(WaitUntil([&] { return handler_.peer_shutdowns == 1; }));
  EXPECT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(reason_.load(), CloseReason::kPeerClosed);
  EXPECT_EQ(client_.ReadToEof(), "");
  RunOn(loop(), [this] { pauses_.clear(); });
}

TEST_P(PauseReadTest, AFinWaitsForTheBytesBeforeIt) {
  Start(1);
  ASSERT_TRUE(client_.SendAll("last words"));
  ASSERT_TRUE(client_.ShutdownWrite());
  ExpectNothingRead("");
  EXPECT_EQ(handler_.peer_shutdowns, 0);
  EXPECT_EQ(handler_.closed, 0);
  OnConnection([&](Connection&) { pauses_.clear(); });
  EXPECT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(read(), "last words");
  EXPECT_EQ(handler_.peer_shutdowns, 1);
  EXPECT_EQ(reason_.load(), CloseReason::kPeerClosed);
}

// Unix sockets have no resets.
// A handler that takes one byte and pauses, again and again: it gets each of
// them, and the FIN behind the last.
TEST_P(PauseReadTest, AFinWaitsForInputThatWasLeftUnread) {
  for (const bool resumed_by_a_task : {true, false}) {
    RefHandler handler;
    std::string order;
    handler.on_traffic = [&](Connection& c) {
      order += c.Next(1);
      auto pause = std::make_shared<ReadPause>(c.PauseRead());
      if (resumed_by_a_task) {
        EXPECT_TRUE(c.reactor().Post([pause] { pause->Release(); }).ok());
      } else {
        c.reactor().RunAfter(milliseconds(5), [pause] { pause->Release(); });
      }
      return Action::kNone;
    };
    handler.on_peer_shutdown = [&](Connection&) {
      order += '.';
      return Action::kClose;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    Reactor& home = [&]() -> Reactor& {
      const ConnectionRef ref = handler.WaitFor(0);
      std::atomic<Reactor*> found{nullptr};
      EXPECT_TRUE(ref.Post([&](Connection& c) { found = &c.reactor(); }).ok());
      EXPECT_TRUE(WaitUntil([&] { return found != nullptr; }));
      return *found;
    }();
    {
      LoopBlock block(home);
      ASSERT_TRUE(client.SendAll("abcde"));
      ASSERT_TRUE(client.ShutdownWrite());
    }
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
    EXPECT_TRUE(server.StopAndDestroy().ok());
    EXPECT_EQ(order, "abcde.");
  }
}

TEST_P(PauseReadTest, AResetIsNoticed) {
  if (GetParam().family == Family::kUnix) GTEST_SKIP();
  Start(1);
  client_.CloseWithReset();
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(reason_.load(), CloseReason::kReset);
}

TEST_P(PauseReadTest, AResetBehindUnreadBytesIsNoticed) {
  if (GetParam().family == Family::kUnix) GTEST_SKIP();
  Start(1);
  ASSERT_TRUE(client_.SendAll("unread"));
  ExpectNothingRead("");
  client_.CloseWithReset();
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(reason_.load(), CloseReason::kReset);
  EXPECT_EQ(read(), "");
}

TEST_P(PauseReadTest, ReleasedFromAnotherThread) {
  Start(1);
  ASSERT_TRUE(client_.SendAll("hello"));
  ExpectNothingRead("");
  ReadPause pause;
  OnConnection([&](Connection&) {
    pause = std::move(pauses_.back());
    pauses_.clear();
  });
  ExpectNothingRead("");
  std::thread([moved = std::move(pause)]() mutable { moved.Release(); }).join();
  ASSERT_TRUE(WaitUntil([&] { return read() == "hello"; }));
}

// Many threads, each with its share.
TEST_P(PauseReadTest, ReleasedFromManyThreadsAtOnce) {
  Start(8);
  for (int round = 0; round < 20; ++round) {
    std::vector<ReadPause> taken;
    OnConnection([&](Connection& c) {
      while (pauses_.size() < 8) pauses_.push_back(c.PauseRead());
      taken = std::move(pauses_);
      pauses_.clear();
    });
    const std::string before = read();
    ASSERT_TRUE(client_.SendAll("x"));
    std::vector<std::thread> threads;
    for (ReadPause& pause : taken) {
      threads.emplace_back([moved = std::move(pause)] {});
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(WaitUntil([&] { return read() == before + "x"; }));
  }
}

TEST_P(PauseReadTest, ReleasedAfterTheConnectionIsGone) {
  Start(2);
  std::vector<ReadPause> left;
  OnConnection([&](Connection& c) {
    left = std::move(pauses_);
    pauses_.clear();
    c.Close(CloseMode::kNow);
  });
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  ASSERT_TRUE(server_->WaitForNoConnections());
  // Its place is taken by another one, which has no pause.
  Client second = Client::Connect(server_->address());
  (void)handler_.WaitFor(1);
  left.pop_back();
  RunOn(loop(), [&] { left.pop_back(); });
  ASSERT_TRUE(second.SendAll("second"));
  ASSERT_TRUE(WaitUntil([&] { return read() == "second"; }));
}

TEST_P(PauseReadTest, AnOldPauseDoesNotReleaseANewConnectionsOwn) {
  Start(1);
  pause_all_ = true;
  OnConnection([](Connection& c) { c.Close(CloseMode::kNow); });
  ASSERT_TRUE(server_->WaitForNoConnections());
  std::vector<ReadPause> old;
  RunOn(loop(), [&] { old = std::move(pauses_); });
  // On every loop, so on the old one's as well, in its place.
  std::vector<Client> clients;
  for (int i = 0; i < GetParam().reactors; ++i) {
    clients.push_back(Client::Connect(server_->address()));
    (void)handler_.WaitFor(static_cast<size_t>(i) + 1);
    ASSERT_TRUE(clients.back().SendAll("x"));
  }
  old.clear();
  ExpectNothingRead("");
  for (int i = 0; i < GetParam().reactors; ++i) {
    TurnOver(server_->engine().reactor(i));
  }
  EXPECT_EQ(read(), "");
  EXPECT_TRUE(server_->StopAndDestroy().ok());
}

TEST_P(PauseReadTest, ReleasedAfterTheEngineIsGone) {
  Start(2);
  std::vector<ReadPause> left;
  OnConnection([&](Connection&) {
    left = std::move(pauses_);
    pauses_.clear();
  });
  EXPECT_TRUE(server_->StopAndDestroy().ok());
  left[0].Release();
  left.clear();
}

// Between Close(kFlush) and the end the engine reads for itself.
TEST_P(PauseReadTest, APausedConnectionCanBeClosed) {
  Start(1);
  OnConnection([](Connection& c) {
    EXPECT_TRUE(c.Write("bye").ok());
    c.Close(CloseMode::kFlush);
  });
  ASSERT_TRUE(client_.SendAll("too late"));
  EXPECT_EQ(client_.ReadToEof(), "bye");
  client_.Close();
  EXPECT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(reason_.load(), CloseReason::kLocal);
  EXPECT_EQ(read(), "");
  RunOn(loop(), [this] { pauses_.clear(); });
}

INSTANTIATE_TEST_SUITE_P(
    Some, PauseReadTest,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp4, 1, AcceptMode::kHandOff, Trigger::kEdge},
        MatrixParam{Family::kTcp6, 2, AcceptMode::kHandOff, Trigger::kEdge},
        MatrixParam{Family::kUnix, 2}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
