// How long one turn of the loop gets when all connections end at once: another
// connection on that loop would wait for it. README.md says how to read it.
#include <gflags/gflags.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/idle_clients.h"
#include "bench/median.h"
#include "bench/process.h"
#include "bench/program.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

DEFINE_int32(connections, 15000, "that end at once");
DEFINE_int32(turns, 5, "measurements of each way to end");
DEFINE_int32(server_cpu, 0, "CPU of the loop");
DEFINE_int32(client_cpu, 1, "CPU of the clients");
DEFINE_double(limit_ms, 5, "the longest turn for --check");
DEFINE_bool(check, false, "exit 1 if the median of the longest is above it");

namespace {

// The turns of the thread that runs the loop, from the return of one wait to
// the beginning of the next.
struct TurnClock {
  std::atomic<bool> on{false};
  std::atomic<int64_t> longest_cpu_ns{0};
  std::atomic<int64_t> longest_wall_ns{0};
  std::atomic<int64_t> turns{0};
};
TurnClock g_clock;
thread_local int64_t t_cpu_began = 0;
thread_local int64_t t_wall_began = 0;

int64_t ThreadCpuNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void RaiseTo(std::atomic<int64_t>& longest, int64_t time) {
  if (time > longest.load()) longest.store(time);
}

void TurnEnds() {
  if (t_cpu_began == 0 || !g_clock.on.load()) return;
  RaiseTo(g_clock.longest_cpu_ns, ThreadCpuNs() - t_cpu_began);
  RaiseTo(g_clock.longest_wall_ns, sluice::bench::NowNs() - t_wall_began);
  g_clock.turns.fetch_add(1);
}

void TurnBegins() {
  if (!g_clock.on.load()) return;
  t_cpu_began = ThreadCpuNs();
  t_wall_began = sluice::bench::NowNs();
}

}  // namespace

// The linker puts these in place of what the loop sleeps in.
extern "C" {
int __real_epoll_wait(int, epoll_event*, int, int);
int __real_epoll_pwait2(int, epoll_event*, int, const timespec*,
                        const sigset_t*);
int __wrap_epoll_wait(int fd, epoll_event* events, int most, int timeout) {
  TurnEnds();
  const int count = __real_epoll_wait(fd, events, most, timeout);
  TurnBegins();
  return count;
}
int __wrap_epoll_pwait2(int fd, epoll_event* events, int most,
                        const timespec* timeout, const sigset_t* mask) {
  TurnEnds();
  const int count = __real_epoll_pwait2(fd, events, most, timeout, mask);
  TurnBegins();
  return count;
}
}

namespace sluice::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

class CountingEcho : public EventHandler {
 public:
  Action OnBoot(Engine&) override {
    booted = true;
    return Action::kNone;
  }
  Action OnOpen(Connection& c) override {
    refs.push_back(c.ref());
    ++open;
    return Action::kNone;
  }
  Action OnTraffic(Connection& c) override {
    (void)c.Write(c.Next());
    return Action::kNone;
  }
  void OnClose(Connection&, const CloseInfo&) override { --open; }

  std::atomic<bool> booted{false};
  std::atomic<int> open{0};
  std::vector<ConnectionRef> refs;  // of the one loop
};

// The clients, in a process of its own, so that all their sockets end with it.
class ClientProcess {
 public:
  // Returns when all are connected.
  static absl::StatusOr<ClientProcess> Start(uint16_t port) {
    int ready[2];
    if (pipe(ready) != 0) return absl::ErrnoToStatus(errno, "pipe");
    const pid_t pid = fork();
    if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
    if (pid == 0) Run(port, ready[1]);
    close(ready[1]);
    char text[512] = {};
    const ssize_t got = read(ready[0], text, sizeof text - 1);
    close(ready[0]);
    ClientProcess client(pid);
    if (got <= 0 || std::string(text) != "ok") {
      client.End();
      return absl::UnavailableError(
          absl::StrCat("the clients: ", got > 0 ? text : "ended"));
    }
    return client;
  }

  void End() const {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  explicit ClientProcess(pid_t pid) : pid_(pid) {}

  [[noreturn]] static void Run(uint16_t port, int ready) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string said = "ok";
    IdleClients clients(port);
    absl::Status s = PinProcess(FLAGS_client_cpu);
    while (s.ok() && clients.size() < static_cast<size_t>(FLAGS_connections)) {
      s = clients.OpenOne(/*talk=*/false);
    }
    if (!s.ok()) said = std::string(s.message());
    if (write(ready, said.data(), said.size()) < 0) _exit(2);
    for (;;) pause();
  }

