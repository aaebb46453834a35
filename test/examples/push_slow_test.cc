// Subscribers of push that do not read, under each policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "test/examples/push_fixture.h"
#include "test/support/wait.h"

namespace sluice::push {
namespace {

using testing::HasSubstr;

// A Unix socket holds a fixed amount for a reader; TCP's buffers would grow.
// So few of these messages are too many for it.
constexpr int kMost = 2'000;
std::string Message(int number) {
  return absl::StrFormat("%06d ", number) + std::string(4'000, 'm');
}

class SlowReader : public testing::Test {
 protected:
  void Start(const std::string& policy) {
    push_.emplace(std::vector<std::string>{"--when_slow=" + policy,
                                           "--max_backlog=20000"},
                  test::UniqueUnixAddress());
    control_.emplace(push_->Control());
    reader_.emplace(push_->Connect());
    EXPECT_EQ(reader_->Ask("SUB a"), "OK SUB a");
  }

  // Until the counter moves. How many were published.
  int PublishUntil(const std::string& counter) {
    for (int i = 0; i < kMost; ++i) {
      EXPECT_THAT(control_->Ask("PUB a " + Message(i)), HasSubstr("OK PUB a "));
      if (CountIn(Stats(), counter) > 0) return i + 1;
    }
    ADD_FAILURE() << counter << " is 0 after " << kMost << " messages";
    return kMost;
  }
  std::string Stats() { return control_->Ask("STATS a"); }
  // Once nothing is under way any more.
  std::string LastStats() {
    std::string stats;
    EXPECT_TRUE(test::WaitUntil([&] {
      stats = Stats();
      return CountIn(stats, "pending") == 0;
    }));
    return stats;
  }

  std::optional<PushProgram> push_;
  std::optional<LineClient> control_;
  std::optional<LineClient> reader_;
};

TEST_F(SlowReader, Skip) {
  Start("skip");
  const int published = PublishUntil("skipped");
  const std::string stats = LastStats();
  const auto delivered = static_cast<int>(CountIn(stats, "delivered"));
  EXPECT_EQ(delivered + static_cast<int>(CountIn(stats, "skipped")), published);
  // What it has got is the beginning, whole; then it is served again.
  for (int i = 0; i < delivered; ++i) {
    ASSERT_EQ(reader_->Hear(), "MSG a " + Message(i));
  }
  EXPECT_EQ(control_->Ask("PUB a again"), "OK PUB a 1");
  EXPECT_EQ(reader_->Hear(), "MSG a again");
}

TEST_F(SlowReader, Close) {
  Start("close");
  PublishUntil("closed");
  int error = 0;
  reader_->client().ReadToEnd(&error);
  EXPECT_TRUE(
      test::WaitUntil([&] { return CountIn(Stats(), "subscribers") == 0; }));
  EXPECT_EQ(control_->Ask("PUB a x"), "OK PUB a 0");
  EXPECT_EQ(CountIn(LastStats(), "closed"), 1u);
  push_->ExpectOrderlyEnd(SIGTERM, "slow consumer");
}

TEST_F(SlowReader, Latest) {
  Start("latest");
  // Far more than fits. Who waits for the latest has not skipped one yet, as
  // far as push knows: it counts them when the reader reads.
  constexpr int kPublished = 300;
  for (int i = 0; i < kPublished; ++i) {
    EXPECT_EQ(control_->Ask("PUB a " + Message(i)), "OK PUB a 1");
  }
  EXPECT_EQ(control_->Ask("PUB a newest"), "OK PUB a 1");
  int next = 0;
  int heard = 0;
  for (;;) {
    const std::string line = reader_->Hear();
    if (line == "MSG a newest") break;
    const int number = std::stoi(line.substr(sizeof("MSG a ") - 1));
    ASSERT_GE(number, next);
    ASSERT_EQ(line, "MSG a " + Message(number));
    next = number + 1;
    ++heard;
  }
  EXPECT_LT(heard, kPublished);
  const std::string stats = LastStats();
  EXPECT_EQ(CountIn(stats, "delivered") + CountIn(stats, "skipped"),
            kPublished + 1u);
  EXPECT_EQ(CountIn(stats, "delivered"), static_cast<uint64_t>(heard) + 1);
}

// A reader that does not read delays nobody.
TEST_F(SlowReader, LeavesTheOthersAlone) {
  Start("skip");
  LineClient other = push_->Connect();
  EXPECT_EQ(other.Ask("SUB a"), "OK SUB a");
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(control_->Ask("PUB a " + Message(i)), "OK PUB a 2");
    ASSERT_EQ(other.Hear(), "MSG a " + Message(i));
  }
  EXPECT_GT(CountIn(LastStats(), "skipped"), 0u);
}

// Who asks and does not read the answers is not read either: push holds a
// bounded amount for it, and answers everything in the end.
TEST_F(SlowReader, OfAnswersIsNotReadUntilItReads) {
  Start("skip");
  // Far more than the kernel and push would hold of the answers.
  constexpr int kQuestions = 100'000;
  std::thread asks([&] {
    std::string questions;
    for (int i = 0; i < 100; ++i) questions += "STATS a\n";
    for (int i = 0; i < kQuestions / 100; ++i) {
      EXPECT_TRUE(reader_->client().SendAll(questions));
    }
  });
  EXPECT_EQ(control_->Ask("PING"), "PONG");
  const std::string answer =
      "OK STATS a subscribers=1 published=0 delivered=0 skipped=0 dropped=0 "
      "closed=0 pending=0\n";
  for (int i = 0; i < kQuestions / 100; ++i) {
    std::string expected;
    for (int j = 0; j < 100; ++j) expected += answer;
    ASSERT_EQ(reader_->client().ReadExactly(expected.size()), expected);
  }
  asks.join();
}

}  // namespace
}  // namespace sluice::push
