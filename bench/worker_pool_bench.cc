// What a job of the worker pool costs: beside plain threads, beside other
// pools, and in memory. README.md says how to read it.
#include <gflags/gflags.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/median.h"
#include "bench/process.h"
#include "bench/program.h"
#include "bench/worker_pool_programs.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "worker_pool/worker_pool.h"

DEFINE_string(measures, "compute,empty,single,memory", "which ones");
DEFINE_string(peers, "tbb,asio,goroutines", "which ones; empty: none");
DEFINE_string(peers_dir, "",
              "where worker_pool_peers/build.sh has put them; empty: "
              "worker_pool_peers beside this program");
DEFINE_int32(threads, 0, "workers; 0: one for each CPU");
DEFINE_int32(tasks, 100'000, "tasks of a measurement");
DEFINE_int32(rounds, 2'000, "of the arithmetic in a task of \"compute\"");
DEFINE_int32(turns, 7, "of each program");
DEFINE_int32(repeats, 5, "measurements a turn, of which the median counts");
DEFINE_int32(sample_every, 16, "sluice: WorkerPoolOptions::sample_every");
DEFINE_double(limit_compute, 1.10, "times plain threads, for --check");
DEFINE_double(limit_empty, 1.0, "times each peer, for --check");
DEFINE_double(limit_bytes, 200, "of a job that waits, for --check");
DEFINE_bool(check, false, "exit 1 if a limit is exceeded or a peer is missing");
DEFINE_string(run, "", "for its own use: be this program");

namespace sluice::bench {
namespace {

struct Program {
  std::string name;
  std::vector<std::string> command;
  std::vector<PoolTurn> turns;
};

double Wall(const Program& program) {
  std::vector<double> values;
  for (const PoolTurn& turn : program.turns) values.push_back(turn.wall_ns);
  return Median(std::move(values));
}

// Of each turn and its neighbour in time.
double MedianOfRatios(const Program& a, const Program& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.turns.size(); ++i) {
    ratios.push_back(a.turns[i].wall_ns / b.turns[i].wall_ns);
  }
  return Median(std::move(ratios));
}

std::string OwnPath() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return path;
}

Program Own(const std::string& name) {
  return {name,
          {OwnPath(), absl::StrCat("--run=", name),
           absl::StrCat("--sample_every=", FLAGS_sample_every)},
          {}};
}

// Those that are there. *all is false if one is not.
std::vector<Program> Peers(bool* all) {
  std::string directory = FLAGS_peers_dir;
  if (directory.empty()) {
    directory = OwnPath();
    directory.resize(directory.rfind('/') + 1);
    directory += "worker_pool_peers";
  }
  std::vector<Program> peers;
  const std::vector<std::string> names =
      absl::StrSplit(FLAGS_peers, ',', absl::SkipEmpty());
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (access(path.c_str(), X_OK) == 0) {
      peers.push_back({name, {path}, {}});
      continue;
    }
    std::printf(
        "%s: NOT measured, there is no %s: see "
        "bench/worker_pool_peers/build.sh\n",
        name.c_str(), path.c_str());
    *all = false;
  }
  return peers;
}

// A B C D, B C D A, ...: everybody comes first, and behind everybody.
absl::Status TakeTurns(std::vector<Program>& programs,
                       const peer::Arguments& arguments) {
  const size_t count = programs.size();
  for (size_t turn = 0; turn < static_cast<size_t>(FLAGS_turns); ++turn) {
    for (size_t place = 0; place < count; ++place) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      Program& program = programs[(turn + place) % count];
      absl::StatusOr<PoolTurn> one = RunPoolProgram(program.command, arguments);
      if (!one.ok()) return one.status();
      program.turns.push_back(*one);
    }
  }
  return absl::OkStatus();
}

const char* Verdict(double value, double limit) {
  return value <= limit ? "ok" : "MISSED";
}

