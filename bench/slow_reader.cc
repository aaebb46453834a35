// A client that never reads, while the server writes 1 GiB to it: what that
// does to the server's memory and to the other connections. README.md says how
// to read it.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/echo_client.h"
#include "bench/idle_clients.h"
#include "bench/latency_histogram.h"
#include "bench/median.h"
#include "bench/process.h"
#include "bench/program.h"
#include "bench/server_process.h"
#include "bench/slow_reader_server.h"
#include "bench/stuck_client.h"

DEFINE_int32(total_mib, 1024, "written to the client that never reads");
DEFINE_int32(cap_mib, 16, "ConnectionLimits::max_outbound");
DEFINE_int32(slice, 4, "pieces of 64 KiB that are written in one turn");
DEFINE_int32(pace_us, 0, "from each such turn to the next, at least");
DEFINE_int32(connections, 64, "that echo meanwhile");
DEFINE_int32(messages, 20'000, "that come back in a phase, at least");
DEFINE_int32(turns, 5, "of both phases, in each mode");
DEFINE_int32(server_cpu, 0, "CPU of the server");
DEFINE_int32(client_cpu, 1, "CPU of the clients");
DEFINE_double(limit_mib, 1, "memory above the cap, for --check");
DEFINE_double(limit_ratio, 2, "p99 disturbed over undisturbed, for --check");
DEFINE_bool(check, false, "exit 1 if a limit is exceeded");
DEFINE_bool(verbose, false, "print each turn");
DEFINE_string(serve, "", "for its own use: be the server, refuse or close");
DEFINE_int32(control_fd, -1, "for its own use, with --serve");

namespace sluice::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr size_t kMessageBytes = 128;
constexpr int64_t kLookEveryNs = 2'000'000;
constexpr int kMostFloods = 1'000;
constexpr std::chrono::milliseconds kWarmUp{200};
constexpr std::chrono::seconds kPatience{30};

uint64_t Pieces() {
  return static_cast<uint64_t>(FLAGS_total_mib) * (size_t{1} << 20) /
         kPieceBytes;
}

double MiB(uint64_t pieces) {
  return static_cast<double>(pieces * kPieceBytes) / kMiB;
}

absl::Status Serve() {
  SlowReaderOptions options;
  options.cpu = FLAGS_server_cpu;
  options.cap = static_cast<size_t>(FLAGS_cap_mib) << 20;
  options.when_overflow =
      FLAGS_serve == "close" ? WhenOverflow::kClose : WhenOverflow::kRefuse;
  options.pieces = Pieces();
  options.slice = FLAGS_slice;
  options.pace = std::chrono::microseconds(FLAGS_pace_us);
  return RunSlowReaderServer(options, FLAGS_control_fd);
}

struct Turn {
  double undisturbed_us = 0;  // p99
  double disturbed_us = 0;
  double grew_mib = 0;
  int floods = 0;
  // Pieces of one flood.
  uint64_t accepted = 0;
  uint64_t refused = 0;
  uint64_t gone = 0;
};

// One turn's server, and its clients.
class Bench {
 public:
  Bench(ServerProcess& server, EchoClient& echo, const std::string& mode)
      : server_(server), echo_(echo), mode_(mode) {}

  absl::Status Undisturbed(Turn* turn) {
    LatencyHistogram rtt;
    const absl::Status s =
        EchoWhile([](const ServerReport&) { return true; }, Wanted(), &rtt);
    turn->undisturbed_us = P99(rtt);
    return s;
  }

  // Flood after flood, each for a new client, until so many messages have come
  // back meanwhile.
  absl::Status Disturbed(Turn* turn) {
    const absl::StatusOr<double> before = ResidentBytes(server_.pid());
    if (!before.ok()) return before.status();
    most_bytes_ = *before;
    LatencyHistogram rtt;
    while (rtt.total() < Wanted()) {
      if (turn->floods == kMostFloods) {
        return absl::FailedPreconditionError(absl::StrCat(
            "while the server wrote ", turn->floods, " times ", FLAGS_total_mib,
            " MiB, only ", rtt.total(), " of ", Wanted(),
            " messages came back: lower --slice or --messages"));
      }
      if (absl::Status s = Flood(&rtt, turn); !s.ok()) return s;
      ++turn->floods;
    }
    turn->disturbed_us = P99(rtt);
    turn->grew_mib = (most_bytes_ - *before) / kMiB;
    return absl::OkStatus();
  }

 private:
  static uint64_t Wanted() { return static_cast<uint64_t>(FLAGS_messages); }
  static double P99(const LatencyHistogram& rtt) {
    return static_cast<double>(rtt.Percentile(0.99)) / 1e3;
  }

  // Counts what has come back from when the server has begun to write until it
  // has offered everything.
  absl::Status Flood(LatencyHistogram* rtt, Turn* turn) {
    const absl::StatusOr<ServerReport> before = server_.Usage();
    if (!before.ok()) return before.status();
    const uint64_t end = PiecesOffered(*before) + Pieces();
    absl::StatusOr<std::unique_ptr<StuckClient>> stuck =
        StuckClient::Connect(server_.other_port());
    if (!stuck.ok()) return stuck.status();
    if (absl::Status s = (*stuck)->Ask(); !s.ok()) return s;
    const auto offered = [&](uint64_t least) {
      return
          [least](const ServerReport& r) { return PiecesOffered(r) >= least; };
    };
    if (absl::Status s = Await("began to write", offered(end - Pieces() + 1));
        !s.ok()) {
      return s;
    }
    if (absl::Status s = EchoWhile(
            [end](const ServerReport& r) { return PiecesOffered(r) < end; },
            Wanted() - rtt->total(), rtt);
        !s.ok()) {
      return s;
    }
    if (absl::Status s = Await("offered everything", offered(end)); !s.ok()) {
      return s;
    }
    if (absl::Status s = SampleMemory(); !s.ok()) return s;
    if (absl::Status s = CheckOutcome(*before, **stuck, turn); !s.ok()) {
      return s;
    }
    stuck->reset();
    return Await("closed the connection", [&](const ServerReport& r) {
      return r.counts[kEnded] > before->counts[kEnded];
    });
  }

  // The other connections echo while `go_on` is true of the server and fewer
  // than `most` have come back. What came after the last look at which it was
  // is not added: not all of that was while it was true.
  absl::Status EchoWhile(absl::FunctionRef<bool(const ServerReport&)> go_on,
                         uint64_t most, LatencyHistogram* rtt) {
    LatencyHistogram counted;
    int64_t looked = NowNs();
    const absl::StatusOr<EchoRun> run =
        echo_.RunWhile([&](const EchoRun& so_far) -> absl::StatusOr<bool> {
          const int64_t now = NowNs();
          if (now - looked < kLookEveryNs) return true;
          looked = now;
          if (absl::Status s = SampleMemory(); !s.ok()) return s;
          const absl::StatusOr<ServerReport> report = server_.Usage();
          if (!report.ok()) return report.status();
          if (!go_on(*report)) return false;
          counted = so_far.rtt;
          return counted.total() < most;
        });
    rtt->Merge(counted);
    return run.status();
  }

  absl::Status SampleMemory() {
    const absl::StatusOr<double> bytes = ResidentBytes(server_.pid());
    if (!bytes.ok()) return bytes.status();
    most_bytes_ = std::max(most_bytes_, *bytes);
    return absl::OkStatus();
  }

  absl::Status Await(const char* what,
                     absl::FunctionRef<bool(const ServerReport&)> done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const absl::StatusOr<ServerReport> report = server_.Usage();
      if (!report.ok()) return report.status();
      if (done(*report)) return absl::OkStatus();
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "in ", kPatience.count(), " s the server has not ", what));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Figures of a server that did something else are worth nothing.
  absl::Status CheckOutcome(const ServerReport& before, StuckClient& stuck,
                            Turn* turn) {
    const bool refuses = mode_ == "refuse";
    if (!refuses) {
      // The server's side ends a turn after the write that was too much.
      const absl::Status s = Await("closed it", [&](const ServerReport& r) {
        return r.counts[kEnded] > before.counts[kEnded];
      });
      if (!s.ok()) return s;
    }
    const absl::StatusOr<ServerReport> end = server_.Usage();
    if (!end.ok()) return end.status();
    const auto more = [&](SlowReaderCount which) {
      return end->counts[which] - before.counts[which];
    };
    turn->accepted = more(kAccepted);
    turn->refused = more(kRefused);
    turn->gone = more(kGone);
    if (turn->accepted + turn->refused + turn->gone != Pieces() ||
        turn->accepted == Pieces() ||
        more(kSlowConsumers) != (refuses ? 0 : 1) ||
        (refuses && turn->gone != 0)) {
      return absl::InternalError(absl::StrCat(
          mode_, ": of ", Pieces(), " pieces ", turn->accepted,
          " were accepted, ", turn->refused, " refused, ", turn->gone,
          " were for a connection that had gone, and ", more(kSlowConsumers),
          " connections ended as slow consumers"));
    }
    return refuses ? stuck.TakeAll(turn->accepted, Pieces()) : absl::OkStatus();
  }

  ServerProcess& server_;
  EchoClient& echo_;
  const std::string mode_;
  double most_bytes_ = 0;  // of the server's memory
};

