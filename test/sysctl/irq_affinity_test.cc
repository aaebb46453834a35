// sysctl/irq_affinity on trees of files, with each shell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "test/support/file_tree.h"
#include "test/sysctl/script.h"

namespace sluice::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class IrqAffinityTest : public testing::TestWithParam<std::string> {
 protected:
  // A card eth0 with so many queues each way, and a bridge without a device.
  void WriteMachine(const std::string& online, int queues,
                    const std::string& idle_mask) {
    tree_.Write("sys/devices/system/cpu/online", online + "\n");
    tree_.Write("sys/class/net/eth0/device/vendor", "0x1\n");
    tree_.Write("sys/class/net/br0/queues/rx-0/rps_cpus", "0\n");
    tree_.Write("proc/sys/net/core/rps_sock_flow_entries", "0\n");
    std::string interrupts = "           CPU0       CPU1\n";
    interrupts += " 30:  1  0  PCI-MSI 1-edge  eth0-config\n";
    interrupts += "  9:  1  0  IO-APIC 9-fasteoi  acpi\n";
    for (int i = 0; i < queues; ++i) {
      const std::string n = std::to_string(i);
      const std::string irq = std::to_string(31 + i);
      interrupts += " " + irq + ":  5  7  PCI-MSI " + irq +
                    "-edge  eth0-TxRx-" + n + "\n";
      tree_.Write("proc/irq/" + irq + "/smp_affinity_list", online + "\n");
      const std::string at = "sys/class/net/eth0/queues/";
      tree_.Write(at + "rx-" + n + "/rps_cpus", idle_mask + "\n");
      tree_.Write(at + "rx-" + n + "/rps_flow_cnt", "0\n");
      tree_.Write(at + "tx-" + n + "/xps_cpus", idle_mask + "\n");
    }
    interrupts += "NMI:  0  0  Non-maskable interrupts\n";
    tree_.Write("proc/interrupts", interrupts);
  }
  ScriptResult Run(std::vector<std::string> arguments) {
    arguments.push_back("--root=" + tree_.root());
    return RunScript(GetParam(), "irq_affinity", arguments);
  }
  std::string Affinity(int irq) {
    return tree_.Read("proc/irq/" + std::to_string(irq) + "/smp_affinity_list");
  }
  std::string Queue(const std::string& path) {
    return tree_.Read("sys/class/net/eth0/queues/" + path);
  }

  FileTree tree_;
};

INSTANTIATE_TEST_SUITE_P(EachShell, IrqAffinityTest,
                         testing::ValuesIn(Shells()),
                         [](const auto& shell) { return shell.param; });

TEST_P(IrqAffinityTest, AsManyQueuesAsCpusGetOneEach) {
  WriteMachine("0-3", 4, "0");
  const ScriptResult run = Run({"--apply"});
  EXPECT_EQ(run.code, 0) << run.out << run.error;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Affinity(31 + i), std::to_string(i));
  EXPECT_EQ(Queue("rx-2/rps_cpus"), "0");
  EXPECT_EQ(Queue("tx-2/xps_cpus"), "4");
  EXPECT_EQ(tree_.Read("proc/sys/net/core/rps_sock_flow_entries"), "0");
}

TEST_P(IrqAffinityTest, FewerQueuesShareTheCpusInSoftware) {
  WriteMachine("0-5", 2, "00");
  const ScriptResult run = Run({"--apply"});
  EXPECT_EQ(run.code, 0) << run.out << run.error;
  EXPECT_EQ(Affinity(31), "0");
  EXPECT_EQ(Affinity(32), "1");
  EXPECT_EQ(Queue("rx-0/rps_cpus"), "15");  // CPUs 0, 2 and 4
  EXPECT_EQ(Queue("rx-1/rps_cpus"), "2a");
  EXPECT_EQ(Queue("tx-1/xps_cpus"), "2a");
  EXPECT_EQ(Queue("rx-0/rps_flow_cnt"), "16384");
  EXPECT_EQ(tree_.Read("proc/sys/net/core/rps_sock_flow_entries"), "32768");
  EXPECT_EQ(tree_.Read("sys/class/net/br0/queues/rx-0/rps_cpus"), "0");
}

TEST_P(IrqAffinityTest, OneQueueDealsToAllAndMasksHaveCommas) {
  WriteMachine("0-39", 1, "00,00000000");
  const ScriptResult run = Run({"--apply"});
  EXPECT_EQ(run.code, 0) << run.out << run.error;
  EXPECT_EQ(Queue("rx-0/rps_cpus"), "ff,ffffffff");
  // There is one queue to send through, so nothing to choose.
  EXPECT_EQ(Queue("tx-0/xps_cpus"), "00,00000000");
}

