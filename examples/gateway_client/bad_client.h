// gateway_client: somebody who sends what is no packet.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_BAD_CLIENT_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_BAD_CLIENT_H_

#include <functional>
#include <string>
#include <string_view>

#include "examples/gateway_client/peer.h"

namespace sluice::gateway {

// The bytes of it. After those of kUnfinished, one more now and then.
std::string BadBytes(BadInput input);

// Wants to be thrown out, and comes back a second later.
class BadClient : public Peer {
 public:
  // `come_back` dials again.
  BadClient(Run& run, BadInput input, std::function<void()> come_back);

  void OnOpen(Connection& c) override;
  void OnPacket(Connection& c, const Packet& packet) override;
  void OnEnd(std::string_view why) override;

 private:
  const BadInput input_;
  const std::function<void()> come_back_;
  bool connected_ = false;
  TimerId drip_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_BAD_CLIENT_H_
