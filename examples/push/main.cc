// A push server: clients subscribe to topics by lines of text, and get what is
// published there; command.h has the protocol.
//
//   push --listen=tcp://:9100 --control=unix://push.sock
//
// A port that others can reach must not publish to everybody: unless
// --publish_from=any, only the control socket publishes, a Unix socket whose
// file (mode 0600) is its owner's alone.
//
// Prints "ready ADDRESS" for each address once it accepts. SIGINT and SIGTERM
// stop it: every connection gets one attempt to send what is queued, then the
// counters of each topic are printed. Exit code: 0; 1 if it could not serve; 2
// if the flags are wrong.
#include <gflags/gflags.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/duration_flag.h"
#include "examples/flag_checks.h"
#include "examples/flags.h"
#include "examples/push/push_server.h"
#include "reactor/engine.h"

DEFINE_string(listen, "tcp://:9100",
              "Where to listen, as Address::Parse reads it. Several: separated "
              "by commas, or the flag given more than once.");
DEFINE_string(control, "unix://push.sock",
              "Control socket: a Unix socket with a file, which gets mode "
              "0600; empty: none.");
DEFINE_string(publish_from, "control",
              "Who may publish: control (the control socket alone), or any "
              "(whoever can connect).");
DEFINE_int32(reactors, 0, "Loops that serve; 0: one for each allowed CPU.");
DEFINE_string(fd_tables, "shared",
              "Tables of open files: shared, or per_reactor (more connections "
              "than RLIMIT_NOFILE).");
DEFINE_string(when_slow, "skip",
              "A message for a subscriber with more than --max_backlog unread: "
              "skip it, close the connection, or keep only the latest.");
DEFINE_int64(max_backlog, 256 << 10,
             "Bytes that may wait for a subscriber to read them.");
DEFINE_int64(max_pending, 64 << 20,
             "Bytes published in a topic and not dealt out yet; more is "
             "refused.");
DEFINE_int32(sends_per_turn, 128,
             "Sends of a loop before it looks at its other events.");
DEFINE_double(sends_per_second, 0, "Sends a second of each loop; 0: no limit.");
DEFINE_string(round_trip, "0s",
              "Round trip to the subscribers: sets the pace so that TCP's "
              "memory suffices (worth it from some 100,000 subscribers on); 0: "
              "not paced.");
DEFINE_string(idle_timeout, "0s",
              "A connection with no byte in or out for so long is closed; "
              "clients of quiet topics then PING. 0: never.");
DEFINE_int64(max_topics, 10'000,
             "Topics. At the bound, the one that has been without subscribers "
             "the longest makes room for a new one.");
DEFINE_int64(max_subscriptions, 100, "Topics of one connection.");
DEFINE_int64(max_line, 4096, "Bytes of a command, and of a message.");

namespace sluice::push {
namespace {

using std::chrono::milliseconds;

// What the flags say.
struct Settings {
  std::vector<ListenerSpec> listeners;
  Options engine;
  PushOptions push;
};

absl::Status ReadDuration(const char* flag, const std::string& value,
                          milliseconds* out) {
  absl::StatusOr<milliseconds> parsed =
      examples::ParseDurationFlag(flag, value);
  if (parsed.ok()) *out = *parsed;
  return parsed.status();
}

ListenOptions PublicListenOptions() {
  ListenOptions options;
  // A subscriber of a quiet topic says nothing: the kernel asks whether it is
  // still there, and does not wait for ever for what it should acknowledge.
  options.socket.keep_alive = KeepAlive{.idle = std::chrono::seconds(60)};
  options.socket.user_timeout = std::chrono::minutes(2);
  return options;
}

// The file gets the mode that the socket has before bind: at no moment may
// others connect.
ListenOptions ControlListenOptions() {
  ListenOptions options;
  options.socket.before_bind = [](int fd) {
    return fchmod(fd, S_IRUSR | S_IWUSR) == 0
               ? absl::OkStatus()
               : absl::ErrnoToStatus(errno, "mode of the control socket");
  };
  return options;
}

absl::Status ReadAddresses(Settings* settings) {
  for (const std::string& address :
       std::vector<std::string>(absl::StrSplit(FLAGS_listen, ','))) {
    settings->listeners.emplace_back(address, PublicListenOptions());
  }
  bool control_only = true;
  if (absl::Status s = examples::Choose<bool>(
          "publish_from", FLAGS_publish_from,
          {{"control", true}, {"any", false}}, &control_only);
      !s.ok()) {
    return s;
  }
  if (control_only) {
    settings->push.publish_from = static_cast<int>(settings->listeners.size());
  }
  if (FLAGS_control.empty()) {
    if (!control_only) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--control= and --publish_from=control: nobody could publish");
  }
  const absl::StatusOr<Address> control = Address::Parse(FLAGS_control);
  if (!control.ok()) return control.status();
  if (control->family() != Address::Family::kUnix || control->is_abstract()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--control=", FLAGS_control,
                     ": a Unix socket with a file is wanted, as everybody "
                     "could connect to any other"));
  }
  settings->listeners.emplace_back(FLAGS_control, ControlListenOptions());
  return absl::OkStatus();
}

