// Plays a game with the gateway: players that move, visitors that only log in,
// some who send too much, some who send nonsense.
//
//   gateway_client --players=100 --rate=20 --seconds=10
//   gateway_client --logins_per_second=100 --flood=2 --bad=1
//
// Checks every answer, and prints how long the moves took, measured from when
// each was due (open loop).
//
// Exit code: 0 if every player kept its connection and had every answer; 1 if
// not; 2 if the flags are wrong; 130 after Ctrl-C.
#include <gflags/gflags.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "examples/flags.h"
#include "examples/gateway_client/load_client.h"
#include "examples/gateway_client/result.h"
#include "reactor/engine.h"

DEFINE_string(address, "tcp://127.0.0.1:7000", "The gateway's.");
DEFINE_int32(players, 50, "Players that move.");
DEFINE_double(rate, 20, "Moves a second of each player.");
DEFINE_double(logins_per_second, 0,
              "Visitors a second: each connects, logs in and leaves.");
DEFINE_int32(flood, 0, "Players that send 500 moves a second.");
DEFINE_int32(bad, 0,
             "Clients of each kind that send bad input, and come back when "
             "they are thrown out.");
DEFINE_double(seconds, 10, "How long they play.");
DEFINE_string(json, "", "File for the result as JSON; empty: none.");

namespace sluice::gateway {
namespace {

absl::Status CheckRange(const char* flag, double value, double least,
                        double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": from ", least, " to ", most, " is wanted"));
}

absl::StatusOr<LoadSettings> ReadFlags() {
  for (const absl::Status& s :
       {CheckRange("players", FLAGS_players, 1, 100'000),
        CheckRange("rate", FLAGS_rate, 0.001, 100'000),
        CheckRange("logins_per_second", FLAGS_logins_per_second, 0, 100'000),
        CheckRange("flood", FLAGS_flood, 0, 1'000),
        CheckRange("bad", FLAGS_bad, 0, 1'000),
        CheckRange("seconds", FLAGS_seconds, 0.1, 86'400)}) {
    if (!s.ok()) return s;
  }
  LoadSettings settings;
  absl::StatusOr<Address> gateway = Address::Resolve(FLAGS_address);
  if (!gateway.ok()) return gateway.status();
  settings.gateway = *std::move(gateway);
  settings.players = static_cast<uint32_t>(FLAGS_players);
  settings.moves_per_second = FLAGS_rate;
  settings.logins_per_second = FLAGS_logins_per_second;
  settings.flooders = static_cast<uint32_t>(FLAGS_flood);
  settings.bad_clients = static_cast<uint32_t>(FLAGS_bad);
  settings.play =
      std::chrono::milliseconds(static_cast<int64_t>(FLAGS_seconds * 1e3));
  return settings;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "gateway_client: %s\n",
               std::string(status.message()).c_str());
  return code;
}

int Play(const LoadSettings& settings, std::FILE* json) {
  LoadClient client(settings);
  Options options;
  options.reactors = 1;  // what LoadClient is made for
  options.handle_signals = true;
  // A gateway on this machine pins its loops: we run where there is room.
  options.pinning.mode = CpuPinning::Mode::kOff;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(client, {}, std::move(options));
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
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  using sluice::gateway::Fail;
  bool help = false;
  const absl::Status parsed =
      sluice::examples::ParseFlags(argc, argv, {}, &help);
  if (!parsed.ok()) return Fail(parsed, 2);
  if (help) {
    std::fputs(sluice::examples::HelpText(
                   "gateway_client: plays a game with the gateway.", "main.cc")
                   .c_str(),
               stdout);
    return 0;
  }
  const auto settings = sluice::gateway::ReadFlags();
  if (!settings.ok()) return Fail(settings.status(), 2);
  std::FILE* json = nullptr;
  if (!FLAGS_json.empty()) {
    // Before the game, so that a mistyped name does not cost it.
    json = std::fopen(FLAGS_json.c_str(), "we");
    if (json == nullptr) return Fail(absl::ErrnoToStatus(errno, FLAGS_json), 2);
  }
  return sluice::gateway::Play(*settings, json);
}
