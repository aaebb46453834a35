// gateway_client: one connection to the gateway, from its own side.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_PEER_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_PEER_H_

#include <cstdint>
#include <string_view>

#include "examples/gateway/protocol.h"
#include "examples/gateway_client/result.h"
#include "reactor/connection.h"
#include "reactor/reactor.h"

namespace sluice::gateway {

// What all peers share. Everything happens on one loop, so nothing is locked.
struct Run {
  Reactor* reactor = nullptr;
  Result result;
  uint64_t flooders_in = 0;  // logged in
  uint64_t awaited = 0;      // answers to honest moves that may still come
  uint64_t visiting = 0;     // visitors that are not through
  bool over = false;         // from now on connections end because we end them
};

class Peer {
 public:
  explicit Peer(Run& run) : run_(run) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  virtual void OnOpen(Connection& c) = 0;
  virtual void OnPacket(Connection& c, const Packet& packet) = 0;
  // The connection has ended, or could not be made.
  virtual void OnEnd(std::string_view why) = 0;

 protected:
  Run& run_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_PEER_H_
