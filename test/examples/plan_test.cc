// From the files of /proc to a plan, on machines that are folders.
#include "examples/c1000k/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/usage.h"
#include "test/support/file_tree.h"

namespace sluice::c1000k {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A folder with the files that ReadMachine reads, of a machine with 2 CPUs,
// 24 GB and RLIMIT_NOFILE 20,000.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    Nofile(20'000);
    Put("/proc/sys/fs/nr_open", "1048576\n");
    Put("/proc/sys/fs/file-max", "2466165\n");
    Put("/proc/sys/fs/file-nr", "522\t0\t2466165\n");
    Put("/proc/sys/fs/epoll/max_user_watches", "5491489\n");
    Put("/proc/meminfo",
        "MemTotal:       24683652 kB\nMemFree:        100 kB\n"
        "MemAvailable:   24344800 kB\nSlab:             89360 kB\n"
        "KernelStack:        1460 kB\nPageTables:         1932 kB\n");
    Put("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    Put("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n");
    Put("/proc/sys/net/core/somaxconn", "4096\n");
    Put("/proc/sys/kernel/threads-max", "192729\n");
    Put("/proc/sys/kernel/pid_max", "32768\n");
    Put("/proc/loadavg", "0.11 0.08 0.02 2/90 5751\n");
    Put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n");
  }

  void Put(const std::string& file, const std::string& text) {
    tree_.Write(file, text);
  }
  void Remove(const std::string& file) { tree_.Remove(file); }
  void Nofile(uint64_t hard) {
    Put("/proc/self/limits",
        absl::StrCat(
            "Limit                     Soft Limit           Hard Limit         "
            "  Units     \n"
            "Max processes             96364                96364              "
            "  processes \n"
            "Max open files            1024                 ",
            hard, "                files     \n"));
  }

  Machine Read() const { return ReadMachine(tree_.root()); }
  absl::StatusOr<Plan> Make(const Settings& settings = {}) const {
    return MakePlan(Read(), settings);
  }
  std::string Refusal(const Settings& settings) const {
    const absl::StatusOr<Plan> plan = Make(settings);
    EXPECT_FALSE(plan.ok());
    return std::string(plan.status().message());
  }

  test::FileTree tree_;
};

