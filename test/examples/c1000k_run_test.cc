// The program c1000k, as a user runs it.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "test/support/child_process.h"
#include "test/support/sanitizers.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The one that was built with this test, unless the environment names another.
std::string Binary() {
  const char* chosen = std::getenv("C1000K_BINARY");
  return chosen != nullptr ? chosen : SLUICE_EXAMPLES_DIR "/c1000k";
}

class C1000k : public testing::Test {
 protected:
  C1000k()
      : binary_(Binary()),
        json_((std::filesystem::path(testing::TempDir()) /
               ("c1000k_run_test_" + std::to_string(getpid()) + ".json"))
                  .string()) {
    std::filesystem::remove(json_);
  }
  ~C1000k() override { std::filesystem::remove(json_); }

  std::vector<std::string> Command(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), binary_);
    return flags;
  }
  std::string ReadJson() const {
    std::ifstream in(json_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // The number after "key":, NaN if it is null or missing.
  double Figure(const std::string& key) const {
    const std::string json = ReadJson();
    const std::string name = "\"" + key + "\": ";
    const size_t at = json.find(name);
    EXPECT_NE(at, std::string::npos) << key << " is not in " << json;
    if (at == std::string::npos) return NAN;
    const char* text = json.c_str() + at + name.size();
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    return end == text ? NAN : value;
  }

  const std::string binary_;
  const std::string json_;
};

class C1000kShapes : public C1000k,
                     public testing::WithParamInterface<const char*> {};

TEST_P(C1000kShapes, HoldsAndReports) {
  const std::string tables = GetParam();
  if (kTsan && tables == "per_reactor") {
    GTEST_SKIP() << "ThreadSanitizer takes equal descriptor numbers of "
                    "different tables for one descriptor";
  }
  const bool own = tables == "per_reactor";
  ChildProcess run(Command({"--connections=2000", "--reactors=3", "--hold=1",
                            "--heartbeat_qps=500", "--fd_tables=" + tables,
                            "--json=" + json_}));
  const int code = run.Wait();
  EXPECT_EQ(code, 0) << run.out() << run.error();
  EXPECT_TRUE(run.GroupIsGone());
  EXPECT_THAT(run.out(),
              AllOf(HasSubstr("plan    2,000 connections, as asked for"),
                    HasSubstr("2,000 of 2,000"), HasSubstr("roll call"),
                    HasSubstr("ok: every connection")));
  EXPECT_EQ(Figure("connections_target"), 2000);
  EXPECT_EQ(Figure("connections_peak"), 2000);
  EXPECT_EQ(Figure("dials_failed"), 0);
  EXPECT_EQ(Figure("connections_lost"), 0);
  // The roll call alone is a message for each.
  EXPECT_GT(Figure("heartbeats_sent"), 2000);
  EXPECT_EQ(Figure("heartbeats_sent"), Figure("heartbeats_answered"));
  EXPECT_GE(Figure("p50"), 1);
  EXPECT_LE(Figure("p50"), Figure("p99"));
  EXPECT_LE(Figure("p99"), Figure("p999"));
  EXPECT_LE(Figure("p999"), Figure("max"));
  EXPECT_GT(Figure("server_rss_bytes"), 100'000);
  EXPECT_GT(Figure("connect_seconds"), 0);
  EXPECT_GT(Figure("server_cpu_seconds"), 0);
  EXPECT_EQ(Figure("reactors"), 3);
  // null where the machine was too slow for enough samples; the key is there.
  (void)Figure("server_user_bytes_per_connection");
  EXPECT_FALSE(std::isnan(Figure("kernel_bytes_per_connection")));
  EXPECT_THAT(ReadJson(), HasSubstr(own ? "\"fd_tables\": \"per_reactor\""
                                        : "\"fd_tables\": \"shared\""));
}

INSTANTIATE_TEST_SUITE_P(FdTables, C1000kShapes,
                         testing::Values("shared", "per_reactor", "auto"));

TEST_F(C1000k, OneConnectionAndNoHeartbeats) {
  ChildProcess run(Command({"--connections=1", "--reactors=1", "--hold=0",
                            "--heartbeat_qps=0", "--json=" + json_}));
  EXPECT_EQ(run.Wait(), 0) << run.out() << run.error();
  EXPECT_EQ(Figure("heartbeats_answered"), 1);  // the roll call
  EXPECT_TRUE(std::isnan(Figure("p50")));       // null: there were none
}

TEST_F(C1000k, ConnectRateIsKept) {
  ChildProcess run(Command({"--connections=50", "--connect_rate=100",
                            "--hold=0", "--json=" + json_}));
  EXPECT_EQ(run.Wait(), 0) << run.out() << run.error();
  EXPECT_GE(Figure("connect_seconds"), 0.35);  // the first tenth may burst
}

TEST_F(C1000k, TooManyIsOneMessageAndNothingStarts) {
  ChildProcess run(Command({"--connections=100000000", "--json=" + json_}));
  EXPECT_EQ(run.Wait(), 2) << run.out() << run.error();
  EXPECT_THAT(run.error(),
              AllOf(HasSubstr("cannot hold 100,000,000 connections"),
                    HasSubstr("nothing was started"), HasSubstr("limit:"),
                    HasSubstr("needed:"), HasSubstr("fix:")));
  EXPECT_EQ(run.error().find("c1000k:"), run.error().rfind("c1000k:"));
  EXPECT_EQ(run.out(), "");
  EXPECT_FALSE(std::filesystem::exists(json_));
}

TEST_F(C1000k, TooFewReactorsForTablesOfTheirOwn) {
  ChildProcess run(Command(
      {"--connections=90000000", "--reactors=1", "--fd_tables=per_reactor"}));
  EXPECT_EQ(run.Wait(), 2) << run.out() << run.error();
  EXPECT_EQ(run.out(), "");
}

TEST_F(C1000k, BadFlagsNameTheValue) {
  const std::pair<std::string, std::string> cases[] = {
      {"--connections=many", "--connections=many"},
      {"--connections=-1", "--connections=-1"},
      {"--fd_tables=none", "--fd_tables=none"},
      {"--hold=-2", "--hold=-2"},
      {"--json=/no/such/folder/x.json", "/no/such/folder/x.json"},
      {"--colour=red", "--colour=red"},
      {"100000", "\"100000\""},
  };
  for (const auto& [flag, text] : cases) {
    // The last one counts; these make it short if it is not refused.
    ChildProcess run(Command({"--connections=10", "--hold=0", flag}));
    EXPECT_EQ(run.Wait(), 2) << flag;
    EXPECT_THAT(run.error(), HasSubstr(text));
    EXPECT_EQ(run.out(), "") << flag;
  }
}

TEST_F(C1000k, HelpListsEveryFlag) {
  ChildProcess run(Command({"--help"}));
  EXPECT_EQ(run.Wait(), 0);
  for (const char* flag :
       {"--connections=", "--reactors=", "--hold=", "--heartbeat_qps=5000",
        "--connect_rate=", "--fd_tables=auto", "--json="}) {
    EXPECT_THAT(run.out(), HasSubstr(flag));
  }
}

class C1000kSignals : public C1000k, public testing::WithParamInterface<int> {};

TEST_P(C1000kSignals, EndsCleanlyWhileHolding) {
  ChildProcess run(Command({"--connections=200", "--hold=600",
                            "--heartbeat_qps=200", "--json=" + json_}));
  EXPECT_THAT(run.AwaitLine("hold "), HasSubstr("200/200 held"));
  // As a terminal does it: the server gets it as well.
  run.SignalGroup(GetParam());
  EXPECT_EQ(run.Wait(), 130) << run.out() << run.error();
  EXPECT_TRUE(run.GroupIsGone());
  EXPECT_THAT(run.out(),
              AllOf(HasSubstr("200 of 200"), HasSubstr("interrupted:"),
                    Not(HasSubstr("trouble:"))));
  EXPECT_EQ(Figure("connections_peak"), 200);
}

TEST_P(C1000kSignals, EndsCleanlyWhileConnecting) {
  // Ten a second: it is still at it whenever the signal comes.
  ChildProcess run(
      Command({"--connections=10000", "--connect_rate=10", "--json=" + json_}));
  run.AwaitLine("connect ");
  run.Signal(GetParam());
  EXPECT_EQ(run.Wait(), 130) << run.out() << run.error();
  EXPECT_TRUE(run.GroupIsGone());
  EXPECT_THAT(run.out(), HasSubstr("interrupted:"));
  EXPECT_LT(Figure("connections_peak"), 10'000);
  EXPECT_EQ(Figure("dials_failed"), 0);
}

INSTANTIATE_TEST_SUITE_P(SigintAndSigterm, C1000kSignals,
                         testing::Values(SIGINT, SIGTERM));

// The child of `parent`, 0 if there is none.
pid_t ChildOf(pid_t parent) {
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" +
                   std::to_string(parent) + "/children");
  pid_t child = 0;
  in >> child;
  return child;
}

TEST_F(C1000k, SaysThatTheServerDied) {
  ChildProcess run(Command({"--connections=100", "--hold=600",
                            "--heartbeat_qps=50", "--json=" + json_}));
  run.AwaitLine("hold ");
  const pid_t server = ChildOf(run.pid());
  ASSERT_GT(server, 0);
  ASSERT_EQ(kill(server, SIGKILL), 0);
  EXPECT_EQ(run.Wait(), 1) << run.out() << run.error();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("the server process"),
                               HasSubstr("died: killed by signal 9")));
  EXPECT_TRUE(run.GroupIsGone());
}

TEST_F(C1000k, TheServerDoesNotOutliveAKilledController) {
  ChildProcess run(Command({"--connections=100", "--hold=600"}));
  run.AwaitLine("hold ");
  run.Signal(SIGKILL);
  // Its outputs end only when the server, which shares them, is gone too.
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return run.GroupIsGone(); }));
}

}  // namespace
}  // namespace sluice::test
