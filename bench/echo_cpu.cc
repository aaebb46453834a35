// Server CPU per echo: sluice beside a raw epoll loop, in turns. README.md says
// how to read it.
#include <gflags/gflags.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/echo_client.h"
#include "bench/echo_cpu_report.h"
#include "bench/loopback.h"
#include "bench/process.h"
#include "bench/program.h"
#include "bench/raw_epoll.h"
#include "bench/server_process.h"
#include "bench/sluice_echo.h"

DEFINE_string(connections, "1,64,1000", "numbers of connections to measure at");
DEFINE_int32(messages, 0,
             "messages of a turn; 0: 20,000 below 8 connections, where each "
             "waits for a wake-up, else 100,000");
DEFINE_int32(turns, 11, "measurements of each server at each number");
DEFINE_int32(message_bytes, 128, "bytes of a message");
DEFINE_int32(warmup_ms, 200, "traffic before each measurement, not counted");
DEFINE_int32(server_cpu, 0, "CPU of the servers");
DEFINE_int32(client_cpu, 1, "CPU of the client; may be the servers'");
DEFINE_string(
    servers, "raw,sluice",
    "the two to compare, each raw or sluice; raw,raw shows the noise");
DEFINE_int32(idle_timeout, 60, "sluice: seconds; 0: none");
DEFINE_string(trigger, "level", "sluice: level or edge");
DEFINE_string(fd_tables, "shared", "sluice: shared or per_reactor");
DEFINE_bool(check, false, "exit 1 if a goal is missed");
DEFINE_string(json, "", "write the figures to this file as well");
DEFINE_bool(verbose, false, "print each turn");
DEFINE_string(serve, "", "for its own use: be this server");
DEFINE_int32(control_fd, -1, "for its own use, with --serve");

namespace sluice::bench {
namespace {

absl::Status BadFlag(const char* flag, const std::string& value,
                     const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be ", allowed));
}

absl::Status CheckRange(const char* flag, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": must be from ", low, " to ", high));
}

absl::StatusOr<std::vector<int>> ParseList(const char* flag,
                                           const std::string& text) {
  std::vector<int> values;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int value = 0;
    if (!absl::SimpleAtoi(word, &value) || value < 1) {
      return BadFlag(flag, text, "numbers of at least 1, comma separated");
    }
    values.push_back(value);
  }
  return values;
}

uint64_t Messages(int connections) {
  if (FLAGS_messages > 0) return static_cast<uint64_t>(FLAGS_messages);
  return connections < 8 ? 20'000 : 100'000;
}

absl::StatusOr<SluiceEchoOptions> SluiceOptions() {
  SluiceEchoOptions options;
  options.cpu = FLAGS_server_cpu;
  options.idle_timeout = std::chrono::seconds(FLAGS_idle_timeout);
  if (FLAGS_trigger == "edge") {
    options.trigger = Trigger::kEdge;
  } else if (FLAGS_trigger != "level") {
    return BadFlag("trigger", FLAGS_trigger, "level or edge");
  }
  if (FLAGS_fd_tables == "per_reactor") {
    options.fd_tables = FdTables::kPerReactor;
  } else if (FLAGS_fd_tables != "shared") {
    return BadFlag("fd_tables", FLAGS_fd_tables, "shared or per_reactor");
  }
  return options;
}

// The server processes: only an error brings them back here.
absl::Status ServeRaw() {
  const absl::StatusOr<LoopbackListener> listener = ListenOnLoopback();
  if (!listener.ok()) return listener.status();
  ReportReady(FLAGS_control_fd, listener->port);
  const RawEpollFailure failure =
      RunRawEpoll(listener->fd, RawEpollMode::kEcho);
  return absl::ErrnoToStatus(failure.error, failure.call);
}

absl::Status Serve() {
  if (absl::Status s = PinProcess(FLAGS_server_cpu); !s.ok()) return s;
  AnswerUsageRequests(FLAGS_control_fd);
  if (FLAGS_serve == "raw") return ServeRaw();
  const absl::StatusOr<SluiceEchoOptions> options = SluiceOptions();
  if (!options.ok()) return options.status();
  return RunSluiceEcho(*options, FLAGS_control_fd);
}

std::vector<std::string> ServerArgs(const std::string& server) {
  return {absl::StrCat("--serve=", server),
          absl::StrCat("--server_cpu=", FLAGS_server_cpu),
          absl::StrCat("--idle_timeout=", FLAGS_idle_timeout),
          absl::StrCat("--trigger=", FLAGS_trigger),
          absl::StrCat("--fd_tables=", FLAGS_fd_tables)};
}

absl::StatusOr<EchoTurn> MeasureRunning(ServerProcess& server, int connections,
                                        uint64_t messages) {
  EchoClientOptions options;
  options.connections = connections;
  options.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  absl::StatusOr<std::unique_ptr<EchoClient>> client =
      EchoClient::Connect(server.port(), options);
  if (!client.ok()) return client.status();
  const absl::StatusOr<EchoRun> warmup =
      (*client)->RunFor(std::chrono::milliseconds(FLAGS_warmup_ms));
  if (!warmup.ok()) return warmup.status();

  // The exact clock is read innermost, so asking is not in the figure.
  const absl::StatusOr<ServerReport> before = server.Usage();
  if (!before.ok()) return before.status();
  const absl::StatusOr<std::chrono::nanoseconds> begin = server.CpuTime();
  if (!begin.ok()) return begin.status();
  const absl::StatusOr<EchoRun> run = (*client)->RunMessages(messages);
  if (!run.ok()) return run.status();
  const absl::StatusOr<std::chrono::nanoseconds> end = server.CpuTime();
  if (!end.ok()) return end.status();
  const absl::StatusOr<ServerReport> after = server.Usage();
  if (!after.ok()) return after.status();
  if (run->messages != messages) {
    return absl::InternalError(absl::StrCat("client: ", run->messages,
                                            " messages instead of ", messages));
  }

  const auto each = [messages](auto total) {
    return static_cast<double>(total) / static_cast<double>(messages);
  };
  EchoTurn turn;
  turn.cpu_ns = each((*end - *begin).count());
  turn.user_ns = each((after->user_us - before->user_us) * 1000);
  turn.system_ns = each((after->system_us - before->system_us) * 1000);
  turn.switches = each(after->switches - before->switches);
  turn.rtt_p50_us = static_cast<double>(run->rtt.Percentile(0.5)) / 1e3;
  turn.rtt_p99_us = static_cast<double>(run->rtt.Percentile(0.99)) / 1e3;
  return turn;
}

