#include "reactor/internal/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Mode = CpuPinning::Mode;

std::vector<int> Allowed() {
  absl::StatusOr<std::vector<int>> cpus = AllowedCpus();
  EXPECT_TRUE(cpus.ok()) << cpus.status().ToString();
  return cpus.ok() ? *cpus : std::vector<int>();
}

std::vector<int> Assigned(const CpuPinning& pinning, int reactors,
                          const std::vector<int>& allowed) {
  absl::StatusOr<std::vector<int>> cpus =
      AssignCpus(pinning, reactors, allowed);
  EXPECT_TRUE(cpus.ok()) << cpus.status().ToString();
  return cpus.ok() ? *cpus : std::vector<int>();
}

std::string AssignError(const CpuPinning& pinning, int reactors,
                        const std::vector<int>& allowed) {
  absl::StatusOr<std::vector<int>> cpus =
      AssignCpus(pinning, reactors, allowed);
  if (cpus.ok()) return "";
  EXPECT_EQ(cpus.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(cpus.status().message());
}

// The body runs in a thread of its own, whose affinity it may change.
template <typename Body>
void InThread(Body body) {
  std::thread(body).join();
}

TEST(CpuAffinityTest, AllowedCpusAreWhatTheKernelSays) {
  const std::vector<int> allowed = Allowed();
  ASSERT_FALSE(allowed.empty());
  EXPECT_TRUE(std::is_sorted(allowed.begin(), allowed.end()));
  EXPECT_EQ(std::adjacent_find(allowed.begin(), allowed.end()), allowed.end());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    EXPECT_EQ(allowed.size(), static_cast<size_t>(CPU_COUNT(&set)));
    for (int cpu : allowed) EXPECT_TRUE(CPU_ISSET(cpu, &set)) << cpu;
  }
}

// B124: a set that does not start at 0 and has a gap. CPU numbers are taken
// from the set, never counted from 0.
TEST(CpuAffinityTest, B124AutoTakesCpusOfASetWithAGap) {
  EXPECT_THAT(Assigned({}, 2, {1, 3}), ElementsAre(1, 3));
  EXPECT_THAT(Assigned({}, 1, {1, 3}), ElementsAre(1));
  EXPECT_THAT(Assigned({}, 3, {1, 3}), ElementsAre(-1, -1, -1));
  EXPECT_THAT(Assigned({}, 2, {1500, 4000}), ElementsAre(1500, 4000));
}

// B124: the same with the affinity of a real thread.
TEST(CpuAffinityTest, B124LastAllowedCpuOnly) {
  const std::vector<int> all = Allowed();
  ASSERT_FALSE(all.empty());
  InThread([&] {
    ASSERT_EQ(PinThisThread(all.back()), absl::OkStatus());
    const std::vector<int> now = Allowed();
    EXPECT_THAT(now, ElementsAre(all.back()));
    const std::vector<int> assigned =
        Assigned({}, static_cast<int>(now.size()), now);
    EXPECT_THAT(assigned, ElementsAre(all.back()));
    EXPECT_EQ(PinThisThread(assigned[0]), absl::OkStatus());
    EXPECT_EQ(sched_getcpu(), all.back());
  });
}

// B124: a CPU that is not there is an error, and the thread runs on as before.
TEST(CpuAffinityTest, B124PinToAMissingCpuFails) {
  InThread([] {
    const std::vector<int> before = Allowed();
    for (int cpu : {1'000'000, -1}) {
      const absl::Status status = PinThisThread(cpu);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("pin to CPU " + std::to_string(cpu)));
    }
    EXPECT_EQ(Allowed(), before);
  });
}

TEST(CpuAffinityTest, OffPinsNothing) {
  EXPECT_THAT(Assigned({Mode::kOff, {}}, 2, {0, 1}), ElementsAre(-1, -1));
}

TEST(CpuAffinityTest, ListIsTakenInTurn) {
  EXPECT_THAT(Assigned({Mode::kList, {3, 1}}, 5, {1, 2, 3}),
              ElementsAre(3, 1, 3, 1, 3));
  EXPECT_THAT(Assigned({Mode::kList, {3, 1}}, 1, {1, 3}), ElementsAre(3));
}

TEST(CpuAffinityTest, BadPinning) {
  EXPECT_THAT(AssignError({Mode::kList, {1, 2}}, 2, {1, 3}),
              HasSubstr("CPU 2, which is not one of the allowed {1,3}"));
  // One that no reactor would get is wrong as well.
  EXPECT_THAT(AssignError({Mode::kList, {1, -1}}, 1, {1}), HasSubstr("CPU -1"));
  EXPECT_THAT(AssignError({Mode::kList, {}}, 1, {1}), HasSubstr("empty"));
  EXPECT_THAT(AssignError({Mode::kAuto, {1}}, 1, {1}), HasSubstr("{1}"));
  EXPECT_THAT(AssignError({Mode::kOff, {1}}, 1, {1}), HasSubstr("not kList"));
  EXPECT_THAT(AssignError({}, -1, {1}), HasSubstr("-1 reactors"));
}

TEST(CpuAffinityTest, ScopedAffinityRestores) {
  InThread([] {
    const std::vector<int> before = Allowed();
    {
      ScopedAffinity scope;
      ASSERT_EQ(PinThisThread(before.back()), absl::OkStatus());
      EXPECT_THAT(Allowed(), ElementsAre(before.back()));
    }
    EXPECT_EQ(Allowed(), before);
  });
}

}  // namespace
}  // namespace sluice::internal
