// The program push, as its clients meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/examples/push_fixture.h"
#include "test/support/wait.h"

namespace sluice::push {
namespace {

using test::ChildProcess;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST(Push, PublishesFromTheControlSocketToEverySubscriber) {
  PushProgram push;
  LineClient control = push.Control();
  std::vector<LineClient> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(push.Connect());
    EXPECT_EQ(readers.back().Ask("SUB news"), "OK SUB news");
  }
  EXPECT_EQ(control.Ask("SUB news"), "OK SUB news");
  EXPECT_EQ(control.Ask("PUB news hello,  world "), "OK PUB news 6");
  EXPECT_EQ(control.Hear(), "MSG news hello,  world ");
  EXPECT_EQ(control.Ask("PUB nobody x"), "OK PUB nobody 0");
  for (LineClient& reader : readers) {
    EXPECT_EQ(reader.Hear(), "MSG news hello,  world ");
    EXPECT_EQ(reader.Ask("PING"), "PONG");
  }
  push.ExpectOrderlyEnd();
  EXPECT_THAT(push.out(), ContainsRegex("\n  news +1 +6 +0 +0 +0\n"));
}

TEST(Push, OnlyTheControlSocketPublishesUnlessAnybodyMay) {
  PushProgram strict;
  LineClient client = strict.Connect();
  EXPECT_EQ(client.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(client.Ask("PUB a x"),
            "ERR PUB \"a\": only the control socket may publish here");
  EXPECT_EQ(client.Ask("PING"), "PONG");  // and no MSG

  ChildProcess open({SLUICE_EXAMPLES_DIR "/push", "--publish_from=any",
                     "--listen=tcp://127.0.0.1:0", "--control="});
  const Address address = Parsed(open.AwaitLine("ready ").substr(6));
  LineClient reader(address);
  LineClient writer(address);
  EXPECT_EQ(reader.Ask("SUB a"), "OK SUB a");
  for (int i = 0; i < 20; ++i) writer.Say(absl::StrCat("PUB a ", i));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(writer.Hear(), "OK PUB a 1");
    EXPECT_EQ(reader.Hear(), absl::StrCat("MSG a ", i));
  }
  open.Signal(SIGINT);
  EXPECT_EQ(open.Wait(), 0) << open.error();
}

TEST(Push, TheControlSocketIsItsOwnersAloneAndIsRemovedAtTheEnd) {
  PushProgram push;
  struct stat info;
  ASSERT_EQ(stat(push.control_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  push.ExpectOrderlyEnd();
  EXPECT_NE(stat(push.control_path().c_str(), &info), 0);
}

TEST(Push, SubscribingTwiceIsOnceAndUnsubscribingEndsIt) {
  PushProgram push;
  LineClient control = push.Control();
  LineClient reader = push.Connect();
  EXPECT_EQ(reader.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(reader.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(reader.Ask("SUB b"), "OK SUB b");
  EXPECT_EQ(control.Ask("PUB a 1"), "OK PUB a 1");
  EXPECT_EQ(reader.Hear(), "MSG a 1");
  EXPECT_EQ(reader.Ask("UNSUB a"), "OK UNSUB a");
  EXPECT_EQ(control.Ask("PUB a 2"), "OK PUB a 0");
  EXPECT_EQ(control.Ask("PUB b 3"), "OK PUB b 1");
  EXPECT_EQ(reader.Hear(), "MSG b 3");
  EXPECT_EQ(reader.Ask("UNSUB a"),
            "ERR UNSUB \"a\": this connection has not subscribed to it");
  EXPECT_EQ(reader.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(control.Ask("PUB a 4"), "OK PUB a 1");
  EXPECT_EQ(reader.Hear(), "MSG a 4");
}

// Leaving takes effect later than the command is read; its answer does too, and
// what was sent behind it waits.
TEST(Push, AnswersKeepTheOrderOfTheCommandsAndNoneIsLostAtTheEnd) {
  PushProgram push;
  std::string commands;
  for (int i = 0; i < 50; ++i) {
    commands += "SUB a\r\nPING\nUNSUB a\nPING\r\nUNSUB a\n";
  }
  commands += "SUB a\nUNSUB a\n";
  const std::pair<std::string, std::string> ends[] = {
      {"", ""}, {"PIN", "ERR \"PIN\": the line has no end\n"}};
  for (const auto& [last, answer] : ends) {
    LineClient client = push.Connect();
    ASSERT_TRUE(client.client().SendAll(commands + last));
    ASSERT_TRUE(client.client().ShutdownWrite());
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(client.Hear(), "OK SUB a");
      EXPECT_EQ(client.Hear(), "PONG");
      EXPECT_EQ(client.Hear(), "OK UNSUB a");
      EXPECT_EQ(client.Hear(), "PONG");
      EXPECT_EQ(client.Hear(),
                "ERR UNSUB \"a\": this connection has not subscribed to it");
    }
    EXPECT_EQ(client.Hear(), "OK SUB a");
    EXPECT_EQ(client.Hear(), "OK UNSUB a");
    EXPECT_EQ(client.client().ReadToEof(), answer);
  }
}

TEST(Push, BadInputIsToldAndTheConnectionGoesOn) {
  PushProgram push({"--max_line=200", "--max_subscriptions=2"});
  LineClient control = push.Control();
  EXPECT_THAT(control.Ask("HELO"), HasSubstr("ERR \"HELO\": there is no such"));
  EXPECT_THAT(control.Ask(std::string(201, 'x')),
              HasSubstr("ERR a line of more than 200 bytes"));
  EXPECT_THAT(control.Ask(std::string(100'000, 'x')),
              HasSubstr("ERR a line of more than 200 bytes"));
  EXPECT_THAT(control.Ask(std::string(200, 'x')), HasSubstr("ERR \"xxx"));
  EXPECT_THAT(control.Ask("PUB a x\r\r"), HasSubstr("ERR PUB \"a\": "));
  EXPECT_EQ(control.Ask("STATS a"),
            "ERR STATS \"a\": nobody has subscribed to it");
  EXPECT_EQ(control.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(control.Ask("SUB b"), "OK SUB b");
  EXPECT_THAT(control.Ask("SUB c"), HasSubstr("ERR SUB \"c\": this connection "
                                              "has 2 subscriptions"));
  // The longest line is a message as long.
  const std::string text(200 - sizeof("PUB a"), 'y');
  EXPECT_EQ(control.Ask("PUB a " + text), "OK PUB a 1");
  EXPECT_EQ(control.Hear(), "MSG a " + text);
  push.ExpectOrderlyEnd(SIGINT);
  EXPECT_THAT(push.out(), HasSubstr("lines refused: 7\n"));
}

TEST(Push, ATopicWithoutSubscribersMakesRoom) {
  PushProgram push({"--max_topics=2"});
  LineClient reader = push.Connect();
  LineClient other = push.Connect();
  LineClient control = push.Control();
  EXPECT_EQ(reader.Ask("SUB a"), "OK SUB a");
  EXPECT_EQ(reader.Ask("SUB b"), "OK SUB b");
  EXPECT_EQ(other.Ask("SUB c"),
            "ERR SUB \"c\": there are 2 topics with subscribers, and no more "
            "are allowed");
  // It stays until its place is needed.
  EXPECT_EQ(control.Ask("PUB a x"), "OK PUB a 1");
  EXPECT_EQ(reader.Hear(), "MSG a x");
  EXPECT_EQ(reader.Ask("UNSUB a"), "OK UNSUB a");
  EXPECT_THAT(control.Ask("STATS a"),
              HasSubstr("OK STATS a subscribers=0 published=1 delivered=1"));
  EXPECT_EQ(other.Ask("SUB c"), "OK SUB c");
  EXPECT_EQ(control.Ask("STATS a"),
            "ERR STATS \"a\": nobody has subscribed to it");
  // A connection that ends gives its places back.
  { const LineClient leaving = std::move(reader); }
  EXPECT_TRUE(
      test::WaitUntil([&] { return other.Ask("SUB a") == "OK SUB a"; }));
  EXPECT_EQ(control.Ask("PUB a y"), "OK PUB a 1");
  EXPECT_EQ(other.Hear(), "MSG a y");
  push.ExpectOrderlyEnd();
  EXPECT_THAT(push.out(), HasSubstr("topics: 2; made room for others: 2;"));
}

TEST(Push, AnIdleConnectionIsClosed) {
  PushProgram push({"--idle_timeout=300ms"});
  LineClient silent = push.Connect();
  EXPECT_EQ(silent.client().ReadToEof(), "");
}

TEST(Push, BadFlagsNameTheValue) {
  const std::pair<std::string, std::string> cases[] = {
      {"--listen=nonsense", "nonsense"},
      {"--control=tcp://127.0.0.1:0", "--control=tcp://127.0.0.1:0: a Unix"},
      {"--control=unix://@abstract", "--control=unix://@abstract: a Unix"},
      {"--control=", "nobody could publish"},
      {"--publish_from=all", "--publish_from=all: control or any"},
      {"--when_slow=wait", "--when_slow=wait: skip or close or latest"},
      {"--fd_tables=x", "--fd_tables=x"},
      {"--reactors=-1", "--reactors=-1"},
      {"--max_backlog=-1", "--max_backlog=-1"},
      {"--max_pending=0", "--max_pending=0"},
      {"--sends_per_turn=0", "--sends_per_turn=0"},
      {"--sends_per_second=-1", "--sends_per_second=-1"},
      {"--round_trip=5", "--round_trip=5: a duration"},
      {"--idle_timeout=-1s", "--idle_timeout=-1s"},
      {"--max_topics=0", "--max_topics=0"},
      {"--max_subscriptions=0", "--max_subscriptions=0"},
      {"--max_line=10", "--max_line=10"},
      {"--nope=1", "--nope=1"},
  };
  for (const auto& [flag, text] : cases) {
    ChildProcess push({SLUICE_EXAMPLES_DIR "/push", flag});
    EXPECT_EQ(push.Wait(), 2) << flag << "\n" << push.error();
    EXPECT_THAT(push.error(), AllOf(HasSubstr("push: "), HasSubstr(text)))
        << flag;
    EXPECT_EQ(push.out(), "") << flag;
  }
}

}  // namespace
}  // namespace sluice::push