TEST_P(IrqAffinityTest, OnlyTheCpusThatAreAskedFor) {
  WriteMachine("0-7", 2, "0");
  EXPECT_EQ(Run({"--apply", "--cpus=1,4-6"}).code, 0);
  EXPECT_EQ(Affinity(31), "1");
  EXPECT_EQ(Affinity(32), "4");
  EXPECT_EQ(Queue("rx-0/rps_cpus"), "22");  // CPUs 1 and 5
  EXPECT_EQ(Queue("rx-1/rps_cpus"), "50");
}

TEST_P(IrqAffinityTest, ShowsFirstAndRevertsExactly) {
  WriteMachine("0-3", 1, "0");
  const auto before = tree_.Everything("");
  const ScriptResult show = Run({});
  EXPECT_EQ(show.code, 0);
  EXPECT_THAT(show.out, HasSubstr("eth0: 1 queues in, 1 out, 1 interrupts"));
  EXPECT_THAT(show.Line("irq/31/smp_affinity_list"), EndsWith("would change"));
  EXPECT_EQ(tree_.Everything(""), before);

  EXPECT_EQ(Run({"--apply"}).code, 0);
  const ScriptResult again = Run({"--apply"});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr(" 0 changed, 0 not as they should be"));
  EXPECT_EQ(Run({"--revert"}).code, 0);
  EXPECT_EQ(tree_.Everything(""), before);
}

// Kernels write masks with leading zeros.
TEST_P(IrqAffinityTest, AMaskIsTheSameHoweverItIsWritten) {
  WriteMachine("0-3", 1, "0000000f");
  const ScriptResult run = Run({"--apply"});
  EXPECT_THAT(run.Line("eth0/queues/rx-0/rps_cpus"), EndsWith("is so already"));
}

TEST_P(IrqAffinityTest, VirtioInterruptsAreFoundByTheirDevice) {
  WriteMachine("0-1", 1, "0");
  tree_.Remove("sys/class/net/eth0/device");
  tree_.Write("sys/devices/virtio3/vendor", "0x1af4\n");
  tree_.Link("sys/class/net/eth0/device",
             tree_.At("sys/devices/virtio3").string());
  tree_.Write("proc/interrupts",
              " 31:  1  0  PCI-MSI 1  virtio3-config\n"
              " 32:  1  0  PCI-MSI 2  virtio3-input.0\n"
              " 33:  1  0  PCI-MSI 3  virtio3-output.0\n"
              " 34:  1  0  PCI-MSI 3  virtio4-input.0\n");
  for (int irq = 31; irq <= 34; ++irq) {
    tree_.Write("proc/irq/" + std::to_string(irq) + "/smp_affinity_list",
                "0-1\n");
  }
  EXPECT_EQ(Run({"--apply"}).code, 0);
  EXPECT_EQ(Affinity(31), "0-1");
  EXPECT_EQ(Affinity(32), "0");
  EXPECT_EQ(Affinity(33), "0");
  EXPECT_EQ(Affinity(34), "0-1");
}

TEST_P(IrqAffinityTest, TroublesAreToldAndTheRestIsDone) {
  WriteMachine("0-3", 2, "0");
  tree_.Remove("proc/irq/31/smp_affinity_list");
  tree_.Link("proc/irq/32/smp_affinity_list", "/proc/sys/kernel/cap_last_cap");
  const ScriptResult run = Run({"--apply"});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.Line("irq/31/smp_affinity_list"), HasSubstr("MISSING"));
  EXPECT_THAT(run.Line("irq/32/smp_affinity_list"),
              HasSubstr("NOT SET: refused: Permission denied"));
  EXPECT_EQ(Queue("rx-0/rps_cpus"), "5");
}

TEST_P(IrqAffinityTest, WarnsOfIrqbalance) {
  WriteMachine("0-1", 1, "0");
  EXPECT_EQ(Run({}).out.find("irqbalance"), std::string::npos);
  tree_.Write("proc/812/comm", "irqbalance\n");
  EXPECT_THAT(Run({}).out, HasSubstr("warning: irqbalance is running"));
}

TEST_P(IrqAffinityTest, BadUseNamesTheValue) {
  WriteMachine("0-3", 1, "0");
  const std::vector<std::pair<std::vector<std::string>, std::string>> uses = {
      {{"--cpus=3-1"}, "--cpus=3-1: must be numbers and ranges"},
      {{"--cpus=a"}, "--cpus=a: must be numbers"},
      {{"--cpus=2,7"}, "CPU 7 is not online (0-3 are)"},
      {{"--interface=eth9"}, "--interface=eth9: there is none"},
      {{"now"}, "now: unknown"}};
  for (const auto& [arguments, message] : uses) {
    const ScriptResult run = Run(arguments);
    EXPECT_EQ(run.code, 2) << message;
    EXPECT_THAT(run.error, HasSubstr(message));
  }
  EXPECT_EQ(RunScript(GetParam(), "irq_affinity", {"--root=/nowhere"}).code, 2);
}

}  // namespace
}  // namespace sluice::test
