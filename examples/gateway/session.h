// gateway: what it keeps of each connection.
#ifndef SLUICE_EXAMPLES_GATEWAY_SESSION_H_
#define SLUICE_EXAMPLES_GATEWAY_SESSION_H_

#include <cstdint>
#include <optional>

#include "codec/decode_state.h"
#include "examples/gateway/counters.h"
#include "examples/gateway/packet_budget.h"
#include "reactor/connection.h"
#include "reactor/reactor.h"

namespace sluice::gateway {

struct Session {
  enum class State : uint8_t {
    kNew,
    kLoggingIn,  // the query is in the worker pool
    kPlaying,
  };

  DecodeState decode;
  PacketBudget budget;
  ReadPause pause;      // while the budget is used up
  TimerId unfinished;   // set while a packet has begun and not ended
  uint32_t player = 0;  // once it plays
  State state = State::kNew;
  std::optional<Count> closed;  // the reason, if it is ours
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_SESSION_H_