absl::StatusOr<Turn> MeasureRunning(ServerProcess& server,
                                    const std::string& mode, int number) {
  EchoClientOptions options;
  options.connections = FLAGS_connections;
  options.message_bytes = kMessageBytes;
  const absl::StatusOr<std::unique_ptr<EchoClient>> echo =
      EchoClient::Connect(server.port(), options);
  if (!echo.ok()) return echo.status();
  if (absl::Status s = (*echo)->RunFor(kWarmUp).status(); !s.ok()) return s;
  Bench bench(server, **echo, mode);
  Turn turn;
  // Which phase comes first alternates.
  for (const bool disturbed : {number % 2 != 0, number % 2 == 0}) {
    const absl::Status s =
        disturbed ? bench.Disturbed(&turn) : bench.Undisturbed(&turn);
    if (!s.ok()) return s;
  }
  return turn;
}

// A fresh process, so that memory which an earlier turn left cannot be reused.
absl::StatusOr<Turn> Measure(const std::string& mode, int number) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
      "server", {absl::StrCat("--serve=", mode),
                 absl::StrCat("--server_cpu=", FLAGS_server_cpu),
                 absl::StrCat("--cap_mib=", FLAGS_cap_mib),
                 absl::StrCat("--total_mib=", FLAGS_total_mib),
                 absl::StrCat("--slice=", FLAGS_slice),
                 absl::StrCat("--pace_us=", FLAGS_pace_us)});
  if (!server.ok()) return server.status();
  absl::StatusOr<Turn> turn = MeasureRunning(**server, mode, number);
  if (!turn.ok()) return (*server)->Explain(turn.status());
  if (absl::Status s = (*server)->Stop(); !s.ok()) return s;
  if (FLAGS_verbose) {
    std::fprintf(stderr,
                 "%s, turn %d, %d times: p99 %.1f us, disturbed %.1f us, "
                 "memory grew by %.2f MiB\n",
                 mode.c_str(), number + 1, turn->floods, turn->undisturbed_us,
                 turn->disturbed_us, turn->grew_mib);
  }
  return turn;
}

