// gateway_client: somebody who logs in and moves.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_PLAYER_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_PLAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "examples/gateway_client/move_stream.h"
#include "examples/gateway_client/peer.h"

namespace sluice::gateway {

class Player : public Peer {
 public:
  enum class Kind : uint8_t {
    kHonest,   // wants every answer, and in time
    kFlooder,  // sends without minding whether it is answered
  };
  // `number` is among those of its kind.
  Player(Run& run, Kind kind, uint32_t number);

  // From now on it may Move; see MoveStream.
  void StartMoves(const Schedule& schedule, uint32_t players);
  void Move();

  void OnOpen(Connection& c) override;
  void OnPacket(Connection& c, const Packet& packet) override;
  void OnEnd(std::string_view why) override;

 private:
  void LogIn(Connection& c);
  void OnLoggedIn(std::string_view body);
  void OnMoved(std::string_view body);
  void OnRefused(std::string_view body);
  void Wrong(std::string_view what);

  const Kind kind_;
  const uint32_t number_;
  const std::string name_;
  ConnectionRef ref_;
  bool logged_in_ = false;
  std::optional<MoveStream> moves_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_PLAYER_H_