// programs[0] is sluice. `limit` 0: none. True if it holds beside all of them.
bool Print(const std::vector<Program>& programs, double limit) {
  std::printf("  %-12s %10s %10s %10s %9s   sluice is, times this\n", "ns/task",
              "median", "least", "most", "CPU");
  bool met = true;
  for (const Program& program : programs) {
    std::vector<double> walls;
    std::vector<double> cpus;
    for (const PoolTurn& turn : program.turns) {
      walls.push_back(turn.wall_ns);
      cpus.push_back(turn.cpu_ns);
    }
    std::printf("  %-12s %10.1f %10.1f %10.1f %9.1f", program.name.c_str(),
                Median(walls), *std::min_element(walls.begin(), walls.end()),
                *std::max_element(walls.begin(), walls.end()), Median(cpus));
    if (&program == &programs[0]) {
      std::printf("\n");
      continue;
    }
    const double ratio = Wall(programs[0]) / Wall(program);
    std::printf("   %6.3f (median of ratios %.3f)", ratio,
                MedianOfRatios(programs[0], program));
    if (limit > 0) {
      std::printf("  limit %g: %s", limit, Verdict(ratio, limit));
      met = met && ratio <= limit;
    }
    std::printf("\n");
  }
  return met;
}

peer::Arguments ArgumentsFor(const char* measure, int tasks) {
  peer::Arguments arguments;
  arguments.measure = measure;
  arguments.tasks = tasks;
  arguments.rounds = FLAGS_rounds;
  arguments.threads = FLAGS_threads;
  arguments.repeats = FLAGS_repeats;
  return arguments;
}

absl::StatusOr<bool> MeasureCompute() {
  std::printf("compute: %d tasks of %d rounds, %d threads\n", FLAGS_tasks,
              FLAGS_rounds, FLAGS_threads);
  std::vector<Program> programs = {Own("sluice"), Own("plain")};
  peer::Arguments arguments = ArgumentsFor("compute", FLAGS_tasks);
  arguments.repeats = 1;  // long enough by itself
  if (absl::Status s = TakeTurns(programs, arguments); !s.ok()) return s;
  return Print(programs, FLAGS_limit_compute);
}

absl::StatusOr<bool> MeasureEmpty(const char* measure, int tasks,
                                  double limit) {
  std::printf("%s: %d empty tasks, %s, %d threads\n", measure, tasks,
              limit > 0 ? "from the first submission until all are done"
                        : "each submitted when the one before is done",
              FLAGS_threads);
  bool all = true;
  std::vector<Program> programs = Peers(&all);
  programs.insert(programs.begin(), Own("sluice"));
  const peer::Arguments arguments = ArgumentsFor(measure, tasks);
  if (absl::Status s = TakeTurns(programs, arguments); !s.ok()) return s;
  return Print(programs, limit) && (all || limit <= 0);
}

// Bytes in use in malloc, its own included.
size_t UsedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Bytes for each of the tasks that wait for the one worker, which is busy.
template <typename Submit>
absl::StatusOr<double> PendingBytes(JobOrder order, Submit submit) {
  WorkerPoolOptions options;
  options.threads = 1;
  options.queue = static_cast<size_t>(FLAGS_tasks);
  options.order = order;
  options.at_shutdown = AtShutdown::kCancel;
  // Before the pool: its worker may still be in them when we return.
  std::promise<void> runs;
  std::promise<void> release;
  const std::future<void> released = release.get_future();
  absl::StatusOr<std::unique_ptr<WorkerPool>> pool =
      WorkerPool::Create(std::move(options));
  if (!pool.ok()) return pool.status();
  absl::Status status = (*pool)->Submit([&] {
    runs.set_value();
    released.wait();
  });
  if (!status.ok()) return status;
  runs.get_future().wait();
  const size_t before = UsedBytes();
  for (int i = 0; i < FLAGS_tasks && status.ok(); ++i) status = submit(**pool);
  const size_t after = UsedBytes();
  const size_t queued = (*pool)->stats().queued;
  release.set_value();
  if (!status.ok()) return status;
  if (queued != static_cast<size_t>(FLAGS_tasks)) {
    return absl::InternalError(
        absl::StrCat(queued, " tasks wait instead of ", FLAGS_tasks));
  }
  return static_cast<double>(after - before) / FLAGS_tasks;
}

// A ticket of a connection that was there once, which is as large as any.
class OneConnection : public EventHandler {
 public:
  Action OnBoot(Engine& engine) override {
    dial_ = engine.Dial(engine.bound()[0], {},
                        [](const absl::StatusOr<Connection*>&) {});
    return dial_.ok() ? Action::kNone : Action::kShutdown;
  }
  Action OnOpen(Connection& connection) override {
    ref_ = connection.ref();
    return Action::kShutdown;
  }
  Action OnTraffic(Connection&) override { return Action::kNone; }
  absl::Status dial_;
  ConnectionRef ref_;
};

