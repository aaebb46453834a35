// gateway_client: somebody who logs in, and leaves.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_VISITOR_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_VISITOR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "examples/gateway_client/peer.h"

namespace sluice::gateway {

// Keeps the gateway's worker pool busy.
class Visitor : public Peer {
 public:
  // `due`: when it was to come, NowNs.
  Visitor(Run& run, uint64_t number, int64_t due);

  void OnOpen(Connection& c) override;
  void OnPacket(Connection& c, const Packet& packet) override;
  void OnEnd(std::string_view why) override;

 private:
  const std::string name_;
  const int64_t due_;
  bool answered_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_VISITOR_H_
