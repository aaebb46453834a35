// gateway_client: all the peers, from the first dial to the last answer.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_LOAD_CLIENT_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_LOAD_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "codec/length_field_codec.h"
#include "examples/gateway_client/open_loop.h"
#include "examples/gateway_client/peer.h"
#include "examples/gateway_client/player.h"
#include "reactor/engine.h"

namespace sluice::gateway {

struct LoadSettings {
  Address gateway;
  uint32_t players = 50;
  double moves_per_second = 20;  // of each player
  double logins_per_second = 0;  // of visitors
  uint32_t flooders = 0;         // 500 moves a second each
  uint32_t bad_clients = 0;      // of each kind
  std::chrono::milliseconds play{10'000};
  // For what is not the gateway's steady work: that everybody is in, and that
  // the last answers are there.
  std::chrono::milliseconds patience{30'000};
};

// For an engine with one reactor. Stops the engine when the game is over.
class LoadClient : public EventHandler {
 public:
  explicit LoadClient(const LoadSettings& settings);

  // Once the engine has ended.
  const Result& result() const { return run_.result; }

  Action OnBoot(Engine& engine) override;
  Action OnOpen(Connection& c) override;
  Action OnTraffic(Connection& c) override;
  void OnClose(Connection& c, const CloseInfo& info) override;
  void OnShutdown(Engine& engine) override;

 private:
  enum class Phase : uint8_t { kLoggingIn, kPlaying, kLastAnswers, kOver };

  void Begin();
  void Watch();  // is it time for the next phase?
  bool EverybodyIsIn() const;
  void Play();
  void StopSending();
  double SecondsPlayed() const;
  bool Finished() const;
  void End();

  void Dial(std::shared_ptr<Peer> peer);
  void DialBadClient(BadInput input);

  const LoadSettings settings_;
  const LengthFieldDecoder decoder_ = MakeDecoder();
  Engine* engine_ = nullptr;
  Run run_;
  Phase phase_ = Phase::kLoggingIn;
  int64_t phase_ends_ = 0;  // NowNs
  int64_t play_began_ = 0;
  std::vector<std::shared_ptr<Player>> players_;
  std::vector<std::shared_ptr<Player>> flooders_;
  std::vector<std::shared_ptr<Player>> to_dial_;
  OpenLoop moves_;
  OpenLoop floods_;
  OpenLoop visits_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_LOAD_CLIENT_H_
