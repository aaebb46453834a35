// How often the loops of an engine with nothing to do wake up. README.md says
// how to read it.
#include <gflags/gflags.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/process.h"
#include "bench/program.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

DEFINE_int32(reactors, 4, "reactors of the engine");
DEFINE_double(seconds, 3, "how long it is watched");
DEFINE_bool(idle_timeout, true, "with an idle timeout, for the timer wheel");
DEFINE_double(limit_wakeups, 5, "a second and loop, for --check");
DEFINE_double(limit_cpu, 0.5, "per cent of one CPU, for --check");
DEFINE_bool(check, false, "exit 1 if a limit is exceeded");

namespace sluice::bench {
namespace {

constexpr std::chrono::milliseconds kSettle{300};

class Idle : public EventHandler {
 public:
  Action OnBoot(Engine&) override {
    booted_.set_value();
    return Action::kNone;
  }
  Action OnTraffic(Connection&) override { return Action::kNone; }
  std::promise<void> booted_;
};

struct Sample {
  uint64_t turns = 0;    // what the engine says
  int64_t switches = 0;  // what the kernel says: threads that went to sleep
  double cpu_seconds = 0;
};

Sample Take(const Engine& engine) {
  Sample sample;
  sample.turns = engine.stats().turns;
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  sample.switches = usage.ru_nvcsw;
  timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  sample.cpu_seconds =
      static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9;
  return sample;
}

// One sleep, so that watching adds one wake-up; Ctrl-C ends it.
void Sleep(std::chrono::duration<double> time) {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  const timespec wanted{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&wanted, nullptr);
}

bool Report(const Sample& begin, const Sample& end, double seconds, int loops) {
  const auto rate = [&](auto count) {
    return static_cast<double>(count) / seconds / loops;
  };
  const double turns = rate(end.turns - begin.turns);
  // The watching thread slept once itself.
  const double switches = rate(end.switches - begin.switches - 1);
  const double cpu = 100 * (end.cpu_seconds - begin.cpu_seconds) / seconds;
  const auto verdict = [](double value, double limit) {
    return value <= limit ? "ok" : "MISSED";
  };
  std::printf("idle engine; %d reactors, %d loops, no connections, %.1f s\n",
              FLAGS_reactors, loops, seconds);
  std::printf(
      "wake-ups a second and loop, counted by the engine  %8.2f  "
      "limit %g: %s\n",
      turns, FLAGS_limit_wakeups, verdict(turns, FLAGS_limit_wakeups));
  std::printf(
      "                            counted by the kernel  %8.2f  "
      "limit %g: %s\n",
      switches, FLAGS_limit_wakeups, verdict(switches, FLAGS_limit_wakeups));
  std::printf(
      "CPU, per cent of one                               %8.3f  "
      "limit %g: %s\n",
      cpu, FLAGS_limit_cpu, verdict(cpu, FLAGS_limit_cpu));
  return turns <= FLAGS_limit_wakeups && switches <= FLAGS_limit_wakeups &&
         cpu <= FLAGS_limit_cpu;
}

// True if every limit holds.
absl::StatusOr<bool> Measure() {
  if (FLAGS_seconds <= 0 || FLAGS_seconds > 86'400) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--seconds=", FLAGS_seconds, ": must be above 0 and at most 86400"));
  }
  Options options;
  options.reactors = FLAGS_reactors;
  if (FLAGS_idle_timeout) options.limits.idle_timeout = std::chrono::minutes(1);
  Idle handler;
  std::future<void> booted = handler.booted_.get_future();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {"tcp://127.0.0.1:0"}, std::move(options));
  if (!engine.ok()) return engine.status();

  std::promise<absl::Status> ended;
  std::future<absl::Status> outcome = ended.get_future();
  std::thread main_loop(
      [&engine, &ended] { ended.set_value((*engine)->Run()); });
  const auto has_ended = [&outcome] {
    return outcome.wait_for(std::chrono::seconds(0)) ==
           std::future_status::ready;
  };
  // Run may fail before OnBoot.
  while (booted.wait_for(std::chrono::milliseconds(10)) !=
             std::future_status::ready &&
         !has_ended() && !Interrupted()) {
  }
  if (!has_ended() && !Interrupted()) Sleep(kSettle);
  const auto from = std::chrono::steady_clock::now();
  const Sample begin = Take(**engine);
  if (!has_ended() && !Interrupted()) {
    Sleep(std::chrono::duration<double>(FLAGS_seconds));
  }
  const Sample end = Take(**engine);
  const std::chrono::duration<double> watched =
      std::chrono::steady_clock::now() - from;
  const bool ended_early = has_ended();
  (*engine)->Stop();
  main_loop.join();
  if (absl::Status s = outcome.get(); !s.ok()) return s;
  if (Interrupted()) return absl::CancelledError("interrupted");
  if (ended_early) {
    return absl::InternalError("Engine::Run returned without being stopped");
  }
  const int reactors = (*engine)->reactors();
  // A single reactor runs in the main loop.
  const int loops = reactors == 1 ? 1 : reactors + 1;
  return Report(begin, end, watched.count(), loops);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("counts the wake-ups of an idle engine", &argc, &argv);
  return MeasureMain("idle_wakeups", argc, argv, FLAGS_check, Measure);
}
