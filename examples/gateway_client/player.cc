#include "examples/gateway_client/player.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "examples/gateway/accounts.h"

namespace sluice::gateway {
namespace {

constexpr std::chrono::milliseconds kComeBackAfter{100};
// What a flooder lets pile up on our side.
constexpr size_t kFloodBytes = size_t{64} << 10;

}  // namespace

Player::Player(Run& run, Kind kind, uint32_t number)
    : Peer(run),
      kind_(kind),
      number_(number),
      name_(
          absl::StrCat(kind == Kind::kHonest ? "player" : "flooder", number)) {}

void Player::StartMoves(const Schedule& schedule, uint32_t players) {
  moves_.emplace(schedule, number_, players);
}

void Player::Move() {
  Connection* const c = run_.reactor->Find(ref_);
  if (c == nullptr || !c->open()) return;
  if (kind_ == Kind::kFlooder && c->outbound() > kFloodBytes) return;
  if (kind_ == Kind::kHonest) {
    ++run_.result.moves_sent;
    ++run_.awaited;
  } else {
    ++run_.result.flood_sent;
  }
  // If it fails, the connection ends and OnEnd says so.
  Send(*c, Payload::MoveOf(Command::kMove, moves_->Next())).IgnoreError();
}

void Player::OnOpen(Connection& c) {
  ref_ = c.ref();
  LogIn(c);
}

void Player::LogIn(Connection& c) {
  Send(c, Payload::Login(name_)).IgnoreError();  // as in Move
}

void Player::OnPacket(Connection&, const Packet& packet) {
  switch (packet.command) {
    case Command::kLoggedIn:
      return OnLoggedIn(packet.body);
    case Command::kMoved:
      return OnMoved(packet.body);
    case Command::kRefused:
      return OnRefused(packet.body);
    default:
      return Wrong("an unknown command");
  }
}

void Player::OnLoggedIn(std::string_view body) {
  if (logged_in_) return Wrong("logged in twice");
  if (ParseLoggedIn(body) != Accounts::Number(name_)) {
    return Wrong("logged in as somebody else");
  }
  logged_in_ = true;
  ++(kind_ == Kind::kHonest ? run_.result.logged_in : run_.flooders_in);
}

void Player::OnMoved(std::string_view body) {
  if (!moves_ || moves_->outstanding() == 0) return Wrong("moved unasked");
  if (kind_ == Kind::kHonest) --run_.awaited;
  const gateway::Move moved = ParseMove(body).value_or(gateway::Move());
  if (!moves_->Check(moved)) {
    return Wrong("not the answer to its move");
  }
  if (kind_ == Kind::kFlooder) {
    ++run_.result.flood_answered;
    return;
  }
  ++run_.result.moves_answered;
  const int64_t took = NowNs() - static_cast<int64_t>(moved.sent_at);
  run_.result.move_times.Record(
      static_cast<uint64_t>(std::max<int64_t>(0, took)) / 1'000);
}

void Player::OnRefused(std::string_view body) {
  if (logged_in_ || ParseRefused(body) != Refusal{.command = Command::kLogin,
                                                  .why = Why::kComeBack}) {
    return Wrong("refused for no reason");
  }
  run_.reactor->RunAfter(kComeBackAfter, [this] {
    Connection* const c = run_.reactor->Find(ref_);
    if (c != nullptr) LogIn(*c);
  });
}

void Player::OnEnd(std::string_view why) {
  if (run_.over) return;
  if (kind_ == Kind::kHonest && moves_) run_.awaited -= moves_->outstanding();
  ++(kind_ == Kind::kHonest ? run_.result.lost : run_.result.flood_lost);
  run_.result.Trouble(absl::StrCat(name_, ": ", std::string(why)));
}

void Player::Wrong(std::string_view what) {
  run_.result.Wrong(absl::StrCat(name_, ": ", std::string(what)));
}

}  // namespace sluice::gateway
