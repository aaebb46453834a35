// Subscribes to a topic of push with many connections, publishes there, and
// checks that every message reaches every subscriber once and in order.
//
//   push_load --connections=1000 --publish=unix://push.sock
//   push_load --connections=15000 --messages=20 --rate=2 --slow=1 ...
//
// Prints how many messages were received, how many a second, and how long after
// it was due a message was at its first and at its last reader.
//
// Exit code: 0 if every reader had every message; 1 if not; 2 if the flags are
// wrong; 130 after Ctrl-C.
#include <gflags/gflags.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "examples/duration_flag.h"
#include "examples/flag_checks.h"
#include "examples/flags.h"
#include "examples/push/command.h"
#include "examples/push_load/load_client.h"
#include "examples/push_load/result.h"
#include "reactor/engine.h"

DEFINE_string(address, "tcp://127.0.0.1:9100", "Push, for the subscribers.");
DEFINE_string(publish, "unix://push.sock",
              "Where to publish: the control socket of push, or the address "
              "again if it lets anybody publish.");
DEFINE_int64(connections, 1'000, "Subscribers.");
DEFINE_double(slow, 0, "Percent of them that never read.");
DEFINE_string(topic, "", "Topic; empty: one that nobody else has.");
DEFINE_int64(messages, 100, "Messages to publish.");
DEFINE_int64(bytes, 128, "Bytes of text in each.");
DEFINE_double(rate, 10, "Messages a second.");
DEFINE_int32(reactors, 0,
             "Loops of this program; 0: one for each allowed CPU.");
DEFINE_string(fd_tables, "shared",
              "Tables of open files: shared, or per_reactor (more connections "
              "than RLIMIT_NOFILE).");
DEFINE_string(patience, "30s",
              "When nothing new has come for so long, what is missing is taken "
              "for lost.");
DEFINE_string(json, "", "File for the result as JSON; empty: none.");

namespace sluice::push {
namespace {

struct Settings {
  LoadSettings load;
  Options engine;
};

absl::Status ReadAddress(const std::string& value, Address* out) {
  absl::StatusOr<Address> address = Address::Resolve(value);
  if (address.ok()) *out = *std::move(address);
  return address.status();
}

absl::Status CheckTopic(const std::string& topic) {
  const absl::Status s = ParseCommand("SUB " + topic).status();
  if (s.ok()) return s;
  return absl::InvalidArgumentError(
      absl::StrCat("--topic=", topic, ": ", s.message()));
}

absl::StatusOr<Settings> ReadFlags() {
  Settings settings;
  LoadSettings& load = settings.load;
  load.topic =
      FLAGS_topic.empty() ? absl::StrCat("load-", getpid()) : FLAGS_topic;
  for (const absl::Status& s : {
           examples::CheckRange<int64_t>("connections", FLAGS_connections, 1,
                                         10'000'000),
           // At least one reads.
           examples::CheckRange("slow", FLAGS_slow, 0.0, 99.0),
           examples::CheckRange<int64_t>("messages", FLAGS_messages, 1,
                                         1'000'000),
           examples::CheckRange<int64_t>(
               "bytes", FLAGS_bytes, Messages::kLeastBytes, (1 << 20) - 256),
           examples::CheckRange("rate", FLAGS_rate, 0.001, 1e6),
           examples::CheckRange("reactors", FLAGS_reactors, 0, 1024),
           examples::Choose<FdTables>("fd_tables", FLAGS_fd_tables,
                                      {{"shared", FdTables::kShared},
                                       {"per_reactor", FdTables::kPerReactor}},
                                      &settings.engine.fd_tables),
           ReadAddress(FLAGS_address, &load.server),
           ReadAddress(FLAGS_publish, &load.publisher),
           CheckTopic(load.topic),
       }) {
    if (!s.ok()) return s;
  }
  const auto patience = examples::ParseDurationFlag(
      "patience", FLAGS_patience, std::chrono::milliseconds(100));
  if (!patience.ok()) return patience.status();
  load.patience = *patience;
  load.connections = static_cast<uint64_t>(FLAGS_connections);
  load.slow_percent = FLAGS_slow;
  load.messages = static_cast<uint32_t>(FLAGS_messages);
  load.bytes = static_cast<size_t>(FLAGS_bytes);
  load.rate = FLAGS_rate;
  settings.engine.reactors = FLAGS_reactors;
  settings.engine.handle_signals = true;
  // Push, on this machine, pins its loops: we run where there is room.
  settings.engine.pinning.mode = CpuPinning::Mode::kOff;
  return settings;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "push_load: %s\n",
               std::string(status.message()).c_str());
  return code;
}

int Load(Settings settings, std::FILE* json) {
  LoadClient client(std::move(settings.load));
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(client, {}, std::move(settings.engine));
  if (!engine.ok()) return Fail(engine.status(), 1);
  const absl::Status ran = (*engine)->Run();
  if (!ran.ok()) return Fail(ran, 1);
  std::fputs(Table(client.result()).c_str(), stdout);
  if (json != nullptr) {
    std::fputs(Json(client.result()).c_str(), json);
    if (std::fclose(json) != 0) {
      return Fail(absl::ErrnoToStatus(errno, FLAGS_json), 1);
    }
  }
  return client.result().exit_code();
}

}  // namespace
}  // namespace sluice::push

int main(int argc, char** argv) {
  using sluice::push::Fail;
  bool help = false;
  const absl::Status parsed =
      sluice::examples::ParseFlags(argc, argv, {}, &help);
  if (!parsed.ok()) return Fail(parsed, 2);
  if (help) {
    std::fputs(sluice::examples::HelpText(
                   "push_load: subscribers of push that check what they get.",
                   "main.cc")
                   .c_str(),
               stdout);
    return 0;
  }
  auto settings = sluice::push::ReadFlags();
  if (!settings.ok()) return Fail(settings.status(), 2);
  std::FILE* json = nullptr;
  if (!FLAGS_json.empty()) {
    // Before the run, so that a mistyped name does not cost it.
    json = std::fopen(FLAGS_json.c_str(), "we");
    if (json == nullptr) return Fail(absl::ErrnoToStatus(errno, FLAGS_json), 2);
  }
  return sluice::push::Load(*std::move(settings), json);
}
