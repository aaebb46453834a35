// gateway_client: one player's moves, and the answers they must have.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_MOVE_STREAM_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_MOVE_STREAM_H_

#include <cstdint>

#include "examples/gateway/protocol.h"
#include "examples/gateway_client/open_loop.h"

namespace sluice::gateway {

// Every move follows from the player's number and the move's, so the answer is
// known without keeping what was sent.
class MoveStream {
 public:
  // `players` take turns in `schedule`, `player` being 0 to players - 1.
  MoveStream(const Schedule& schedule, uint32_t player, uint32_t players)
      : schedule_(schedule), player_(player), players_(players) {}

  Move Next() { return At(sent_++); }

  // False: it is not the answer to the first of the outstanding ones, which
  // counts as answered either way.
  bool Check(const Move& answer) {
    if (outstanding() == 0) return false;
    return answer == InsideTheWorld(At(answered_++));
  }

  uint64_t outstanding() const { return sent_ - answered_; }

 private:
  Move At(uint64_t n) const {
    Move move;
    move.sequence = static_cast<uint32_t>(n);
    // Some steps lead out of the world, on every side.
    move.x = Step(2 * n);
    move.y = Step(2 * n + 1);
    move.sent_at =
        static_cast<uint64_t>(schedule_.DueAt(n * players_ + player_));
    return move;
  }
  int32_t Step(uint64_t n) const {
    uint64_t h = (n << 32 | player_) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    return static_cast<int32_t>(h % (kWorldSize + 2'000)) - 1'000;
  }

  Schedule schedule_;
  uint32_t player_;
  uint32_t players_;
  uint64_t sent_ = 0;
  uint64_t answered_ = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_MOVE_STREAM_H_