absl::StatusOr<ConnectionRef> SomeRef() {
  OneConnection handler;
  Options options;
  options.reactors = 1;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {"tcp://127.0.0.1:0"}, std::move(options));
  if (!engine.ok()) return engine.status();
  if (absl::Status s = (*engine)->Run(); !s.ok()) return s;
  if (!handler.dial_.ok()) return handler.dial_;
  if (handler.ref_ == ConnectionRef()) {
    return absl::InternalError("the engine ended without a connection");
  }
  return handler.ref_;
}

absl::StatusOr<bool> MeasureMemory() {
  std::printf("memory: %d tasks that wait\n", FLAGS_tasks);
  const absl::StatusOr<ConnectionRef> ref = SomeRef();
  if (!ref.ok()) return ref.status();
  using Row = std::array<char, 32>;
  static std::atomic<int> sink{0};
  const auto for_connection = [&ref](WorkerPool& pool) {
    return pool.Submit(
        *ref, [row = Row()] { return row; },
        [&ref](Connection&, const absl::StatusOr<Row>&) { (void)ref; });
  };
  struct Kind {
    const char* what;
    absl::StatusOr<double> bytes;
  };
  const Kind kinds[] = {
      {"no connection, a captured pointer",
       PendingBytes(JobOrder::kUnordered,
                    [p = &sink](WorkerPool& pool) {
                      return pool.Submit([p] { ++*p; });
                    })},
      {"no connection, 40 bytes of captures",
       PendingBytes(JobOrder::kUnordered,
                    [p = &sink](WorkerPool& pool) {
                      return pool.Submit([p, row = Row()] { *p += row[0]; });
                    })},
      {"of a connection, 40 bytes of captures, unordered",
       PendingBytes(JobOrder::kUnordered, for_connection)},
      {"of a connection, 40 bytes of captures, in order",
       PendingBytes(JobOrder::kPerConnection, for_connection)}};
  bool met = true;
  for (const Kind& kind : kinds) {
    if (!kind.bytes.ok()) return kind.bytes.status();
    std::printf("  %-50s %6.1f bytes  limit %g: %s\n", kind.what, *kind.bytes,
                FLAGS_limit_bytes, Verdict(*kind.bytes, FLAGS_limit_bytes));
    met = met && *kind.bytes <= FLAGS_limit_bytes;
  }
  return met;
}

// True if every limit holds.
absl::StatusOr<bool> MeasureAll() {
  if (FLAGS_threads == 0) {
    FLAGS_threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  for (const auto& [flag, value, most] :
       {std::tuple("threads", FLAGS_threads, 1024),
        std::tuple("tasks", FLAGS_tasks, 100'000'000),
        std::tuple("rounds", FLAGS_rounds, 1'000'000'000),
        std::tuple("turns", FLAGS_turns, 10'000),
        std::tuple("repeats", FLAGS_repeats, 10'000)}) {
    if (value < 1 || value > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, "=", value, ": must be from 1 to ", most));
    }
  }
  const std::vector<std::string> measures =
      absl::StrSplit(FLAGS_measures, ',', absl::SkipEmpty());
  if (measures.empty()) {
    return absl::InvalidArgumentError("--measures= is empty");
  }
  bool met = true;
  for (const std::string& measure : measures) {
    absl::StatusOr<bool> one = absl::InvalidArgumentError(
        absl::StrCat("--measures=", FLAGS_measures, ": \"", measure,
                     "\" is none of compute, empty, single, memory"));
    if (measure == "compute") one = MeasureCompute();
    if (measure == "empty") {
      one = MeasureEmpty("empty", FLAGS_tasks, FLAGS_limit_empty);
    }
    if (measure == "single") {
      one = MeasureEmpty("single", std::max(FLAGS_tasks / 50, 1), 0);
    }
    if (measure == "memory") one = MeasureMemory();
    if (!one.ok()) return one.status();
    std::fflush(stdout);
    met = met && *one;
  }
  return met;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("measures the worker pool beside other pools", &argc, &argv);
  if (!FLAGS_run.empty()) {
    const peer::Arguments arguments = peer::Parse(argc, argv);
    if (FLAGS_run == "sluice") return BeSluice(arguments, FLAGS_sample_every);
    return BePlainThreads(arguments);
  }
  return MeasureMain("worker_pool_bench", argc, argv, FLAGS_check, MeasureAll);
}
