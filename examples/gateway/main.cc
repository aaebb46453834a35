// A gateway for a game: players log in and move; protocol.h has the packets.
//
//   gateway --listen=tcp://:7000 --login_query=50ms
//
// Logins ask a database (played by a thread that sleeps) in the worker pool, so
// that they hold nobody up; moves are answered on the loop.
//
// Prints "ready ADDRESS" once it accepts. SIGUSR1 prints what it has counted.
// SIGINT and SIGTERM let the players finish for --drain, a second one does not;
// then the counters are printed. Exit code: 0; 1 if it could not serve; 2 if
// the flags are wrong.
#include <gflags/gflags.h>
#include <signal.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/duration_flag.h"
#include "examples/flags.h"
#include "examples/gateway/accounts.h"
#include "examples/gateway/gateway.h"
#include "examples/gateway/signal_thread.h"
#include "reactor/engine.h"

DEFINE_string(listen, "tcp://127.0.0.1:7000",
              "Where to listen, as Address::Parse reads it. Several: separated "
              "by commas, or the flag given more than once.");
DEFINE_int32(reactors, 0, "Loops that serve; 0: one for each allowed CPU.");
DEFINE_int32(workers, 16, "Threads for logins.");
DEFINE_int32(queue, 1'000,
             "Logins that may wait for a worker; the next ones are told to "
             "come back.");
DEFINE_string(login_query, "50ms", "How long the database takes for a login.");
DEFINE_int32(packets_per_second, 100,
             "What a connection may send in the long run; 0: no limit.");
DEFINE_int32(packet_burst, 100, "... and at once.");
DEFINE_string(idle, "60s",
              "A connection that is silent for so long is closed; 0: never.");
DEFINE_string(frame_deadline, "5s",
              "A packet that began arrives in this time, or the connection is "
              "closed.");
DEFINE_string(drain, "5s",
              "How long players have to finish after SIGINT or SIGTERM.");
DEFINE_int32(stats_every, 0, "Print the counters every so many seconds.");

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;

// What the flags say.
struct Settings {
  std::vector<ListenerSpec> listeners;
  Options engine = BoundedOptions();
  GatewayOptions gateway;
  milliseconds drain{0};
};

absl::Status CheckRange(const char* flag, int value, int least, int most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": from ", least, " to ", most, " is wanted"));
}

absl::Status ReadDuration(const char* flag, const std::string& value,
                          milliseconds least, milliseconds* out) {
  absl::StatusOr<milliseconds> parsed =
      examples::ParseDurationFlag(flag, value, least);
  if (parsed.ok()) *out = *parsed;
  return parsed.status();
}

absl::StatusOr<Settings> ReadFlags() {
  constexpr int kMost = std::numeric_limits<int>::max();
  Settings settings;
  milliseconds query{0};
  for (const absl::Status& s : {
           CheckRange("reactors", FLAGS_reactors, 0, 1024),
           CheckRange("workers", FLAGS_workers, 1, 1024),
           CheckRange("queue", FLAGS_queue, 1, kMost),
           CheckRange("packets_per_second", FLAGS_packets_per_second, 0,
                      1'000'000),
           CheckRange("packet_burst", FLAGS_packet_burst, 1, 1'000'000),
           CheckRange("stats_every", FLAGS_stats_every, 0, kMost),
           ReadDuration("login_query", FLAGS_login_query, milliseconds(0),
                        &query),
           ReadDuration("idle", FLAGS_idle, milliseconds(0),
                        &settings.engine.limits.idle_timeout),
           ReadDuration("frame_deadline", FLAGS_frame_deadline, milliseconds(1),
                        &settings.gateway.frame_deadline),
           ReadDuration("drain", FLAGS_drain, milliseconds(0), &settings.drain),
       }) {
    if (!s.ok()) return s;
  }
  for (const std::string& address :
       std::vector<std::string>(absl::StrSplit(FLAGS_listen, ','))) {
    settings.listeners.emplace_back(address, BoundedListenOptions());
  }
  settings.engine.reactors = FLAGS_reactors;
  settings.gateway.query = Accounts(query);
  settings.gateway.pool.threads = FLAGS_workers;
  settings.gateway.pool.queue = static_cast<size_t>(FLAGS_queue);
  settings.gateway.pool.thread_name = "login";
  settings.gateway.rate.per_second = FLAGS_packets_per_second;
  settings.gateway.rate.burst = FLAGS_packet_burst;
  return settings;
}

void PrintReady(Engine& engine) {
  for (const Address& address : engine.bound()) {
    std::printf("ready %s\n", address.ToString().c_str());
  }
  std::fflush(stdout);
}

void PrintCounters(const Gateway& gateway) {
  std::printf("\n%s", gateway.Report().c_str());
  std::fflush(stdout);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gateway: %s\n", std::string(status.message()).c_str());
  // A value that can never work is the caller's mistake; an address that is
  // taken, or a limit of the machine, is not.
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

int Serve(Settings settings) {
  absl::StatusOr<std::unique_ptr<Gateway>> gateway =
      Gateway::Create(std::move(settings.gateway));
  if (!gateway.ok()) return Fail(gateway.status());
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
      **gateway, std::move(settings.listeners), std::move(settings.engine));
  if (!engine.ok()) return Fail(engine.status());

  bool draining = false;
  SignalThread signals(std::chrono::seconds(FLAGS_stats_every),
                       [&](int signal) {
                         if (signal == 0 || signal == SIGUSR1) {
                           PrintCounters(**gateway);
                         } else if (draining) {
                           (*engine)->Stop();
                         } else {
                           draining = true;
                           (*engine)->Drain(settings.drain);
                         }
                       });
  // On a loop, from its first turn: "ready" is a promise that somebody accepts.
  const absl::Status posted =
      (*engine)->reactor(0).Post([e = engine->get()] { PrintReady(*e); });
  if (!posted.ok()) return Fail(posted);
  const absl::Status ran = (*engine)->Run();
  PrintCounters(**gateway);
  return ran.ok() ? 0 : Fail(ran);
}

}  // namespace
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  bool help = false;
  const absl::Status parsed =
      sluice::examples::ParseFlags(argc, argv, {"listen"}, &help);
  if (!parsed.ok()) return sluice::gateway::Fail(parsed);
  if (help) {
    std::fputs(sluice::examples::HelpText(
                   "gateway: serves players; see gateway_client.", "main.cc")
                   .c_str(),
               stdout);
    return 0;
  }
  absl::StatusOr<sluice::gateway::Settings> settings =
      sluice::gateway::ReadFlags();
  if (!settings.ok()) return sluice::gateway::Fail(settings.status());
  return sluice::gateway::Serve(*std::move(settings));
}
