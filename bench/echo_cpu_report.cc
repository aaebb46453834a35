#include "bench/echo_cpu_report.h"

#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/median.h"

namespace sluice::bench {
namespace {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

std::vector<double> Column(const std::vector<EchoTurn>& turns,
                           double EchoTurn::*field) {
  std::vector<double> values;
  for (const EchoTurn& turn : turns) values.push_back(turn.*field);
  return values;
}

double MedianOf(const std::vector<EchoTurn>& turns, double EchoTurn::*field) {
  return Median(Column(turns, field));
}

Spread CpuSpread(const std::vector<EchoTurn>& turns) {
  const std::vector<double> ns = Column(turns, &EchoTurn::cpu_ns);
  return {Median(ns), *std::min_element(ns.begin(), ns.end()),
          *std::max_element(ns.begin(), ns.end())};
}

std::string ServerJson(const std::string& name,
                       const std::vector<EchoTurn>& turns) {
  const Spread cpu = CpuSpread(turns);
  std::string list;
  for (const EchoTurn& turn : turns) {
    absl::StrAppendFormat(&list, "%s%.1f", list.empty() ? "" : ", ",
                          turn.cpu_ns);
  }
  return absl::StrFormat(
      "{\"name\": \"%s\", \"cpu_ns_per_echo\": {\"median\": %.1f, \"min\": "
      "%.1f, \"max\": %.1f}, \"user_ns\": %.1f, \"system_ns\": %.1f, "
      "\"switches_per_echo\": %.5f, \"rtt_us\": {\"p50\": %.1f, \"p99\": "
      "%.1f}, \"turns_ns\": [%s]}",
      name, cpu.median, cpu.min, cpu.max, MedianOf(turns, &EchoTurn::user_ns),
      MedianOf(turns, &EchoTurn::system_ns),
      MedianOf(turns, &EchoTurn::switches),
      MedianOf(turns, &EchoTurn::rtt_p50_us),
      MedianOf(turns, &EchoTurn::rtt_p99_us), list);
}

absl::StatusOr<std::FILE*> OpenJson(const std::string& path, const char* mode) {
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file != nullptr) return file;
  return absl::ErrnoToStatus(errno, absl::StrCat("--json=", path));
}

}  // namespace

std::optional<double> EchoGoal(int connections) {
  switch (connections) {
    case 64:
      return 1.05;
    case 1:
    case 1000:
      return 1.08;
    default:
      return std::nullopt;
  }
}

double RatioOfMedians(const EchoCase& c) {
  return MedianOf(c.turns[1], &EchoTurn::cpu_ns) /
         MedianOf(c.turns[0], &EchoTurn::cpu_ns);
}

double MedianOfRatios(const EchoCase& c) {
  std::vector<double> ratios;
  const size_t pairs = std::min(c.turns[0].size(), c.turns[1].size());
  for (size_t i = 0; i < pairs; ++i) {
    ratios.push_back(c.turns[1][i].cpu_ns / c.turns[0][i].cpu_ns);
  }
  return Median(std::move(ratios));
}

bool MeetsGoal(const EchoCase& c) {
  const std::optional<double> goal = EchoGoal(c.connections);
  return !goal || RatioOfMedians(c) <= *goal;
}

void PrintTable(const EchoCpuSetup& setup, const std::vector<EchoCase>& cases) {
  std::printf("server CPU per echo; %s\n", setup.what.c_str());
  std::printf("%6s  %-7s %9s %9s %9s %8s %8s %8s %9s %9s\n", "conns", "server",
              "ns/echo", "min", "max", "user", "system", "sleeps", "p50 us",
              "p99 us");
  for (const EchoCase& c : cases) {
    for (size_t s = 0; s < c.turns.size(); ++s) {
      const std::vector<EchoTurn>& turns = c.turns[s];
      const Spread cpu = CpuSpread(turns);
      std::printf("%6d  %-7s %9.0f %9.0f %9.0f %8.0f %8.0f %8.4f %9.1f %9.1f\n",
                  c.connections, setup.servers[s].c_str(), cpu.median, cpu.min,
                  cpu.max, MedianOf(turns, &EchoTurn::user_ns),
                  MedianOf(turns, &EchoTurn::system_ns),
                  MedianOf(turns, &EchoTurn::switches),
                  MedianOf(turns, &EchoTurn::rtt_p50_us),
                  MedianOf(turns, &EchoTurn::rtt_p99_us));
    }
    const std::optional<double> goal = EchoGoal(c.connections);
    const std::string verdict =
        goal ? absl::StrFormat("goal %.2f: %s", *goal,
                               MeetsGoal(c) ? "ok" : "MISSED")
             : std::string("no goal");
    std::printf("        ratio of medians %.3f, median of ratios %.3f, %s\n",
                RatioOfMedians(c), MedianOfRatios(c), verdict.c_str());
  }
}

absl::Status CheckJsonPath(const std::string& path) {
  absl::StatusOr<std::FILE*> file = OpenJson(path, "a");
  if (!file.ok()) return file.status();
  std::fclose(*file);
  return absl::OkStatus();
}

absl::Status WriteJson(const std::string& path, const EchoCpuSetup& setup,
                       const std::vector<EchoCase>& cases) {
  std::string list;
  for (const EchoCase& c : cases) {
    const std::optional<double> goal = EchoGoal(c.connections);
    absl::StrAppendFormat(
        &list,
        "%s\n  {\"connections\": %d, \"messages\": %u, \"goal\": %s, "
        "\"ratio_of_medians\": %.4f, \"median_of_ratios\": %.4f, \"ok\": %s,\n"
        "   \"servers\": [\n    %s,\n    %s]}",
        list.empty() ? "" : ",", c.connections, c.messages,
        goal ? absl::StrFormat("%.2f", *goal) : std::string("null"),
        RatioOfMedians(c), MedianOfRatios(c), MeetsGoal(c) ? "true" : "false",
        ServerJson(setup.servers[0], c.turns[0]),
        ServerJson(setup.servers[1], c.turns[1]));
  }
  const std::string text = absl::StrFormat(
      "{\"message_bytes\": %u, \"turns\": %d, \"setup\": \"%s\", \"cases\": "
      "[%s]}\n",
      setup.message_bytes, setup.turns, setup.what, list);

  absl::StatusOr<std::FILE*> file = OpenJson(path, "w");
  if (!file.ok()) return file.status();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), *file) == text.size();
  const int error = errno;
  const bool closed = std::fclose(*file) == 0;
  if (written && closed) return absl::OkStatus();
  return absl::ErrnoToStatus(written ? errno : error,
                             absl::StrCat("--json=", path));
}

}  // namespace sluice::bench