TEST_F(PlanTest, ReadsEveryFile) {
  const Machine m = Read();
  EXPECT_EQ(m.nofile, 20'000u);
  EXPECT_EQ(m.nr_open, 1'048'576u);
  EXPECT_EQ(m.file_max, 2'466'165u);
  EXPECT_EQ(m.files_used, 522u);
  EXPECT_EQ(m.epoll_watches, 5'491'489u);
  EXPECT_EQ(m.memory_available, 24'344'800ull * 1024);
  EXPECT_EQ(m.port_low, 32'768u);
  EXPECT_EQ(m.port_high, 60'999u);
  EXPECT_EQ(m.somaxconn, 4096u);
  EXPECT_EQ(m.threads_max, 192'729u);
  EXPECT_EQ(m.pid_max, 32'768u);
  EXPECT_EQ(m.threads_used, 90u);
  EXPECT_EQ(m.cpus, 2u);
  EXPECT_FALSE(m.cgroup_memory.has_value());
  EXPECT_FALSE(m.conntrack_max.has_value());
}

TEST_F(PlanTest, AMillionWithALowDescriptorLimitTakesTablesOfTheirOwn) {
  const absl::StatusOr<Plan> plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->connections, 1'000'000u);
  EXPECT_FALSE(plan->asked);
  EXPECT_EQ(plan->fd_tables, FdTables::kPerReactor);
  EXPECT_EQ(plan->reactors, 52);
  EXPECT_GE(static_cast<uint64_t>(plan->reactors) *
                TableRoom(Read(), static_cast<uint64_t>(plan->reactors)),
            1'000'000u);
  EXPECT_EQ(plan->per_source, 10'000u);
  EXPECT_EQ(plan->sources, 100u);
  EXPECT_GT(plan->sources_most, 100u);
  EXPECT_EQ(plan->window, 2048u);
  EXPECT_GE(plan->idle_timeout, std::chrono::minutes(10));
  EXPECT_THAT(DescribePlan(*plan, Read()),
              AllOf(HasSubstr("1,000,000 connections, the most"),
                    HasSubstr("none binds"), HasSubstr("fs.file-max"),
                    HasSubstr("52 reactors"), HasSubstr("127.0.0.2")));
}

TEST_F(PlanTest, AHighDescriptorLimitNeedsOneTable) {
  Nofile(1'048'576);
  const absl::StatusOr<Plan> plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->connections, 1'000'000u);
  EXPECT_EQ(plan->fd_tables, FdTables::kShared);
  EXPECT_EQ(plan->reactors, 2);
}

TEST_F(PlanTest, FewConnectionsNeedOneTable) {
  const absl::StatusOr<Plan> plan = Make({.connections = 10'000});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->asked);
  EXPECT_EQ(plan->fd_tables, FdTables::kShared);
  EXPECT_EQ(plan->reactors, 2);
  EXPECT_EQ(plan->sources, 1u);
}

TEST_F(PlanTest, TablesOfTheirOwnWhenAskedForKeepAReactorForEachCpu) {
  const absl::StatusOr<Plan> plan =
      Make({.connections = 100, .fd_tables = "per_reactor"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->fd_tables, FdTables::kPerReactor);
  EXPECT_EQ(plan->reactors, 2);
}

TEST_F(PlanTest, SharedTableWithoutNumberTakesWhatTheLimitGives) {
  const absl::StatusOr<Plan> plan = Make({.fd_tables = "shared"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(plan->connections, 20'000u);
  EXPECT_GT(plan->connections, 19'000u);
  EXPECT_THAT(DescribePlan(*plan, Read()),
              AllOf(HasSubstr("RLIMIT_NOFILE"), HasSubstr("20,000"),
                    HasSubstr("LimitNOFILE="), HasSubstr("per_reactor")));
}

TEST_F(PlanTest, TooManyForASharedTable) {
  EXPECT_THAT(
      Refusal({.connections = 30'000, .fd_tables = "shared"}),
      AllOf(HasSubstr("cannot hold 30,000 connections"),
            HasSubstr("nothing was started"), HasSubstr("RLIMIT_NOFILE"),
            HasSubstr("20,000"), HasSubstr("needed"), HasSubstr("fix"),
            HasSubstr("ulimit -Hn")));
}

TEST_F(PlanTest, TooFewReactorsSaysHowManyAreEnough) {
  const std::string text = Refusal(
      {.connections = 100'000, .reactors = 2, .fd_tables = "per_reactor"});
  EXPECT_THAT(
      text, AllOf(HasSubstr("--reactors=2"), HasSubstr("--reactors=6 or more"),
                  HasSubstr("100,000 connections")));
  const absl::StatusOr<Plan> plan =
      Make({.connections = 100'000, .reactors = 6, .fd_tables = "per_reactor"});
  EXPECT_TRUE(plan.ok()) << plan.status();
}

TEST_F(PlanTest, FewReactorsWithoutNumberTakeWhatTheyHold) {
  const absl::StatusOr<Plan> plan = Make({.reactors = 2});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->reactors, 2);
  EXPECT_EQ(plan->connections, 2 * TableRoom(Read(), 2));
}

TEST_F(PlanTest, MemoryBinds) {
  Put("/proc/meminfo", "MemAvailable:   2000000 kB\n");
  const absl::StatusOr<Plan> plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(plan->connections, 250'000u);
  EXPECT_GT(plan->connections, 150'000u);
  EXPECT_THAT(DescribePlan(*plan, Read()),
              AllOf(HasSubstr("memory (MemAvailable"), HasSubstr("2.05 GB")));
  EXPECT_THAT(Refusal({.connections = 1'000'000}),
              AllOf(HasSubstr("memory (MemAvailable"), HasSubstr("2.05 GB"),
                    HasSubstr("GB: 8.6 KB"), HasSubstr("fix")));
}

TEST_F(PlanTest, CgroupVersion2BindsAtItsTightestLevel) {
  Put("/proc/self/cgroup", "0::/a/b\n");
  Put("/proc/self/mountinfo",
      "30 1 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  Put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Put("/sys/fs/cgroup/a/memory.max", "2147483648\n");
  Put("/sys/fs/cgroup/a/memory.current", "1147483648\n");
  Put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000000\n");
  Put("/sys/fs/cgroup/a/b/pids.max", "100\n");
  Put("/sys/fs/cgroup/a/b/pids.current", "3\n");
  const Machine m = Read();
  ASSERT_TRUE(m.cgroup_memory.has_value());
  EXPECT_EQ(m.cgroup_memory->limit, 2'147'483'648u);
  EXPECT_EQ(m.cgroup_memory->room, 1'100'000'000u);
  EXPECT_EQ(m.cgroup_memory->file, "/sys/fs/cgroup/a/memory.max");
  ASSERT_TRUE(m.cgroup_pids.has_value());
  EXPECT_EQ(m.cgroup_pids->room, 97u);
  EXPECT_THAT(
      Refusal({.connections = 500'000}),
      AllOf(HasSubstr("control group"),
            HasSubstr("/sys/fs/cgroup/a/memory.max"), HasSubstr("MemoryMax=")));
}

TEST_F(PlanTest, CgroupVersion1AsAContainerSeesIt) {
  // The mount shows the container's own directory as its root.
  Put("/proc/self/cgroup", "4:cpu,memory:/docker/abc\n1:name=systemd:/\n");
  Put("/proc/self/mountinfo",
      "34 30 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup "
      "rw,memory\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  Put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "73741824\n");
  const Machine m = Read();
  ASSERT_TRUE(m.cgroup_memory.has_value());
  EXPECT_EQ(m.cgroup_memory->room, 1'000'000'000u);
}

TEST_F(PlanTest, CgroupVersion1WithoutLimit) {
  Put("/proc/self/cgroup", "4:memory:/\n");
  Put("/proc/self/mountinfo",
      "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(Read().cgroup_memory.has_value());
}

TEST_F(PlanTest, FileMaxAndWatchesAreCountedTwiceAConnection) {
  Put("/proc/sys/fs/file-max", "102522\n");
  EXPECT_EQ(Make()->connections, 50'000u);
  EXPECT_THAT(Refusal({.connections = 60'000}),
              AllOf(HasSubstr("fs.file-max"), HasSubstr("102,522, 522 in use"),
                    HasSubstr("sysctl -w fs.file-max=130000")));
  Put("/proc/sys/fs/epoll/max_user_watches", "22000\n");
  EXPECT_EQ(Make()->connections, 10'000u);
  EXPECT_THAT(Refusal({.connections = 60'000}), HasSubstr("max_user_watches"));
}

TEST_F(PlanTest, ASmallPortRangeTakesMoreSources) {
  Put("/proc/sys/net/ipv4/ip_local_port_range", "40000 40999\n");
  const absl::StatusOr<Plan> plan = Make({.connections = 10'000});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->per_source, 500u);
  EXPECT_EQ(plan->sources, 20u);
}

TEST_F(PlanTest, ReservedPortsDoNotCount) {
  Put("/proc/sys/net/ipv4/ip_local_port_range", "40000 40999\n");
  Put("/proc/sys/net/ipv4/ip_local_reserved_ports", "80,40100-40299,40999\n");
  EXPECT_EQ(Read().ports_reserved, 201u);
  EXPECT_EQ(Make({.connections = 100})->per_source, 399u);
}

TEST_F(PlanTest, PortsCanBind) {
  Put("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003\n");
  EXPECT_THAT(
      Refusal({.connections = 1'000'000}),
      AllOf(HasSubstr("ip_local_port_range"), HasSubstr("40000 to 40003")));
}

TEST_F(PlanTest, ConntrackBindsOnlyWhereItIsInUse) {
  Put("/proc/sys/net/netfilter/nf_conntrack_max", "262144\n");
  Put("/proc/sys/net/netfilter/nf_conntrack_count", "0\n");
  EXPECT_EQ(Make()->connections, 1'000'000u);
  Put("/proc/sys/net/netfilter/nf_conntrack_count", "10\n");
  EXPECT_LT(Make()->connections, 262'144u);
}

TEST_F(PlanTest, ThreadsBindTheReactors) {
  Put("/proc/sys/kernel/threads-max", "142\n");  // 52 free
  const uint64_t most = MostReactors(Read());
  EXPECT_EQ(most, 10u);
  EXPECT_THAT(Refusal({.connections = 1000, .reactors = 11}),
              AllOf(HasSubstr("--reactors=11"), HasSubstr("threads")));
  const absl::StatusOr<Plan> plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->reactors, 10);
  EXPECT_LT(plan->connections, 200'000u);
}

TEST_F(PlanTest, ADescriptorLimitForNothing) {
  Nofile(64);
  EXPECT_THAT(Refusal({}),
              AllOf(HasSubstr("only 0"), HasSubstr("RLIMIT_NOFILE")));
}

TEST_F(PlanTest, ALimitAboveNrOpenSaysSo) {
  Nofile(4'000'000);
  EXPECT_THAT(Refusal({.connections = 1'100'000, .fd_tables = "shared"}),
              AllOf(HasSubstr("1,048,576 (fs.nr_open)"),
                    HasSubstr("sysctl -w fs.nr_open=")));
}

TEST_F(PlanTest, WhatCannotBeReadIsUnknownAndSaid) {
  for (const char* file :
       {"/proc/sys/fs/file-max", "/proc/sys/fs/epoll/max_user_watches",
        "/proc/meminfo", "/proc/sys/net/ipv4/ip_local_port_range",
        "/proc/self/limits", "/proc/sys/fs/nr_open",
        "/proc/sys/net/core/somaxconn", "/proc/loadavg", "/proc/self/status",
        "/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max"}) {
    Remove(file);
  }
  const absl::StatusOr<Plan> plan = Make();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->connections, 1'000'000u);
  EXPECT_EQ(plan->window, 64u);
  EXPECT_THAT(DescribePlan(*plan, Read()),
              AllOf(HasSubstr("unknown"), HasSubstr("MemAvailable"),
                    HasSubstr("fs.file-max"), HasSubstr("RLIMIT_NOFILE")));
}

TEST_F(PlanTest, TheIdleTimeoutNeverEndsTheRun) {
  EXPECT_GE(Make({.connections = 1000, .hold_seconds = 3600})->idle_timeout,
            std::chrono::seconds(3600 + 600));
  EXPECT_GE(Make({.connections = 10'000, .connect_rate = 1})->idle_timeout,
            std::chrono::seconds(10'000));
}

TEST_F(PlanTest, BadSettingsNameTheValue) {
  EXPECT_THAT(Refusal({.connections = -5}), HasSubstr("--connections=-5"));
  EXPECT_THAT(Refusal({.reactors = 5000}), HasSubstr("--reactors=5000"));
  EXPECT_THAT(Refusal({.hold_seconds = -1}), HasSubstr("--hold=-1"));
  EXPECT_THAT(Refusal({.heartbeat_qps = -1}), HasSubstr("--heartbeat_qps=-1"));
  EXPECT_THAT(Refusal({.connect_rate = -1}), HasSubstr("--connect_rate=-1"));
  EXPECT_THAT(Refusal({.fd_tables = "some"}),
              AllOf(HasSubstr("--fd_tables=some"), HasSubstr("per_reactor")));
}

TEST_F(PlanTest, MemoryOfTheKernelAndOfAProcess) {
  Put("/proc/net/sockstat",
      "sockets: used 15\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 187\n");
  const std::optional<KernelMemory> kernel = ReadKernelMemory(tree_.root());
  ASSERT_TRUE(kernel.has_value());
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(kernel->slab, 89'360u * 1024);
  EXPECT_EQ(kernel->socket_pages, 187 * page);
  EXPECT_EQ(kernel->tcp_sockets, 1u);
  EXPECT_EQ(kernel->kernel_stacks, 1460u * 1024);
  EXPECT_EQ(kernel->page_tables, 1932u * 1024);

  Put("/proc/77/statm", "1000 200 30 1 0 100 0\n");
  EXPECT_EQ(RssBytes(tree_.root(), 77), 200 * page);
  Put("/proc/77/smaps_rollup",
      "55e-7ff ---p 00000000 00:00 0 [rollup]\nRss:   1234 kB\nPss: 5 kB\n");
  EXPECT_EQ(RssBytes(tree_.root(), 77), 1234u * 1024);
  EXPECT_FALSE(RssBytes(tree_.root(), 78).has_value());
}

// The machine this runs on can be read, whatever it is.
TEST(Machine, ThisOne) {
  const Machine m = ReadMachine("");
  EXPECT_TRUE(m.nofile.has_value());
  EXPECT_TRUE(m.open_here.has_value());
  EXPECT_TRUE(m.memory_available.has_value());
  EXPECT_GE(m.cpus, 1u);
  EXPECT_TRUE(RssBytes("", getpid()).has_value());
  EXPECT_TRUE(CpuSeconds(getpid()).has_value());
  EXPECT_TRUE(ReadKernelMemory("").has_value());
}

}  // namespace
}  // namespace sluice::c1000k
