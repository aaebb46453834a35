// An echo server: what a client sends comes back.
//
//   echo --listen=tcp://:9000,unix:///run/echo.sock --reactors=4
//
// Prints "ready ADDRESS" for each listener once the engine accepts. SIGINT and
// SIGTERM end it.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/flags.h"
#include "reactor/engine.h"

DEFINE_string(listen, "tcp://127.0.0.1:9000",
              "Where to listen: tcp://HOST:PORT, tcp4://, tcp6://, "
              "unix:///PATH, unix://@NAME. Several: separated by commas, or "
              "the flag given more than once. Port 0 takes a free one.");
DEFINE_int32(reactors, 0, "Loops that serve; 0: one for each allowed CPU.");
DEFINE_string(accept, "handoff",
              "handoff: one loop accepts for all. reuseport: each loop "
              "accepts on a socket of its own.");
DEFINE_string(trigger, "level", "level or edge, see epoll(7).");
DEFINE_string(fd_tables, "shared",
              "shared, or per_reactor: each loop has a table of open files of "
              "its own, and RLIMIT_NOFILE holds for each.");
DEFINE_string(pin, "auto",
              "Where the loops run: auto (a CPU each if there are enough), "
              "off, or a list of CPUs such as 0,2.");

namespace {

class Echo : public sluice::EventHandler {
 public:
  sluice::Action OnBoot(sluice::Engine& engine) override {
    // The listeners listen already, but "ready" is a promise that somebody
    // accepts: so a loop says it, from its first turn.
    const absl::Status posted = engine.reactor(0).Post([&engine] {
      for (const sluice::Address& address : engine.bound()) {
        std::printf("ready %s\n", address.ToString().c_str());
      }
      std::fflush(stdout);
    });
    return posted.ok() ? sluice::Action::kNone : sluice::Action::kShutdown;
  }

  sluice::Action OnTraffic(sluice::Connection& c) override {
    // Fails only when the connection is ending; OnClose would say why.
    c.Write(c.Next()).IgnoreError();
    return sluice::Action::kNone;
  }
};

template <typename T>
absl::StatusOr<T> Choose(
    const char* flag, const std::string& value,
    std::initializer_list<std::pair<const char*, T>> choices) {
  std::string allowed;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    absl::StrAppend(&allowed, allowed.empty() ? "" : " or ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", allowed, " is wanted"));
}

absl::StatusOr<sluice::CpuPinning> ParsePin(const std::string& value) {
  sluice::CpuPinning pin;
  if (value == "auto") return pin;
  if (value == "off") {
    pin.mode = sluice::CpuPinning::Mode::kOff;
    return pin;
  }
  pin.mode = sluice::CpuPinning::Mode::kList;
  for (const std::string& item :
       std::vector<std::string>(absl::StrSplit(value, ','))) {
    int cpu = 0;
    if (!absl::SimpleAtoi(item, &cpu) || cpu < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--pin=", value, ": \"", item,
                       "\" is no CPU number; auto, off or a list such as 0,2 "
                       "is wanted"));
    }
    pin.cpus.push_back(cpu);
  }
  return pin;
}

absl::StatusOr<std::vector<sluice::ListenerSpec>> ParseListen(
    const std::string& value) {
  std::vector<sluice::ListenerSpec> listeners;
  for (const std::string& item :
       std::vector<std::string>(absl::StrSplit(value, ','))) {
    if (item.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--listen=", value, ": an address is empty"));
    }
    listeners.emplace_back(item);
  }
  return listeners;
}

absl::StatusOr<sluice::Options> ParseOptions() {
  sluice::Options options;
  options.handle_signals = true;
  if (FLAGS_reactors < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--reactors=", FLAGS_reactors, ": 0 (one a CPU) or more is wanted"));
  }
  options.reactors = FLAGS_reactors;

  const auto accept = Choose<sluice::AcceptMode>(
      "accept", FLAGS_accept,
      {{"handoff", sluice::AcceptMode::kHandOff},
       {"reuseport", sluice::AcceptMode::kReusePort}});
  if (!accept.ok()) return accept.status();
  options.accept_mode = *accept;

  const auto trigger = Choose<sluice::Trigger>(
      "trigger", FLAGS_trigger,
      {{"level", sluice::Trigger::kLevel}, {"edge", sluice::Trigger::kEdge}});
  if (!trigger.ok()) return trigger.status();
  options.trigger = *trigger;

  const auto tables = Choose<sluice::FdTables>(
      "fd_tables", FLAGS_fd_tables,
      {{"shared", sluice::FdTables::kShared},
       {"per_reactor", sluice::FdTables::kPerReactor}});
  if (!tables.ok()) return tables.status();
  options.fd_tables = *tables;

  auto pin = ParsePin(FLAGS_pin);
  if (!pin.ok()) return pin.status();
  options.pinning = *std::move(pin);
  return options;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "echo: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  bool help = false;
  absl::Status parsed =
      sluice::examples::ParseFlags(argc, argv, {"listen"}, &help);
  if (!parsed.ok()) return Fail(parsed, 2);
  if (help) {
    std::fputs(sluice::examples::HelpText("echo: sends back what it receives.",
                                          "echo.cc")
                   .c_str(),
               stdout);
    return 0;
  }
  auto listeners = ParseListen(FLAGS_listen);
  if (!listeners.ok()) return Fail(listeners.status(), 2);
  auto options = ParseOptions();
  if (!options.ok()) return Fail(options.status(), 2);

  Echo echo;
  auto engine =
      sluice::Engine::Create(echo, *std::move(listeners), *std::move(options));
  if (!engine.ok()) {
    // A value that can never work is the caller's mistake (2); an address that
    // is taken, or a limit of the machine, is not (1).
    return Fail(engine.status(),
                absl::IsInvalidArgument(engine.status()) ? 2 : 1);
  }
  const absl::Status ran = (*engine)->Run();
  return ran.ok() ? 0 : Fail(ran, 1);
}