const char* Verdict(bool ok) { return ok ? "ok" : "MISSED"; }

// True if both limits hold.
absl::StatusOr<bool> MeasureMode(const std::string& mode) {
  std::vector<double> undisturbed;
  std::vector<double> disturbed;
  double grew = 0;
  Turn last;
  for (int number = 0; number < FLAGS_turns; ++number) {
    const absl::StatusOr<Turn> turn = Measure(mode, number);
    if (!turn.ok()) return turn.status();
    undisturbed.push_back(turn->undisturbed_us);
    disturbed.push_back(turn->disturbed_us);
    grew = std::max(grew, turn->grew_mib);
    last = *turn;
  }
  const double limit = FLAGS_cap_mib + FLAGS_limit_mib;
  const double ratio = Median(disturbed) / Median(undisturbed);
  const bool memory_ok = grew <= limit;
  const bool p99_ok = ratio <= FLAGS_limit_ratio;
  std::printf(
      "%s\n  MiB offered %.4g, accepted %.4g, refused %.4g, after the end "
      "%.4g\n",
      mode == "refuse" ? "WhenOverflow::kRefuse" : "WhenOverflow::kClose",
      MiB(last.accepted + last.refused + last.gone), MiB(last.accepted),
      MiB(last.refused), MiB(last.gone));
  std::printf("  memory grew by MiB, most of the turns  %8.2f  limit %g: %s\n",
              grew, limit, Verdict(memory_ok));
  std::printf(
      "  p99 us undisturbed, disturbed  %7.1f %8.1f  ratio %.3f  limit %g: "
      "%s\n",
      Median(undisturbed), Median(disturbed), ratio, FLAGS_limit_ratio,
      Verdict(p99_ok));
  std::fflush(stdout);
  return memory_ok && p99_ok;
}

absl::Status CheckRange(const char* flag, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": must be from ", low, " to ", high));
}

absl::StatusOr<bool> MeasureAll() {
  for (const absl::Status& s :
       {CheckRange("total_mib", FLAGS_total_mib, 1, 1 << 20),
        // What the kernel's buffers take is not in it.
        CheckRange("cap_mib", FLAGS_cap_mib, 1, FLAGS_total_mib / 4),
        CheckRange("slice", FLAGS_slice, 1, 1 << 20),
        CheckRange("connections", FLAGS_connections, 1, 100'000),
        CheckRange("pace_us", FLAGS_pace_us, 0, 1'000'000),
        // Fewer do not make a p99.
        CheckRange("messages", FLAGS_messages, 1'000, 1'000'000'000),
        CheckRange("turns", FLAGS_turns, 1, 10'000)}) {
    if (!s.ok()) return s;
  }
  if (absl::Status s = RaiseFdLimit(FLAGS_connections + 64); !s.ok()) return s;
  // The server pins itself; a CPU it may not use is told here.
  if (absl::Status s = PinProcess(FLAGS_server_cpu); !s.ok()) return s;
  if (absl::Status s = PinProcess(FLAGS_client_cpu); !s.ok()) return s;
  std::printf(
      "%d MiB for a client that never reads, %d pieces of 64 KiB a turn of the "
      "loop, cap %d MiB;\n%d other connections echo %zu bytes; medians of %d "
      "turns\n",
      FLAGS_total_mib, FLAGS_slice, FLAGS_cap_mib, FLAGS_connections,
      kMessageBytes, FLAGS_turns);
  bool all_ok = true;
  for (const char* mode : {"refuse", "close"}) {
    const absl::StatusOr<bool> ok = MeasureMode(mode);
    if (!ok.ok()) return ok.status();
    all_ok = all_ok && *ok;
  }
  return all_ok;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("writes 1 GiB to a client that never reads", &argc, &argv);
  if (!FLAGS_serve.empty()) {
    ReportError(FLAGS_control_fd, Serve());
    return 2;
  }
  return MeasureMain("slow_reader", argc, argv, FLAGS_check, MeasureAll);
}
