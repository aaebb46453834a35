// sysctl/apply and sysctl/revert on trees of files, with each shell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "test/support/file_tree.h"
#include "test/sysctl/script.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// Every key of the profile idle as a kernel with 16 GiB has it.
void WriteKernelValues(FileTree& tree) {
  tree.Write("proc/meminfo", "MemTotal:       16777216 kB\n");
  const std::map<std::string, std::string> values = {
      {"fs/nr_open", "1048576"},
      {"fs/file-max", "9223372036854775807"},
      {"fs/epoll/max_user_watches", "3600000"},
      {"net/core/somaxconn", "4096"},
      {"net/core/netdev_max_backlog", "1000"},
      {"net/ipv4/tcp_max_syn_backlog", "2048"},
      {"net/ipv4/tcp_syncookies", "1"},
      {"net/ipv4/tcp_abort_on_overflow", "0"},
      {"net/ipv4/tcp_rmem", "4096\t131072\t33554432"},
      {"net/ipv4/tcp_wmem", "4096\t16384\t4194304"},
      {"net/ipv4/tcp_mem", "188000\t251000\t2000000"},
      {"net/ipv4/tcp_notsent_lowat", "4294967295"},
      {"net/ipv4/tcp_max_tw_buckets", "131072"},
      {"net/ipv4/tcp_max_orphans", "131072"},
      {"net/ipv4/tcp_fin_timeout", "60"},
      {"net/ipv4/tcp_keepalive_time", "7200"},
      {"net/ipv4/tcp_keepalive_intvl", "75"},
      {"net/ipv4/tcp_keepalive_probes", "9"},
      {"net/ipv4/tcp_tw_reuse", "2"},
      {"net/ipv4/ip_local_port_range", "32768\t60999"},
      {"net/netfilter/nf_conntrack_max", "262144"},
      {"net/netfilter/nf_conntrack_buckets", "262144"},
      {"vm/min_free_kbytes", "67584"},
      {"vm/swappiness", "60"}};
  for (const auto& [path, value] : values) {
    tree.Write("proc/sys/" + path, value + "\n");
  }
}

class ApplyTest : public testing::TestWithParam<std::string> {
 protected:
  ApplyTest() {
    WriteKernelValues(tree_);
    before_ = tree_.Everything("proc");
  }
  ScriptResult Run(const std::string& script,
                   std::vector<std::string> arguments) {
    arguments.push_back("--root=" + tree_.root());
    return RunScript(GetParam(), script, arguments);
  }
  std::string Key(const std::string& path) {
    return tree_.Read("proc/sys/" + path);
  }

  FileTree tree_;
  std::map<std::string, std::string> before_;
};

INSTANTIATE_TEST_SUITE_P(EachShell, ApplyTest, testing::ValuesIn(Shells()),
                         [](const auto& shell) { return shell.param; });

TEST_P(ApplyTest, SetsReadsBackAndTellsEachKey) {
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 0) << apply.out << apply.error;
  EXPECT_EQ(Key("fs/nr_open"), "2097152");
  EXPECT_EQ(Key("net/core/somaxconn"), "16384");
  EXPECT_EQ(Key("net/ipv4/tcp_rmem"), "4096 16384 4194304");
  EXPECT_THAT(
      apply.Line("net.core.somaxconn"),
      AllOf(HasSubstr(" 4096 "), HasSubstr(" 16384 "), EndsWith(" changed")));
  EXPECT_THAT(apply.Line("net.ipv4.tcp_syncookies"), EndsWith("is so already"));
  EXPECT_THAT(apply.out, HasSubstr("idle: 22 keys, 17 changed, 0 not"));
}

TEST_P(ApplyTest, NeverLowersWhereMoreIsBetter) {
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(Key("fs/file-max"), "9223372036854775807");
  EXPECT_THAT(apply.Line("fs.file-max"), EndsWith("kept: more than 2200000"));
  // Field by field: 12, 16 and 25 % of 16 GiB in pages, of which the last is
  // higher already.
  EXPECT_EQ(Key("net/ipv4/tcp_mem"), "503316 671088 2000000");
}

TEST_P(ApplyTest, ARangeIsOnlyWidened) {
  tree_.Write("proc/sys/net/ipv4/ip_local_port_range", "1024\t60999\n");
  EXPECT_EQ(Run("apply", {"load-client"}).code, 0);
  EXPECT_EQ(Key("net/ipv4/ip_local_port_range"), "1024 65535");
}

