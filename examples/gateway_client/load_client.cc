#include "examples/gateway_client/load_client.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/frames.h"
#include "examples/gateway_client/bad_client.h"
#include "examples/gateway_client/visitor.h"

namespace sluice::gateway {
namespace {

constexpr double kFloodPerSecond = 500;
constexpr std::chrono::milliseconds kWatchEvery{10};
// Players under way to the gateway at the same time: its listener's queue is
// finite, and so is that of its worker pool.
constexpr int kDialsAtOnce = 32;

// What a connection of ours keeps.
struct Line {
  explicit Line(std::shared_ptr<Peer> p) : peer(std::move(p)) {}
  std::shared_ptr<Peer> peer;
  DecodeState decode;
};

int64_t After(std::chrono::nanoseconds time) { return NowNs() + time.count(); }

}  // namespace

LoadClient::LoadClient(const LoadSettings& settings) : settings_(settings) {
  run_.result.players = settings.players;
}

// --- The game.

Action LoadClient::OnBoot(Engine& engine) {
  engine_ = &engine;
  run_.reactor = &engine.reactor(0);
  const absl::Status posted = run_.reactor->Post([this] { Begin(); });
  return posted.ok() ? Action::kNone : Action::kShutdown;
}

void LoadClient::Begin() {
  for (uint32_t i = 0; i < settings_.players; ++i) {
    players_.push_back(
        std::make_shared<Player>(run_, Player::Kind::kHonest, i));
  }
  for (uint32_t i = 0; i < settings_.flooders; ++i) {
    flooders_.push_back(
        std::make_shared<Player>(run_, Player::Kind::kFlooder, i));
  }
  to_dial_ = players_;
  to_dial_.insert(to_dial_.end(), flooders_.begin(), flooders_.end());
  phase_ends_ = After(settings_.patience);
  run_.reactor->RunEvery(kWatchEvery, [this] { Watch(); });
}

void LoadClient::Watch() {
  const bool late = NowNs() >= phase_ends_;
  switch (phase_) {
    case Phase::kLoggingIn:
      for (int i = 0; i < kDialsAtOnce && !to_dial_.empty(); ++i) {
        Dial(to_dial_.back());
        to_dial_.pop_back();
      }
      if (EverybodyIsIn()) {
        Play();
      } else if (late || !run_.result.troubles.empty()) {
        run_.result.Trouble("not everybody could log in");
        End();
      }
      return;
    case Phase::kPlaying:
      // Without a player left there is no game.
      if (late || run_.result.lost == players_.size()) StopSending();
      return;
    case Phase::kLastAnswers:
      if (Finished() || late) End();
      return;
    case Phase::kOver:
      return;
  }
}

bool LoadClient::EverybodyIsIn() const {
  return run_.result.logged_in == players_.size() &&
         run_.flooders_in == flooders_.size();
}

void LoadClient::Play() {
  phase_ = Phase::kPlaying;
  play_began_ = NowNs();
  phase_ends_ = After(settings_.play);

  // In turns, so that the players are spread evenly over a period.
  const auto start = [this](OpenLoop& loop,
                            std::vector<std::shared_ptr<Player>>& players,
                            double each_per_second) {
    const auto count = static_cast<uint32_t>(players.size());
    const Schedule schedule{.start = NowNs(),
                            .per_second = each_per_second * count};
    for (const auto& player : players) player->StartMoves(schedule, count);
    loop.Start(*run_.reactor, schedule, [&players](uint64_t turn) {
      players[turn % players.size()]->Move();
    });
  };
  start(moves_, players_, settings_.moves_per_second);
  start(floods_, flooders_, kFloodPerSecond);
  visits_.Start(*run_.reactor,
                {.start = NowNs(), .per_second = settings_.logins_per_second},
                [this](uint64_t turn) {
                  Dial(std::make_shared<Visitor>(
                      run_, turn, visits_.schedule().DueAt(turn)));
                });
  for (uint32_t i = 0; i < settings_.bad_clients; ++i) {
    for (size_t kind = 0; kind < kBadInputs; ++kind) {
      DialBadClient(static_cast<BadInput>(kind));
    }
  }
}

void LoadClient::StopSending() {
  phase_ = Phase::kLastAnswers;
  run_.result.seconds = SecondsPlayed();
  phase_ends_ = After(settings_.patience);
  for (OpenLoop* loop : {&moves_, &floods_, &visits_}) loop->Stop();
}

double LoadClient::SecondsPlayed() const {
  return static_cast<double>(NowNs() - play_began_) / 1e9;
}

bool LoadClient::Finished() const {
  return run_.awaited == 0 && run_.visiting == 0;
}

void LoadClient::End() {
  phase_ = Phase::kOver;
  run_.over = true;
  engine_->Stop();
}

// --- Connections.

void LoadClient::Dial(std::shared_ptr<Peer> peer) {
  DialOptions options;
  options.timeout = settings_.patience;
  const absl::Status dialing = engine_->Dial(
      settings_.gateway, options, [peer](absl::StatusOr<Connection*> dialed) {
        if (dialed.ok()) {
          (*dialed)->Emplace<Line>(peer);
        } else {
          peer->OnEnd(dialed.status().ToString());
        }
      });
  if (!dialing.ok()) peer->OnEnd(dialing.ToString());
}

void LoadClient::DialBadClient(BadInput input) {
  Dial(std::make_shared<BadClient>(run_, input, [this, input] {
    if (!run_.over) DialBadClient(input);
  }));
}

Action LoadClient::OnOpen(Connection& c) {
  c.Get<Line>().peer->OnOpen(c);
  return Action::kNone;
}

Action LoadClient::OnTraffic(Connection& c) {
  Line& line = c.Get<Line>();
  return ForEachFrame(
      c, decoder_, line.decode,
      [&](std::string_view frame) {
        const std::optional<Packet> packet = ParsePacket(frame);
        if (packet) {
          line.peer->OnPacket(c, *packet);
        } else {
          run_.result.Wrong("an answer without a command");
        }
      },
      [&](const DecodeFault& fault) {
        run_.result.Wrong(absl::StrCat("an answer that is no packet: ",
                                       fault.ToStatus().ToString()));
      });
}

void LoadClient::OnClose(Connection& c, const CloseInfo& info) {
  if (info.reason == CloseReason::kShutdown && !run_.over) {
    // Not our End: a signal stopped the engine.
    run_.over = true;
  }
  c.Get<Line>().peer->OnEnd(CloseReasonName(info.reason));
}

void LoadClient::OnShutdown(Engine&) {
  if (phase_ == Phase::kOver) return;
  run_.result.interrupted = true;
  if (phase_ == Phase::kPlaying) run_.result.seconds = SecondsPlayed();
}

}  // namespace sluice::gateway