// A process of its own for each turn: the luck of where its memory and code lie
// averages out this way.
absl::StatusOr<EchoTurn> Measure(const std::string& name, int connections,
                                 uint64_t messages) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(absl::StrCat(name, " server"), ServerArgs(name));
  if (!server.ok()) return server.status();
  absl::StatusOr<EchoTurn> turn =
      MeasureRunning(**server, connections, messages);
  if (!turn.ok()) return (*server)->Explain(turn.status());
  if (absl::Status s = (*server)->Stop(); !s.ok()) return s;
  return turn;
}

absl::StatusOr<EchoCase> MeasureCase(const EchoCpuSetup& setup, int connections,
                                     uint64_t messages) {
  EchoCase c;
  c.connections = connections;
  c.messages = messages;
  for (int turn = 0; turn < FLAGS_turns; ++turn) {
    for (size_t place = 0; place < 2; ++place) {
      // Who goes first alternates.
      const size_t s = (static_cast<size_t>(turn) + place) % 2;
      absl::StatusOr<EchoTurn> one =
          Measure(setup.servers[s], connections, messages);
      if (!one.ok()) return one.status();
      if (FLAGS_verbose) {
        std::fprintf(stderr, "%d connections, turn %d, %s: %.0f ns/echo\n",
                     connections, turn + 1, setup.servers[s].c_str(),
                     one->cpu_ns);
      }
      c.turns[s].push_back(*one);
    }
  }
  return c;
}

absl::StatusOr<EchoCpuSetup> Setup() {
  for (const absl::Status& s :
       {CheckRange("turns", FLAGS_turns, 1, 10'000),
        CheckRange("message_bytes", FLAGS_message_bytes, 1, 64 << 20),
        CheckRange("messages", FLAGS_messages, 0, 1'000'000'000),
        CheckRange("warmup_ms", FLAGS_warmup_ms, 0, 600'000),
        CheckRange("idle_timeout", FLAGS_idle_timeout, 0, 24 * 86'400)}) {
    if (!s.ok()) return s;
  }
  if (absl::Status s = SluiceOptions().status(); !s.ok()) return s;
  const std::vector<std::string> servers = absl::StrSplit(FLAGS_servers, ',');
  const auto known = [](const std::string& name) {
    return name == "raw" || name == "sluice";
  };
  if (servers.size() != 2 || !known(servers[0]) || !known(servers[1])) {
    return BadFlag("servers", FLAGS_servers, "two of raw and sluice");
  }
  EchoCpuSetup setup;
  setup.servers = {servers[0], servers[1]};
  setup.message_bytes = static_cast<size_t>(FLAGS_message_bytes);
  setup.turns = FLAGS_turns;
  setup.what = absl::StrFormat(
      "%d-byte messages, %d turns, server on CPU %d, client on CPU %d; sluice: "
      "%s-triggered, %s tables, idle timeout %d s",
      FLAGS_message_bytes, FLAGS_turns, FLAGS_server_cpu, FLAGS_client_cpu,
      FLAGS_trigger, FLAGS_fd_tables, FLAGS_idle_timeout);
  return setup;
}

absl::StatusOr<bool> MeasureAll() {
  const absl::StatusOr<EchoCpuSetup> setup = Setup();
  if (!setup.ok()) return setup.status();
  const auto connections = ParseList("connections", FLAGS_connections);
  if (!connections.ok()) return connections.status();
  for (const int count : *connections) {
    if (absl::Status s = RaiseFdLimit(count + 64); !s.ok()) return s;
  }
  if (!FLAGS_json.empty()) {
    if (absl::Status s = CheckJsonPath(FLAGS_json); !s.ok()) return s;
  }
  // The servers pin themselves; a CPU they may not use is told here.
  if (absl::Status s = PinProcess(FLAGS_server_cpu); !s.ok()) return s;
  if (absl::Status s = PinProcess(FLAGS_client_cpu); !s.ok()) return s;

  std::vector<EchoCase> cases;
  bool all_met = true;
  for (const int count : *connections) {
    absl::StatusOr<EchoCase> c = MeasureCase(*setup, count, Messages(count));
    if (!c.ok()) return c.status();
    all_met = all_met && MeetsGoal(*c);
    cases.push_back(*std::move(c));
  }
  PrintTable(*setup, cases);
  if (!FLAGS_json.empty()) {
    if (absl::Status s = WriteJson(FLAGS_json, *setup, cases); !s.ok()) {
      return s;
    }
  }
  return all_met;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("measures server CPU per echo beside raw epoll", &argc, &argv);
  if (!FLAGS_serve.empty()) {
    ReportError(FLAGS_control_fd, Serve());
    return 2;
  }
  return MeasureMain("echo_cpu", argc, argv, FLAGS_check, MeasureAll);
}
