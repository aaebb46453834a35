#include "examples/c1000k/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "examples/c1000k/source_addresses.h"
#include "examples/format.h"

namespace sluice::c1000k {
namespace {

using examples::WithCommas;

absl::Status TooMany(uint64_t wanted, const Limit& limit) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "this machine cannot hold ", WithCommas(wanted), " connections, only ",
      WithCommas(limit.connections),
      "; nothing was started.\n  limit:   ", limit.name, " is ", limit.value,
      "\n  needed:  ", limit.needed, "\n  fix:     ", limit.fix));
}

// Reactors where descriptors do not ask for more.
uint64_t PlainReactors(const Machine& machine, const Settings& settings) {
  if (settings.reactors > 0) return static_cast<uint64_t>(settings.reactors);
  return std::clamp<uint64_t>(machine.cpus, 1,
                              std::max<uint64_t>(1, MostReactors(machine)));
}

// The tables and the reactors for `wanted`, and what they hold.
Limit ChooseTables(const Machine& machine, const Settings& settings,
                   uint64_t wanted, Plan* plan) {
  const uint64_t plain = PlainReactors(machine, settings);
  const bool fits = TableRoom(machine, plain) >= wanted;
  if (settings.fd_tables == "shared" ||
      (settings.fd_tables == "auto" && fits)) {
    plan->fd_tables = FdTables::kShared;
    plan->reactors = static_cast<int>(plain);
    return SharedTableLimit(machine, plain, wanted);
  }
  plan->fd_tables = FdTables::kPerReactor;
  const bool asked = settings.reactors > 0;
  const uint64_t reactors =
      asked
          ? plain
          : std::max(ReactorsForOwnTables(machine, wanted),
                     plain * TableRoom(machine, plain) >= wanted ? plain
                                                                 : uint64_t{1});
  plan->reactors = static_cast<int>(reactors);
  return OwnTablesLimit(machine, reactors, asked, wanted);
}

// The server's idle timeout is on, so that the timers' cost is in what is
// measured, and long enough that it never ends a connection of ours: a
// heartbeat may take the whole time to come round.
std::chrono::milliseconds IdleTimeout(const Settings& settings,
                                      uint64_t connections) {
  double seconds = 600 + settings.hold_seconds;
  if (settings.connect_rate > 0) {
    seconds += static_cast<double>(connections) /
               static_cast<double>(settings.connect_rate);
  }
  constexpr double kTwentyDays = 20 * 24 * 3600.0;  // what the wheel can do
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::min(seconds, kTwentyDays) * 1000));
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Machine& machine,
                              const Settings& settings) {
  if (absl::Status s = ValidateSettings(settings); !s.ok()) return s;
  Plan plan;
  plan.asked = settings.connections > 0;
  const uint64_t wanted =
      plan.asked ? static_cast<uint64_t>(settings.connections) : kMost;

  const uint64_t most_reactors = MostReactors(machine);
  if (static_cast<uint64_t>(settings.reactors) > most_reactors ||
      most_reactors == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "--reactors=", settings.reactors,
        ": the threads of this machine are enough for ", most_reactors,
        " reactors in each of two processes; nothing was started.\n  fix:     "
        "fewer --reactors, or raise kernel.threads-max, kernel.pid_max or "
        "pids.max of the control group"));
  }

  std::vector<Limit> limits = MachineLimits(machine, wanted, &plan.unknown);
  plan.connections = wanted;
  if (!limits.empty() && !plan.asked) {
    plan.connections = std::min(wanted, limits[0].connections);
  }
  // Tables are chosen for what the rest allows: no 52 reactors where memory
  // ends at a thousand connections.
  const Limit tables = ChooseTables(machine, settings, plan.connections, &plan);
  // Where the number of reactors is ours to choose, tables that hold the wanted
  // number are no limit: there could be more of them.
  const bool tables_count =
      tables.connections < plan.connections || settings.fd_tables == "shared" ||
      (plan.fd_tables == FdTables::kPerReactor && settings.reactors > 0);
  plan.tightest = !limits.empty() && (!tables_count || limits[0].connections <=
                                                           tables.connections)
                      ? limits[0]
                      : tables;
  if (plan.tightest.connections < plan.connections || plan.connections == 0) {
    if (plan.asked || plan.tightest.connections == 0) {
      return TooMany(wanted, plan.tightest);
    }
    plan.connections = plan.tightest.connections;
  }

  plan.per_source = PortsPerSource(machine);
  plan.sources = static_cast<size_t>((plan.connections + plan.per_source - 1) /
                                     plan.per_source);
  plan.sources_most = std::min(
      kMaxSources, plan.sources + std::max<size_t>(8, plan.sources / 4));
  // Half of the listener's queue: even if the server takes none for a while,
  // what is on its way fits.
  plan.window = std::max<uint64_t>(1, machine.somaxconn.value_or(128) / 2);
  plan.idle_timeout = IdleTimeout(settings, plan.connections);
  return plan;
}

std::string FdTablesName(FdTables tables) {
  return tables == FdTables::kShared ? "shared" : "per_reactor";
}

std::string DescribePlan(const Plan& plan, const Machine& machine) {
  std::string text = absl::StrCat(
      "plan    ", WithCommas(plan.connections), " connections, ",
      plan.asked ? "as asked for" : "the most of this machine", "\n");
  const Limit& limit = plan.tightest;
  if (!plan.asked && plan.connections < kMost) {
    absl::StrAppend(&text, "limit   ", limit.name, " is ", limit.value,
                    "\nfix     ", limit.fix, "\n");
  } else if (limit.connections > 0) {
    absl::StrAppend(&text, "limit   none binds; the next one is ", limit.name,
                    ", enough for ", WithCommas(limit.connections),
                    " connections: ", limit.value, "\n");
  }
  if (!plan.unknown.empty()) {
    absl::StrAppend(&text, "unknown ", absl::StrJoin(plan.unknown, ", "),
                    " could not be read and is not counted with\n");
  }
  absl::StrAppend(&text, "shape   ", plan.reactors,
                  plan.reactors == 1 ? " reactor" : " reactors",
                  " in each process, ",
                  plan.fd_tables == FdTables::kShared
                      ? "one table of descriptors"
                      : "each with a table of descriptors of its own");
  if (machine.nofile) {
    absl::StrAppend(&text, " (RLIMIT_NOFILE ", WithCommas(*machine.nofile),
                    ")");
  }
  absl::StrAppend(&text, "; ", plan.sources, " source ",
                  plan.sources == 1 ? "address" : "addresses", " from ",
                  SourceAddress(0), " on, ", WithCommas(plan.per_source),
                  " connections each; at most ", WithCommas(plan.window),
                  " on their way at a time\n");
  return text;
}

}  // namespace sluice::c1000k
