// User-space memory of an idle connection: how the server's resident memory
// grows with the number of connections. README.md says how to read it.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/idle_clients.h"
#include "bench/process.h"
#include "bench/program.h"
#include "bench/server_process.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

DEFINE_int32(connections, 15000, "idle connections to open");
DEFINE_int32(points, 30, "how often the memory is read on the way");
DEFINE_int32(reactors, 1, "reactors of the server");
DEFINE_double(limit, 104, "user bytes a connection for --check");
DEFINE_bool(check, false, "exit 1 if a figure is above --limit");
DEFINE_bool(verbose, false, "print each point");
DEFINE_bool(serve, false, "for its own use: be the server");
DEFINE_int32(idle_timeout, 0, "for its own use: seconds, 0: none");
DEFINE_bool(context, false, "for its own use: an object in each connection");
DEFINE_int32(control_fd, -1, "for its own use, with --serve");

namespace sluice::bench {
namespace {

constexpr std::chrono::seconds kPatience{30};

struct Variant {
  const char* name;
  bool idle_timeout;
  bool context;
  bool talk;  // one message each way before it falls idle
};
constexpr Variant kVariants[] = {
    {"bare", false, false, false},
    {"idle timeout", true, false, false},
    {"idle timeout, context", true, true, false},
    {"idle timeout, context, has talked", true, true, true},
};

// What a user keeps with a connection: 16 bytes, 32 with what malloc adds.
struct SmallContext {
  uint64_t id = 0;
  uint64_t messages = 0;
};

class IdleHandler : public EventHandler {
 public:
  Action OnBoot(Engine& engine) override {
    ReportReady(FLAGS_control_fd, engine.bound()[0].port());
    return Action::kNone;
  }
  Action OnOpen(Connection& c) override {
    if (FLAGS_context) c.Emplace<SmallContext>();
    CountOpened();
    return Action::kNone;
  }
  Action OnTraffic(Connection& c) override {
    (void)c.Write(c.Next());
    return Action::kNone;
  }
};

absl::Status Serve() {
  AnswerUsageRequests(FLAGS_control_fd);
  Options options;
  options.reactors = FLAGS_reactors;
  options.limits.idle_timeout = std::chrono::seconds(FLAGS_idle_timeout);
  IdleHandler handler;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {"tcp://127.0.0.1:0"}, std::move(options));
  if (!engine.ok()) return engine.status();
  if (absl::Status s = (*engine)->Run(); !s.ok()) return s;
  return absl::InternalError("Engine::Run returned without being stopped");
}

absl::Status AwaitOpened(ServerProcess& server, uint64_t wanted) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const absl::StatusOr<ServerReport> report = server.Usage();
    if (!report.ok()) return report.status();
    if (report->opened >= wanted) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the server opened ", report->opened, " of ", wanted,
                       " connections in ", kPatience.count(), " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

absl::StatusOr<std::vector<MemoryPoint>> Sample(ServerProcess& server,
                                                const Variant& variant) {
  IdleClients clients(server.port());
  std::vector<MemoryPoint> points;
  int open = 0;
  for (int i = 1; i <= FLAGS_points; ++i) {
    const int wanted =
        static_cast<int>(int64_t{FLAGS_connections} * i / FLAGS_points);
    for (; open < wanted; ++open) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (absl::Status s = clients.OpenOne(variant.talk); !s.ok()) return s;
    }
    if (absl::Status s = AwaitOpened(server, static_cast<uint64_t>(open));
        !s.ok()) {
      return s;
    }
    const absl::StatusOr<double> bytes = ResidentBytes(server.pid());
    if (!bytes.ok()) return bytes.status();
    if (FLAGS_verbose) {
      std::fprintf(stderr, "%s: %d connections, %.0f KiB\n", variant.name, open,
                   *bytes / 1024);
    }
    points.push_back({static_cast<double>(open), *bytes});
  }
  return points;
}

// True if the figure is within the limit.
absl::StatusOr<bool> MeasureVariant(const Variant& variant) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
      "server",
      {"--serve", absl::StrCat("--reactors=", FLAGS_reactors),
       absl::StrCat("--idle_timeout=", variant.idle_timeout ? 3600 : 0),
       absl::StrCat("--context=", variant.context ? "true" : "false")});
  if (!server.ok()) return server.status();
  const absl::StatusOr<std::vector<MemoryPoint>> points =
      Sample(**server, variant);
  if (!points.ok()) return (*server)->Explain(points.status());
  if (absl::Status s = (*server)->Stop(); !s.ok()) return s;

  const double slope = BytesPerConnection(*points);
  const bool ok = slope <= FLAGS_limit;
  std::printf("%-34s %8.1f  %7.0f KiB  %7.0f KiB  %s\n", variant.name, slope,
              points->front().bytes / 1024, points->back().bytes / 1024,
              ok ? "ok" : "MISSED");
  std::fflush(stdout);
  return ok;
}

absl::StatusOr<bool> MeasureAll() {
  if (FLAGS_points < 3 || FLAGS_points > FLAGS_connections) {
    return absl::InvalidArgumentError(
        absl::StrCat("--points=", FLAGS_points, ": must be from 3 to ",
                     "--connections=", FLAGS_connections));
  }
  if (absl::Status s = RaiseFdLimit(FLAGS_connections + 64); !s.ok()) return s;
  std::printf(
      "user memory of an idle connection; %d connections, %d reactors, %d "
      "points\n%-34s %8s  %11s  %11s  limit %.0f\n",
      FLAGS_connections, FLAGS_reactors, FLAGS_points, "server with", "bytes",
      "first RSS", "last RSS", FLAGS_limit);
  bool all_ok = true;
  for (const Variant& variant : kVariants) {
    const absl::StatusOr<bool> ok = MeasureVariant(variant);
    if (!ok.ok()) return ok.status();
    all_ok = all_ok && *ok;
  }
  return all_ok;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("measures user-space memory of idle connections", &argc, &argv);
  if (FLAGS_serve) {
    ReportError(FLAGS_control_fd, Serve());
    return 2;
  }
  return MeasureMain("idle_memory", argc, argv, FLAGS_check, MeasureAll);
}