TEST_P(ApplyTest, FitsItselfToTheConnectionsAskedFor) {
  EXPECT_EQ(Run("apply", {"idle", "--connections=3000000"}).code, 0);
  EXPECT_EQ(Key("fs/nr_open"), "6291456");
  EXPECT_EQ(Key("fs/epoll/max_user_watches"), "6600000");
}

TEST_P(ApplyTest, ASecondTimeChangesNothing) {
  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  const auto after = tree_.Everything("");
  const ScriptResult again = Run("apply", {"idle"});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr(" 0 changed, 0 not"));
  EXPECT_EQ(tree_.Everything(""), after);
}

TEST_P(ApplyTest, RevertPutsEverythingBackExactly) {
  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  EXPECT_EQ(Run("apply", {"load-client", "--connections=2000000"}).code, 0);
  EXPECT_NE(tree_.Everything("proc"), before_);
  const ScriptResult revert = Run("revert", {});
  EXPECT_EQ(revert.code, 0) << revert.out << revert.error;
  EXPECT_EQ(tree_.Everything("proc"), before_);
  const ScriptResult again = Run("revert", {});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr("nothing to revert"));
}

TEST_P(ApplyTest, ADryRunOnlyTells) {
  const ScriptResult dry = Run("apply", {"idle", "--dry-run"});
  EXPECT_EQ(dry.code, 0);
  EXPECT_THAT(dry.Line("net.core.somaxconn"), EndsWith("would change"));
  EXPECT_EQ(tree_.Everything("proc"), before_);
  EXPECT_FALSE(tree_.Has("run"));

  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  const auto applied = tree_.Everything("");
  const ScriptResult revert = Run("revert", {"--dry-run"});
  EXPECT_EQ(revert.code, 0);
  EXPECT_THAT(revert.Line("net.core.somaxconn"), EndsWith("would be put back"));
  EXPECT_EQ(tree_.Everything(""), applied);
}

TEST_P(ApplyTest, WhatSomebodyElseChangedSinceIsSaidAndPutBack) {
  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  tree_.Write("proc/sys/net/core/somaxconn", "9999\n");
  const ScriptResult revert = Run("revert", {});
  EXPECT_EQ(revert.code, 0);
  EXPECT_THAT(revert.Line("net.core.somaxconn"),
              EndsWith("though it was changed from \"16384\" since"));
  EXPECT_EQ(tree_.Everything("proc"), before_);
}

// B121: one key is missing, one cannot be written, one takes the value and
// reads back another.
TEST_P(ApplyTest, B121EachTroubleIsToldAndTheRestIsApplied) {
  tree_.Remove("proc/sys/net/netfilter");
  tree_.Remove("proc/sys/net/ipv4/tcp_max_orphans");
  // A folder cannot be written, even by root.
  tree_.Remove("proc/sys/vm/swappiness");
  tree_.Write("proc/sys/vm/swappiness/file", "");
  // One has nothing in it, the other no end.
  tree_.Link("proc/sys/net/core/somaxconn", "/dev/zero");
  tree_.Link("proc/sys/net/core/netdev_max_backlog", "/dev/null");
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 1) << apply.out << apply.error;
  // Where tracking is not loaded there is nothing to set: that is no failure.
  EXPECT_THAT(apply.Line("net.netfilter.nf_conntrack_max"),
              EndsWith("not there: connection tracking is not loaded"));
  EXPECT_THAT(apply.Line("net.ipv4.tcp_max_orphans"), HasSubstr("MISSING"));
  EXPECT_THAT(apply.Line("vm.swappiness"), HasSubstr("UNREADABLE"));
  EXPECT_THAT(apply.Line("net.core.netdev_max_backlog"),
              HasSubstr("UNREADABLE"));
  EXPECT_THAT(apply.Line("net.core.somaxconn"), HasSubstr("UNREADABLE"));
  EXPECT_EQ(Key("fs/nr_open"), "2097152");
  EXPECT_EQ(Key("net/ipv4/tcp_fin_timeout"), "30");
}

