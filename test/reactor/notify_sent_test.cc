// Connection::NotifySent: what became of what was written, told exactly once.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

// Far more than the small buffers of the two sockets hold.
constexpr size_t kMuch = size_t{1} << 20;

class NotifySentTest : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void SetUp() override {
    handler_.on_close = [this](Connection&, const CloseInfo&) {
      log_ += "closed ";
    };
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{SmallBuffers(GetParam().Listen())},
        GetParam().MakeOptions());
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    client_ = Client::Connect(server_->address(), SmallReceiver());
    ref_ = handler_.WaitFor(0);
    home_ = &HomeOf(*server_, ref_);
  }
  ~NotifySentTest() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }

  // Notes it under `name`, in log_ and in last_.
  SentCallback Note(const std::string& name) {
    return [this, name](Connection&, const absl::Status& status) {
      log_ += name + (status.ok() ? ":sent " : ":lost ");
      last_ = status;
      ++told_;
    };
  }
  void OnConnection(std::function<void(Connection&)> function) {
    RunOn(*home_, [&] {
      Connection* c = home_->Find(ref_);
      ASSERT_NE(c, nullptr);
      function(*c);
    });
  }
  // The loop's.
  std::string log() {
    std::string log;
    RunOn(*home_, [&] { log = log_; });
    return log;
  }

  RefHandler handler_;
  std::string log_;
  absl::Status last_;
  std::atomic<int> told_{0};
  std::unique_ptr<TestServer> server_;
  Client client_;
  ConnectionRef ref_;
  Reactor* home_ = nullptr;
};

TEST_P(NotifySentTest, NotInsideTheCallbackThatWrote) {
  RunOn(*home_, [&] {
    handler_.on_traffic = [&](Connection& c) {
      EXPECT_TRUE(c.Write(c.Next()).ok());
      c.NotifySent(Note("echo"));
      log_ += "wrote ";
      return Action::kNone;
    };
  });
  EXPECT_TRUE(client_.Echo("hello"));
  ASSERT_TRUE(WaitUntil([&] { return told_ == 1; }));
  EXPECT_EQ(log(), "wrote echo:sent ");
}

TEST_P(NotifySentTest, WithNothingToSendSoon) {
  OnConnection([&](Connection& c) {
    c.NotifySent(Note("nothing"));
    EXPECT_EQ(log_, "");
  });
  ASSERT_TRUE(WaitUntil([&] { return told_ == 1; }));
  EXPECT_EQ(log(), "nothing:sent ");
}

TEST_P(NotifySentTest, WhenTheKernelHasTakenItInOrder) {
  const std::string much = Pattern(kMuch);
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write(much).ok());
    c.NotifySent(Note("first"));
    EXPECT_TRUE(c.Write(much).ok());
    c.NotifySent(Note("second"));
    c.NotifySent(Note("second too"));
  });
  TurnOver(*home_);
  EXPECT_EQ(log(), "");
  EXPECT_TRUE(SameBytes(client_.ReadExactly(kMuch), much));
  ASSERT_TRUE(WaitUntil([&] { return told_ >= 1; }));
  EXPECT_EQ(log(), "first:sent ");
  EXPECT_TRUE(SameBytes(client_.ReadExactly(kMuch), much));
  ASSERT_TRUE(WaitUntil([&] { return told_ == 3; }));
  EXPECT_EQ(log(), "first:sent second:sent second too:sent ");
}

TEST_P(NotifySentTest, WhatDidNotLeaveBeforeOnClose) {
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write("small").ok());
    c.NotifySent(Note("small"));
  });
  ASSERT_TRUE(WaitUntil([&] { return told_ == 1; }));
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write(Pattern(kMuch)).ok());
    c.NotifySent(Note("much"));
  });
  TurnOver(*home_);
  client_.CloseWithReset();
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(log(), "small:sent much:lost closed ");
  EXPECT_EQ(last_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(last_.message()),
              HasSubstr(std::string(CloseReasonName(CloseReason::kReset))));
}

// Closed by the handler, with the bytes still there, or flushing them.
TEST_P(NotifySentTest, CloseNowLosesAndFlushDoesNot) {
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write(Pattern(kMuch)).ok());
    c.NotifySent(Note("dropped"));
    c.Close(CloseMode::kNow);
  });
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(log(), "dropped:lost closed ");

  Client second = Client::Connect(server_->address(), SmallReceiver());
  ref_ = handler_.WaitFor(1);
  home_ = &HomeOf(*server_, ref_);
  OnConnection([&](Connection& c) {
    log_.clear();
    EXPECT_TRUE(c.Write(Pattern(kMuch)).ok());
    c.Close(CloseMode::kFlush);
    c.NotifySent(Note("flushed"));
  });
  EXPECT_EQ(second.ReadToEof().size(), kMuch);
  second.Close();
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 2; }));
  EXPECT_EQ(log(), "flushed:sent closed ");
}

TEST_P(NotifySentTest, WhenTheEngineStops) {
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write(Pattern(kMuch)).ok());
    c.NotifySent(Note("first"));
    c.NotifySent(Note("second"));
  });
  EXPECT_TRUE(server_->StopAndDestroy().ok());
  EXPECT_EQ(log_, "first:lost second:lost closed ");
}

TEST_P(NotifySentTest, InOnCloseAtOnce) {
  RunOn(*home_, [&] {
    handler_.on_close = [this](Connection& c, const CloseInfo&) {
      c.NotifySent(Note("late"));
      log_ += "closed ";
    };
  });
  client_.Close();
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(log(), "late:lost closed ");
}

// An exception in one ends the connection, and the others are told.
TEST_P(NotifySentTest, OneThatThrows) {
  OnConnection([&](Connection& c) {
    EXPECT_TRUE(c.Write("x").ok());
    c.NotifySent([](Connection&, const absl::Status&) { throw 1; });
    c.NotifySent(Note("second"));
  });
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(log(), "second:sent closed ");
  EXPECT_EQ(client_.ReadToEof(), "x");
}

// Each piece writes the next one: that neither nests nor keeps the loop from
// others.
TEST_P(NotifySentTest, AStreamOfItsOwnMaking) {
  constexpr int kPieces = 20'000;
  const auto left = std::make_shared<int>(kPieces);
  struct Streamer {
    static void Next(Connection& c, std::shared_ptr<int> left) {
      if (*left == 0) return;
      --*left;
      EXPECT_TRUE(c.Write("piece").ok());
      c.NotifySent([left](Connection& same, const absl::Status& status) {
        if (status.ok()) Next(same, left);
      });
    }
  };
  OnConnection([&](Connection& c) { Streamer::Next(c, left); });
  // A turn is a turn, however much of it there is to tell.
  TurnOver(*home_);
  EXPECT_EQ(client_.ReadExactly(kPieces * 5).size(), size_t{kPieces} * 5);
}

INSTANTIATE_TEST_SUITE_P(Loops, NotifySentTest,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
