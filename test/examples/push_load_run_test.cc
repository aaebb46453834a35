// The programs push and push_load together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>

#include "test/examples/push_fixture.h"

namespace sluice::push {
namespace {

using test::ChildProcess;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

const char kLoad[] = SLUICE_EXAMPLES_DIR "/push_load";

TEST(PushLoadRun, TwoHundredSubscribers) {
  PushProgram push({"--max_backlog=67108864"});
  ChildProcess load({kLoad, "--address=" + push.address().ToString(),
                     "--publish=" + push.control().ToString(),
                     "--connections=200", "--messages=50", "--rate=200",
                     "--reactors=2", "--patience=60s"});
  EXPECT_EQ(load.Wait(), 0) << load.out() << load.error();
  EXPECT_THAT(load.out(),
              AllOf(HasSubstr("200 of 200"), HasSubstr("10,000 of 10,000"),
                    HasSubstr("ok: every reader had every message")));
  push.ExpectOrderlyEnd();
  EXPECT_THAT(push.out(), ContainsRegex(" 51 +10200 +0 +0 +0\n"));
}

// Some never read, and push holds what they do not.
TEST(PushLoadRun, SlowReadersAmongThem) {
  PushProgram push({"--max_backlog=67108864"}, test::UniqueUnixAddress());
  ChildProcess load({kLoad, "--address=" + push.address().ToString(),
                     "--publish=" + push.control().ToString(),
                     "--connections=50", "--slow=10", "--messages=200",
                     "--bytes=4000", "--rate=1000", "--patience=60s"});
  EXPECT_EQ(load.Wait(), 0) << load.out() << load.error();
  EXPECT_THAT(load.out(),
              AllOf(HasSubstr("9,000 of 9,000"),
                    HasSubstr("readers that never read            5\n")));
}

TEST(PushLoadRun, APublisherThatMayNotPublishFails) {
  PushProgram push;
  ChildProcess load({kLoad, "--address=" + push.address().ToString(),
                     "--publish=" + push.address().ToString(),
                     "--connections=2"});
  EXPECT_EQ(load.Wait(), 1) << load.error();
  EXPECT_THAT(load.out(), HasSubstr("only the control socket may publish"));
}

TEST(PushLoadRun, APushThatGoesAwayFails) {
  PushProgram push;
  LineClient reader = push.Connect();
  EXPECT_EQ(reader.Ask("SUB t"), "OK SUB t");
  ChildProcess load({kLoad, "--address=" + push.address().ToString(),
                     "--publish=" + push.control().ToString(), "--topic=t",
                     "--connections=2", "--messages=10000"});
  EXPECT_THAT(reader.Hear(), HasSubstr("MSG t 0000000000 "));
  push.ExpectOrderlyEnd();
  EXPECT_EQ(load.Wait(), 1) << load.error();
  EXPECT_THAT(load.out(), HasSubstr("the publisher's connection was lost"));
}

TEST(PushLoadRun, ASignalIsAnInterruption) {
  PushProgram push;
  LineClient reader = push.Connect();
  EXPECT_EQ(reader.Ask("SUB t"), "OK SUB t");
  ChildProcess load({kLoad, "--address=" + push.address().ToString(),
                     "--publish=" + push.control().ToString(), "--topic=t",
                     "--connections=2", "--messages=10000"});
  EXPECT_THAT(reader.Hear(), HasSubstr("MSG t 0000000000 "));
  load.Signal(SIGINT);
  EXPECT_EQ(load.Wait(), 130) << load.error();
  EXPECT_THAT(load.out(), HasSubstr("interrupted: "));
}

TEST(PushLoadRun, BadFlagsNameTheValue) {
  const std::pair<std::string, std::string> cases[] = {
      {"--address=nonsense", "nonsense"},
      {"--publish=nonsense", "nonsense"},
      {"--connections=0", "--connections=0"},
      {"--slow=100", "--slow=100"},
      {"--slow=nan", "--slow=nan"},
      {"--topic=a b", "--topic=a b: "},
      {"--messages=0", "--messages=0"},
      {"--bytes=10", "--bytes=10"},
      {"--rate=0", "--rate=0"},
      {"--reactors=-1", "--reactors=-1"},
      {"--fd_tables=x", "--fd_tables=x"},
      {"--patience=1", "--patience=1: a duration"},
      {"--json=/nonexistent/x", "/nonexistent/x"},
      {"stray", "\"stray\""},
  };
  for (const auto& [flag, text] : cases) {
    ChildProcess load({kLoad, flag});
    EXPECT_EQ(load.Wait(), 2) << flag << "\n" << load.error();
    EXPECT_THAT(load.error(), AllOf(HasSubstr("push_load: "), HasSubstr(text)))
        << flag;
    EXPECT_EQ(load.out(), "") << flag;
  }
}

}  // namespace
}  // namespace sluice::push