  pid_t pid_;
};

absl::Status Await(const std::string& what, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("after ", kPatience.count(), " s: not ", what));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::OkStatus();
}

struct Longest {
  double cpu_ms;
  double wall_ms;
  double turns;
};

enum class Way { kPeersVanish, kTaskCloses, kEngineStops };

absl::StatusOr<Longest> Measure(Way way) {
  CountingEcho handler;
  Options options;
  options.reactors = 1;
  options.pinning.mode = CpuPinning::Mode::kList;
  options.pinning.cpus = {FLAGS_server_cpu};
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {"tcp://127.0.0.1:0"}, std::move(options));
  if (!engine.ok()) return engine.status();
  absl::Status ran;
  std::thread thread([&] { ran = (*engine)->Run(); });
  const auto measure = [&]() -> absl::StatusOr<Longest> {
    if (absl::Status s = Await("booted", [&] { return handler.booted.load(); });
        !s.ok()) {
      return s;
    }
    const absl::StatusOr<ClientProcess> clients =
        ClientProcess::Start((*engine)->bound()[0].port());
    if (!clients.ok()) return clients.status();
    absl::Status s =
        Await("all open", [&] { return handler.open == FLAGS_connections; });
    if (s.ok()) {
      g_clock.longest_cpu_ns = 0;
      g_clock.longest_wall_ns = 0;
      g_clock.turns = 0;
      g_clock.on = true;
      switch (way) {
        case Way::kPeersVanish:
          clients->End();
          break;
        case Way::kTaskCloses:
          (void)(*engine)->reactor(0).Post([&handler] {
            for (const ConnectionRef& ref : handler.refs) (void)ref.Close();
          });
          break;
        case Way::kEngineStops:
          (*engine)->Stop();
          break;
      }
      s = Await("all closed", [&] { return handler.open == 0; });
      g_clock.on = false;
    }
    if (way != Way::kPeersVanish || !s.ok()) clients->End();
    if (!s.ok()) return s;
    return Longest{static_cast<double>(g_clock.longest_cpu_ns) / 1e6,
                   static_cast<double>(g_clock.longest_wall_ns) / 1e6,
                   static_cast<double>(g_clock.turns)};
  };
  absl::StatusOr<Longest> longest = measure();
  (*engine)->Stop();
  thread.join();
  if (!ran.ok()) return ran;
  return longest;
}

absl::StatusOr<bool> MeasureAll() {
  if (FLAGS_connections < 1 || FLAGS_turns < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--connections=", FLAGS_connections,
                     ", --turns=", FLAGS_turns, ": both must be at least 1"));
  }
  if (absl::Status s = RaiseFdLimit(FLAGS_connections + 64); !s.ok()) return s;
  std::printf(
      "%d connections end at once; longest turn of the loop, medians "
      "of %d\n%-32s %10s %10s %8s\n",
      FLAGS_connections, FLAGS_turns, "", "CPU ms", "wall ms", "turns");
  bool all_ok = true;
  for (const auto& [way, name] :
       {std::pair{Way::kPeersVanish, "their process is killed"},
        std::pair{Way::kTaskCloses, "one task closes all"},
        std::pair{Way::kEngineStops, "the engine stops"}}) {
    std::vector<double> cpu;
    std::vector<double> wall;
    std::vector<double> turns;
    for (int turn = 0; turn < FLAGS_turns; ++turn) {
      const absl::StatusOr<Longest> longest = Measure(way);
      if (!longest.ok()) return longest.status();
      cpu.push_back(longest->cpu_ms);
      wall.push_back(longest->wall_ms);
      turns.push_back(longest->turns);
    }
    // Wall time has in it what else the machine did meanwhile.
    const bool ok = Median(cpu) <= FLAGS_limit_ms;
    std::printf("%-32s %10.3f %10.3f %8.0f  %s\n", name, Median(cpu),
                Median(wall), Median(turns), ok ? "ok" : "MISSED");
    all_ok = all_ok && ok;
  }
  return all_ok;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  ParseFlags("longest turn of a loop whose connections all end", &argc, &argv);
  return MeasureMain("close_turns", argc, argv, FLAGS_check, MeasureAll);
}
