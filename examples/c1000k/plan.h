// c1000k: what is going to be done, decided before anything starts.
#ifndef SLUICE_EXAMPLES_C1000K_PLAN_H_
#define SLUICE_EXAMPLES_C1000K_PLAN_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/c1000k/limits.h"
#include "examples/c1000k/machine.h"
#include "examples/c1000k/settings.h"
#include "reactor/options.h"

namespace sluice::c1000k {

struct Plan {
  uint64_t connections = 0;
  bool asked = false;  // --connections was given
  FdTables fd_tables = FdTables::kShared;
  int reactors = 1;         // of each process
  uint64_t per_source = 0;  // connections from one source address
  size_t sources = 0;       // that are needed
  size_t sources_most = 0;  // with those to fall back on
  uint64_t window = 0;      // connections on their way at a time
  std::chrono::milliseconds idle_timeout{0};  // of the server

  Limit tightest;                    // of all limits
  std::vector<std::string> unknown;  // limits that could not be read
};

// Pure: from facts to a plan. InvalidArgument for a bad setting;
// ResourceExhausted if the machine cannot hold what was asked for, with the
// limit, its value, what is needed and the fix.
absl::StatusOr<Plan> MakePlan(const Machine& machine, const Settings& settings);

// A few lines for the user: how many, which limit binds, how to lift it.
std::string DescribePlan(const Plan& plan, const Machine& machine);

std::string FdTablesName(FdTables tables);  // as in --fd_tables

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_PLAN_H_
