// c1000k: how many idle connections does this machine hold?
//
//   c1000k                          as many as it can, up to a million
//   c1000k --connections=100000 --hold=5 --json=result.json
//
// Starts a server process, which echoes, and is the client itself: opens the
// connections, holds them, sends heartbeats over all of them, asks each one
// last thing, closes them, and prints what it took.
//
// Exit code: 0 if every connection was made, held to the end and answered; 1 if
// not; 2 if the flags are wrong or the machine cannot hold that many (nothing
// was started then); 130 after Ctrl-C.
#include <gflags/gflags.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "examples/c1000k/controller.h"
#include "examples/c1000k/load_client.h"
#include "examples/c1000k/machine.h"
#include "examples/c1000k/plan.h"
#include "examples/c1000k/progress.h"
#include "examples/c1000k/report.h"
#include "examples/c1000k/server_process.h"
#include "examples/c1000k/settings.h"
#include "examples/c1000k/shared_page.h"
#include "examples/c1000k/watch.h"
#include "examples/flags.h"

DEFINE_int64(connections, 0,
             "Connections to hold; 0: the most this machine holds, up to "
             "1,000,000.");
DEFINE_int64(reactors, 0,
             "Reactors in each of the two processes; 0: one for each allowed "
             "CPU, or as many as tables of their own take.");
DEFINE_double(hold, 30, "Seconds to hold them.");
DEFINE_int64(heartbeat_qps, 5000,
             "Heartbeats a second while holding, over all connections; 0: "
             "none.");
DEFINE_int64(connect_rate, 0, "Dials a second; 0: as fast as it goes.");
DEFINE_string(fd_tables, "auto",
              "Tables of open files: shared (one a process), per_reactor (one "
              "for each reactor; RLIMIT_NOFILE then holds for each), or auto: "
              "shared if the limit is enough.");
DEFINE_string(json, "", "File for the result as JSON; empty: none.");

namespace sluice::c1000k {
namespace {

constexpr double kStopSeconds = 30;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "c1000k: %s\n", std::string(status.message()).c_str());
  return code;
}

Settings SettingsFromFlags() {
  return {.connections = FLAGS_connections,
          .reactors = FLAGS_reactors,
          .hold_seconds = FLAGS_hold,
          .heartbeat_qps = FLAGS_heartbeat_qps,
          .connect_rate = FLAGS_connect_rate,
          .fd_tables = FLAGS_fd_tables,
          .json = FLAGS_json};
}

// Everything that starts something.
int Execute(const Settings& settings, const Plan& plan) {
  // Signals first, and then the child, as long as there is one thread: a fork
  // of a process with threads has only one of them, and whatever locks the
  // others held.
  auto watch = Watch::Create();
  if (!watch.ok()) return Fail(watch.status(), 1);
  auto mapping = SharedMapping::Create();
  if (!mapping.ok()) return Fail(mapping.status(), 1);
  SharedPage* const page = mapping->page();
  auto server = ServerProcess::Start(plan, page);
  if (!server.ok()) return Fail(server.status(), 1);
  (*watch)->WatchServer((*server)->channel());
  (*watch)->OnSecondSignal([&server] {
    (*server)->Kill();
    static constexpr char kText[] = "\nc1000k: stopped at once\n";
    (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
    _exit(130);
  });
  auto client = LoadClient::Start(
      plan, static_cast<uint16_t>(page->port.load(std::memory_order_acquire)));
  if (!client.ok()) return Fail(client.status(), 1);

  Progress progress;
  Controller controller(settings, plan, **server, *page, **client, **watch,
                        progress);
  Result result = controller.Run();
  if (absl::Status s = (*client)->Stop(); !s.ok()) {
    result.troubles.push_back(
        absl::StrCat("the client's engine: ", std::string(s.message())));
  }
  (*watch)->WatchServer(-1);
  const std::string ended = (*server)->Stop(kStopSeconds);
  if (ended != "exit code 0" && result.troubles.empty() &&
      !result.interrupted) {
    result.troubles.push_back(
        absl::StrCat("the server process did not end well: ", ended));
  }

  // Ctrl-C while we were stopping anyway.
  if ((*watch)->Wait(0) == Watch::Event::kInterrupted) {
    result.interrupted = true;
  }

  std::fputs(Table(result).c_str(), stdout);
  std::fflush(stdout);
  if (!settings.json.empty()) {
    if (absl::Status s = WriteFile(settings.json, Json(result)); !s.ok()) {
      const int code = result.exit_code();
      return Fail(s, code != 0 ? code : 1);
    }
  }
  return result.exit_code();
}

int Main(int argc, char** argv) {
  bool help = false;
  if (absl::Status s = examples::ParseFlags(argc, argv, {}, &help); !s.ok()) {
    return Fail(s, 2);
  }
  if (help) {
    std::fputs(
        examples::HelpText(
            "c1000k: opens connections to a server on this machine, holds "
            "them and says what they cost.",
            "main.cc")
            .c_str(),
        stdout);
    return 0;
  }
  const Settings settings = SettingsFromFlags();
  const Machine machine = ReadMachine("");
  const absl::StatusOr<Plan> plan = MakePlan(machine, settings);
  if (!plan.ok()) return Fail(plan.status(), 2);
  if (!settings.json.empty()) {
    if (absl::Status s = CheckWritable(settings.json); !s.ok()) {
      return Fail(s, 2);
    }
  }
  std::fputs(DescribePlan(*plan, machine).c_str(), stdout);
  std::fflush(stdout);
  return Execute(settings, *plan);
}

}  // namespace
}  // namespace sluice::c1000k

int main(int argc, char** argv) { return sluice::c1000k::Main(argc, argv); }
