// The load of the lab: one turn against one server that already runs, of which
// it knows the port and the process. Prints one JSON object. run.sh starts
// both.
#include <gflags/gflags.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/clock.h"
#include "bench/echo_client.h"
#include "bench/idle_clients.h"
#include "bench/lab/churn_client.h"
#include "bench/lab/fan_out_client.h"
#include "bench/lab/open_loop.h"
#include "bench/lab/server_probe.h"
#include "bench/latency_histogram.h"
#include "bench/process.h"
#include "bench/program.h"

DEFINE_int32(port, 0, "the server's, on 127.0.0.1");
DEFINE_int32(pid, 0, "the server's");
DEFINE_string(workload, "echo", "echo, open, churn, fanout or idle");
DEFINE_int32(connections, 64, "that there are; churn: at a time");
DEFINE_int32(message_bytes, 128, "bytes of a message; churn: 0, none");
DEFINE_int32(depth, 1, "echo: messages that go together");
DEFINE_int32(messages, 100'000,
             "echo, fanout: of the turn; churn: connections of it");
DEFINE_int32(idle_beside, 0, "echo: connections that are open and say nothing");
DEFINE_double(rate, 10'000, "open: messages a second");
DEFINE_int32(duration_ms, 2'000, "open: of the turn");
DEFINE_int32(warmup_ms, 200, "echo, open: traffic that is not counted");
DEFINE_bool(histogram, false,
            "echo: all round trips too, [[ns, how many], ...], for percentiles "
            "of several turns together");
DEFINE_int32(points, 30, "idle: how often the memory is read on the way");

namespace sluice::bench {
namespace {

constexpr std::chrono::seconds kPatience{30};

// Numbers by name, in the order they were added.
class Figures {
 public:
  void Add(const char* name, double value) {
    absl::StrAppend(&json_, json_.empty() ? "" : ", ",
                    absl::StrFormat("\"%s\": %.17g", name, value));
  }
  void AddTimes(const std::string& prefix, const LatencyHistogram& times) {
    for (const auto& [name, fraction] : {std::pair{"p50", 0.5},
                                         {"p90", 0.9},
                                         {"p99", 0.99},
                                         {"p999", 0.999}}) {
      Add((prefix + name + "_us").c_str(),
          static_cast<double>(times.Percentile(fraction)) / 1e3);
    }
    Add((prefix + "max_us").c_str(), static_cast<double>(times.max()) / 1e3);
  }
  void AddHistogram(const char* name, const LatencyHistogram& times) {
    std::string pairs;
    times.ForEachBucket([&pairs](uint64_t ns, uint64_t count) {
      absl::StrAppend(&pairs, pairs.empty() ? "" : ", ", "[", ns, ", ", count,
                      "]");
    });
    absl::StrAppend(&json_, json_.empty() ? "" : ", ", "\"", name, "\": [",
                    pairs, "]");
  }
  std::string Json() const { return "{" + json_ + "}"; }

 private:
  std::string json_;
};

int64_t OwnCpuNs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// What both sides used while `work` ran; the server's exact clock is read
// innermost. `each` is what the server's time is divided by.
absl::Status Measured(const ServerProbe& server, Figures* figures,
                      const std::function<absl::StatusOr<uint64_t>()>& work) {
  const absl::StatusOr<ServerUsage> before = server.Usage();
  if (!before.ok()) return before.status();
  const int64_t own_begin = OwnCpuNs();
  const int64_t begin = NowNs();
  const absl::StatusOr<int64_t> cpu_begin = server.CpuNs();
  if (!cpu_begin.ok()) return cpu_begin.status();
  const absl::StatusOr<uint64_t> each = work();
  if (!each.ok()) return each.status();
  const absl::StatusOr<int64_t> cpu_end = server.CpuNs();
  if (!cpu_end.ok()) return cpu_end.status();
  const auto wall = static_cast<double>(NowNs() - begin);
  const auto own = static_cast<double>(OwnCpuNs() - own_begin);
  const absl::StatusOr<ServerUsage> after = server.Usage();
  if (!after.ok()) return after.status();
  const auto cpu = static_cast<double>(*cpu_end - *cpu_begin);
  const auto count = static_cast<double>(*each);
  figures->Add("count", count);
  figures->Add("wall_ns", wall);
  figures->Add("per_second", count / (wall / 1e9));
  figures->Add("cpu_ns", cpu / count);
  figures->Add("user_ns",
               static_cast<double>(after->user_ns - before->user_ns) / count);
  figures->Add(
      "system_ns",
      static_cast<double>(after->system_ns - before->system_ns) / count);
  figures->Add("sleeps",
               static_cast<double>(after->sleeps - before->sleeps) / count);
  figures->Add("server_busy", cpu / wall);
  figures->Add("client_busy", own / wall);
  return absl::OkStatus();
}

absl::Status Echo(const ServerProbe& server, Figures* figures) {
  IdleClients idle(static_cast<uint16_t>(FLAGS_port));
  for (int i = 0; i < FLAGS_idle_beside; ++i) {
    if (absl::Status s = idle.OpenOne(/*talk=*/false); !s.ok()) return s;
  }
  EchoClientOptions options;
  options.connections = FLAGS_connections;
  options.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  options.depth = FLAGS_depth;
  const absl::StatusOr<std::unique_ptr<EchoClient>> client =
      EchoClient::Connect(static_cast<uint16_t>(FLAGS_port), options);
  if (!client.ok()) return client.status();
  const absl::StatusOr<EchoRun> warmup =
      (*client)->RunFor(std::chrono::milliseconds(FLAGS_warmup_ms));
  if (!warmup.ok()) return warmup.status();
  absl::StatusOr<EchoRun> run = EchoRun();
  const absl::Status s =
      Measured(server, figures, [&]() -> absl::StatusOr<uint64_t> {
        run = (*client)->RunMessages(static_cast<uint64_t>(FLAGS_messages));
        if (!run.ok()) return run.status();
        return run->messages;
      });
  if (!s.ok()) return s;
  figures->AddTimes("", run->rtt);
  if (FLAGS_histogram) figures->AddHistogram("round_trips", run->rtt);
  return absl::OkStatus();
}

absl::Status Open(const ServerProbe& server, Figures* figures) {
  OpenLoopOptions options;
  options.connections = FLAGS_connections;
  options.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  options.rate = FLAGS_rate;
  options.duration = std::chrono::milliseconds(FLAGS_warmup_ms);
  const auto port = static_cast<uint16_t>(FLAGS_port);
  const absl::StatusOr<OpenLoopRun> warmup = RunOpenLoop(port, options);
  if (!warmup.ok()) return warmup.status();
  options.duration = std::chrono::milliseconds(FLAGS_duration_ms);
  absl::StatusOr<OpenLoopRun> run = OpenLoopRun();
  const absl::Status s =
      Measured(server, figures, [&]() -> absl::StatusOr<uint64_t> {
        run = RunOpenLoop(port, options);
        if (!run.ok()) return run.status();
        return run->messages;
      });
  if (!s.ok()) return s;
  figures->AddTimes("", run->from_due);
  figures->AddTimes("uncorrected_", run->from_sent);
  return absl::OkStatus();
}

absl::Status Churn(const ServerProbe& server, Figures* figures) {
  ChurnOptions options;
  options.concurrency = FLAGS_connections;
  options.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  const auto port = static_cast<uint16_t>(FLAGS_port);
  options.lives = static_cast<uint64_t>(FLAGS_messages) / 10;
  if (absl::Status s = RunChurn(port, options).status(); !s.ok()) return s;
  options.lives = static_cast<uint64_t>(FLAGS_messages);
  absl::StatusOr<ChurnRun> run = ChurnRun();
  const absl::Status s =
      Measured(server, figures, [&]() -> absl::StatusOr<uint64_t> {
        run = RunChurn(port, options);
        if (!run.ok()) return run.status();
        return run->lives;
      });
  if (!s.ok()) return s;
  figures->AddTimes("", run->life);
  return absl::OkStatus();
}

// Until that is true of how many more descriptors the server has.
absl::Status AwaitDescriptors(const ServerProbe& server,
                              const ServerProbe::Descriptors& before,
                              const std::function<bool(int)>& enough) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const absl::StatusOr<int> more = server.MoreThan(before);
    if (!more.ok()) return more.status();
    if (enough(*more)) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the server has ", *more, " descriptors more than at the beginning, ",
          "and that does not change as it should in ", kPatience.count(),
          " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

absl::Status FanOut(const ServerProbe& server, Figures* figures) {
  FanOutOptions options;
  options.connections = FLAGS_connections;
  options.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  const absl::StatusOr<ServerProbe::Descriptors> before =
      server.OpenDescriptors();
  if (!before.ok()) return before.status();
  const absl::StatusOr<std::unique_ptr<FanOutClient>> client =
      FanOutClient::Connect(static_cast<uint16_t>(FLAGS_port), options);
  if (!client.ok()) return client.status();
  // Who is still in the listener's queue would not get the first message.
  if (absl::Status s = AwaitDescriptors(
          server, *before, [](int more) { return more >= FLAGS_connections; });
      !s.ok()) {
    return s;
  }
  // From the descriptor to the server's list of clients.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (absl::Status s = (*client)->Run(3).status(); !s.ok()) return s;
  absl::StatusOr<FanOutRun> run = FanOutRun();
  const absl::Status s =
      Measured(server, figures, [&]() -> absl::StatusOr<uint64_t> {
        run = (*client)->Run(FLAGS_messages);
        if (!run.ok()) return run.status();
        return run->received;
      });
  if (!s.ok()) return s;
  figures->AddTimes("", run->spread);
  return absl::OkStatus();
}

// Opens, reads memory on the way, closes all of them at once.
absl::Status Idle(const ServerProbe& server, Figures* figures) {
  const auto port = static_cast<uint16_t>(FLAGS_port);
  // The first connection is not counted, nor what a server makes for it.
  IdleClients first(port);
  if (absl::Status s = first.OpenOne(/*talk=*/true); !s.ok()) return s;
  const absl::StatusOr<ServerProbe::Descriptors> before =
      server.OpenDescriptors();
  if (!before.ok()) return before.status();
  IdleClients idle(port);
  std::vector<MemoryPoint> points;
  std::vector<MemoryPoint> kernel_points;  // both ends are in the kernel's
  int64_t open_ns = 0;
  const absl::StatusOr<int64_t> cpu_begin = server.CpuNs();
  if (!cpu_begin.ok()) return cpu_begin.status();
  for (int i = 1; i <= FLAGS_points; ++i) {
    const auto wanted =
        static_cast<size_t>(int64_t{FLAGS_connections} * i / FLAGS_points);
    const int64_t begin = NowNs();
    while (idle.size() < wanted) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (absl::Status s = idle.OpenOne(/*talk=*/false); !s.ok()) return s;
    }
    // As many more as there are connections: they have been accepted.
    if (absl::Status s = AwaitDescriptors(
            server, *before,
            [&](int more) { return more >= static_cast<int>(wanted); });
        !s.ok()) {
      return s;
    }
    open_ns += NowNs() - begin;
    const absl::StatusOr<double> bytes = ResidentBytes(server.pid());
    if (!bytes.ok()) return bytes.status();
    points.push_back({static_cast<double>(wanted), *bytes});
    // The first ones fill what others left in half-empty slabs.
    if (i * 2 < FLAGS_points) continue;
    const absl::StatusOr<double> slab = SlabBytes();
    if (!slab.ok()) return slab.status();
    kernel_points.push_back({static_cast<double>(wanted), *slab});
  }
  const absl::StatusOr<int64_t> cpu_opened = server.CpuNs();
  if (!cpu_opened.ok()) return cpu_opened.status();
  const int64_t close_begin = NowNs();
  idle.Close();
  if (absl::Status s =
          AwaitDescriptors(server, *before, [](int more) { return more <= 0; });
      !s.ok()) {
    return s;
  }
  const int64_t close_ns = NowNs() - close_begin;
  const absl::StatusOr<int64_t> cpu_closed = server.CpuNs();
  if (!cpu_closed.ok()) return cpu_closed.status();
  const auto count = static_cast<double>(FLAGS_connections);
  figures->Add("count", count);
  figures->Add("bytes_per_connection", BytesPerConnection(points));
  figures->Add("kernel_bytes", BytesPerConnection(kernel_points));
  figures->Add("rss_first_bytes", points.front().bytes);
  figures->Add("rss_last_bytes", points.back().bytes);
  figures->Add("open_wall_ns", static_cast<double>(open_ns) / count);
  figures->Add("open_cpu_ns",
               static_cast<double>(*cpu_opened - *cpu_begin) / count);
  figures->Add("close_wall_ns", static_cast<double>(close_ns) / count);
  figures->Add("close_cpu_ns",
               static_cast<double>(*cpu_closed - *cpu_opened) / count);
  return absl::OkStatus();
}

absl::Status CheckAtLeast(const char* flag, double value, double least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be at least ", least));
}

absl::Status Turn(Figures* figures) {
  for (const absl::Status& s :
       {CheckAtLeast("port", FLAGS_port, 1), CheckAtLeast("pid", FLAGS_pid, 1),
        CheckAtLeast("connections", FLAGS_connections, 1),
        CheckAtLeast("message_bytes", FLAGS_message_bytes,
                     FLAGS_workload == "churn" ? 0 : 1),
        CheckAtLeast("depth", FLAGS_depth, 1),
        CheckAtLeast("messages", FLAGS_messages, FLAGS_depth),
        CheckAtLeast("idle_beside", FLAGS_idle_beside, 0),
        CheckAtLeast("points", FLAGS_points, 3)}) {
    if (!s.ok()) return s;
  }
  if (absl::Status s = RaiseFdLimit(FLAGS_connections + FLAGS_idle_beside + 64);
      !s.ok()) {
    return s;
  }
  const absl::StatusOr<ServerProbe> server = ServerProbe::Of(FLAGS_pid);
  if (!server.ok()) return server.status();
  if (FLAGS_workload == "echo") return Echo(*server, figures);
  if (FLAGS_workload == "open") return Open(*server, figures);
  if (FLAGS_workload == "churn") return Churn(*server, figures);
  if (FLAGS_workload == "fanout") return FanOut(*server, figures);
  if (FLAGS_workload == "idle") return Idle(*server, figures);
  return absl::InvalidArgumentError(
      absl::StrCat("--workload=", FLAGS_workload,
                   ": must be echo, open, churn, fanout or idle"));
}

// There is no limit to miss here.
absl::StatusOr<bool> PrintTurn() {
  Figures figures;
  if (absl::Status s = Turn(&figures); !s.ok()) return s;
  std::printf("%s\n", figures.Json().c_str());
  return true;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("one turn of load against one server of the lab", &argc, &argv);
  return MeasureMain("lab_client", argc, argv, /*check=*/false, PrintTurn);
}