TEST_P(ApplyTest, AKeyThatCannotBeWrittenIsToldWithTheReason) {
  // Reads like a number, takes nothing: a file of the kernel's.
  tree_.Link("proc/sys/net/core/somaxconn", "/proc/sys/kernel/cap_last_cap");
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 1);
  EXPECT_THAT(apply.Line("net.core.somaxconn"),
              HasSubstr("NOT SET: refused: Permission denied"));
  EXPECT_EQ(Key("fs/nr_open"), "2097152");
  // It is as it was, so there is nothing to put back.
  const ScriptResult revert = Run("revert", {});
  EXPECT_EQ(revert.code, 0) << revert.out;
  EXPECT_THAT(revert.Line("net.core.somaxconn"), EndsWith("is so already"));
}

TEST_P(ApplyTest, AKeyThatReadsBackDifferentIsTold) {
  // The kernel's own number: a thread's name cuts off what is too long.
  tree_.Link("proc/sys/net/ipv4/tcp_mem", "/proc/self/comm");
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 1);
  EXPECT_THAT(apply.Line("net.ipv4.tcp_mem"), HasSubstr("NOT SET: reads back"));
}

TEST_P(ApplyTest, WhatCannotBePutBackStaysSaved) {
  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  tree_.Remove("proc/sys/vm/swappiness");
  const ScriptResult revert = Run("revert", {});
  EXPECT_EQ(revert.code, 1);
  EXPECT_THAT(revert.Line("vm.swappiness"), HasSubstr("missing"));
  EXPECT_EQ(tree_.Read("run/sluice/sysctl"), "proc/sys/vm/swappiness|60|1");
  tree_.Write("proc/sys/vm/swappiness", "1\n");
  EXPECT_EQ(Run("revert", {}).code, 0);
  EXPECT_EQ(tree_.Everything("proc"), before_);
}

TEST_P(ApplyTest, WhereRevertCannotWriteADryRunStillTells) {
  EXPECT_EQ(Run("apply", {"idle"}).code, 0);
  tree_.Write("run/sluice/sysctl.left/file", "");  // a folder in its place
  const auto applied = tree_.Everything("");
  const ScriptResult revert = Run("revert", {});
  EXPECT_EQ(revert.code, 2);
  EXPECT_THAT(revert.error, HasSubstr("nothing was changed"));
  const ScriptResult dry = Run("revert", {"--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.error;
  EXPECT_THAT(dry.Line("net.core.somaxconn"), EndsWith("would be put back"));
  EXPECT_EQ(tree_.Everything(""), applied);
}

TEST_P(ApplyTest, WhereNothingCanBeSavedNothingIsChanged) {
  tree_.Write("run", "a file, not a folder\n");
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 2);
  EXPECT_THAT(apply.error, HasSubstr("nothing was changed"));
  EXPECT_EQ(tree_.Everything("proc"), before_);
}

TEST_P(ApplyTest, UnknownMemoryIsToldNotGuessed) {
  tree_.Remove("proc/meminfo");
  const ScriptResult apply = Run("apply", {"idle"});
  EXPECT_EQ(apply.code, 1);
  EXPECT_THAT(apply.Line("net.ipv4.tcp_mem"), HasSubstr("UNKNOWN"));
  EXPECT_EQ(Key("net/ipv4/tcp_mem"), "188000\t251000\t2000000");
  EXPECT_EQ(Key("fs/nr_open"), "2097152");
}

TEST_P(ApplyTest, BadUseNamesTheValueAndChangesNothing) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> uses = {
      {{}, "no profile; there are: idle load-client throughput"},
      {{"huge"}, "huge: not a profile; there are: idle load-client"},
      {{"../test"}, "../test: not a profile"},
      {{"idle", "throughput"}, "throughput: there is a profile already, idle"},
      {{"idle", "--now"}, "--now: unknown flag"},
      {{"idle", "--connections=many"}, "--connections=many: must be a number"},
      {{"idle", "--connections=0"}, "--connections=0: must be a number"},
      {{"idle", "--connections"}, "must be a number"}};
  for (const auto& [arguments, message] : uses) {
    const ScriptResult apply = Run("apply", arguments);
    EXPECT_EQ(apply.code, 2) << message;
    EXPECT_THAT(apply.error, HasSubstr(message));
    EXPECT_EQ(apply.out, "");
  }
  EXPECT_EQ(tree_.Everything("proc"), before_);
  EXPECT_EQ(RunScript(GetParam(), "apply", {"idle", "--root=/nowhere"}).code,
            2);
  EXPECT_EQ(RunScript(GetParam(), "revert", {"--root=/nowhere"}).code, 2);
  EXPECT_EQ(Run("revert", {"idle"}).code, 2);
}

}  // namespace
}  // namespace sluice::test