absl::StatusOr<Settings> ReadFlags() {
  constexpr int64_t kMost = int64_t{1} << 30;
  Settings settings;
  GroupOptions& group = settings.push.topics.group;
  BroadcasterOptions& broadcaster = settings.push.topics.broadcaster;
  for (const absl::Status& s : {
           examples::CheckRange("reactors", FLAGS_reactors, 0, 1024),
           examples::CheckRange<int64_t>("max_backlog", FLAGS_max_backlog, 0,
                                         kMost),
           examples::CheckRange<int64_t>("max_pending", FLAGS_max_pending, 1,
                                         kMost),
           examples::CheckRange("sends_per_turn", FLAGS_sends_per_turn, 1,
                                1'000'000),
           FLAGS_sends_per_second == 0
               ? absl::OkStatus()
               : examples::CheckRange("sends_per_second",
                                      FLAGS_sends_per_second, 0.001, 1e9),
           examples::CheckRange<int64_t>("max_topics", FLAGS_max_topics, 1,
                                         1'000'000),
           examples::CheckRange<int64_t>("max_subscriptions",
                                         FLAGS_max_subscriptions, 1, 1'000'000),
           // The longest answer that a short line can need has room, too.
           examples::CheckRange<int64_t>("max_line", FLAGS_max_line, 128,
                                         1 << 20),
           ReadDuration("round_trip", FLAGS_round_trip,
                        &broadcaster.round_trip),
           examples::Choose<WhenSlow>("when_slow", FLAGS_when_slow,
                                      {{"skip", WhenSlow::kSkip},
                                       {"close", WhenSlow::kClose},
                                       {"latest", WhenSlow::kLatest}},
                                      &group.when_slow),
           examples::Choose<FdTables>("fd_tables", FLAGS_fd_tables,
                                      {{"shared", FdTables::kShared},
                                       {"per_reactor", FdTables::kPerReactor}},
                                      &settings.engine.fd_tables),
           ReadAddresses(&settings),
       }) {
    if (!s.ok()) return s;
  }
  group.max_backlog = static_cast<size_t>(FLAGS_max_backlog);
  group.max_pending = static_cast<size_t>(FLAGS_max_pending);
  broadcaster.sends_per_turn = FLAGS_sends_per_turn;
  broadcaster.sends_per_second = FLAGS_sends_per_second;
  settings.push.topics.max_topics = static_cast<size_t>(FLAGS_max_topics);
  settings.push.max_subscriptions =
      static_cast<size_t>(FLAGS_max_subscriptions);
  settings.push.max_line = static_cast<size_t>(FLAGS_max_line);
  settings.engine.reactors = FLAGS_reactors;
  settings.engine.handle_signals = true;
  settings.engine.limits = LimitsFor(settings.push);
  absl::Status idle = ReadDuration("idle_timeout", FLAGS_idle_timeout,
                                   &settings.engine.limits.idle_timeout);
  if (!idle.ok()) return idle;
  return settings;
}

void PrintReady(Engine& engine) {
  for (const Address& address : engine.bound()) {
    std::printf("ready %s\n", address.ToString().c_str());
  }
  std::fflush(stdout);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "push: %s\n", std::string(status.message()).c_str());
  // A value that can never work is the caller's mistake; an address that is
  // taken, or a limit of the machine, is not.
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

int Serve(Settings settings) {
  absl::StatusOr<std::unique_ptr<PushServer>> server =
      PushServer::Create(std::move(settings.push));
  if (!server.ok()) return Fail(server.status());
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
      **server, std::move(settings.listeners), std::move(settings.engine));
  if (!engine.ok()) return Fail(engine.status());
  // On a loop, from its first turn: "ready" is a promise that somebody accepts.
  const absl::Status posted =
      (*engine)->reactor(0).Post([e = engine->get()] { PrintReady(*e); });
  if (!posted.ok()) return Fail(posted);
  const absl::Status ran = (*engine)->Run();
  if (!ran.ok()) return Fail(ran);
  if (!(*server)->status().ok()) return Fail((*server)->status());
  std::printf("\n%s", (*server)->Summary().c_str());
  return 0;
}

}  // namespace
}  // namespace sluice::push

int main(int argc, char** argv) {
  bool help = false;
  const absl::Status parsed =
      sluice::examples::ParseFlags(argc, argv, {"listen"}, &help);
  if (!parsed.ok()) return sluice::push::Fail(parsed);
  if (help) {
    std::fputs(
        sluice::examples::HelpText(
            "push: topics that clients subscribe to; see push_load.", "main.cc")
            .c_str(),
        stdout);
    return 0;
  }
  absl::StatusOr<sluice::push::Settings> settings = sluice::push::ReadFlags();
  if (!settings.ok()) return sluice::push::Fail(settings.status());
  return sluice::push::Serve(*std::move(settings));
}
