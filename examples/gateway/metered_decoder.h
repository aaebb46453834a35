// gateway: a decoder that gives out no more packets than a budget allows.
#ifndef SLUICE_EXAMPLES_GATEWAY_METERED_DECODER_H_
#define SLUICE_EXAMPLES_GATEWAY_METERED_DECODER_H_

#include <string_view>

#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "codec/length_field_codec.h"
#include "examples/gateway/packet_budget.h"

namespace sluice::gateway {

// For ForEachFrame, one for each call. Without a token it says "need more": the
// packets that are there stay where they are, in the connection's input, and
// cost nothing until there are tokens again.
class MeteredDecoder {
 public:
  MeteredDecoder(const LengthFieldDecoder& decoder, const PacketRate& rate,
                 PacketBudget& budget, Clock::time_point now)
      : decoder_(decoder), rate_(rate), budget_(budget), now_(now) {}

  DecodeResult Decode(std::string_view input, DecodeState& state) const {
    if (input.empty()) return {};
    if (budget_.Wait(rate_, 1, now_) > Clock::duration::zero()) {
      held_back_ = true;
      return {};
    }
    const DecodeResult result = decoder_.Decode(input, state);
    if (result.code == DecodeCode::kFrame) {
      budget_.Take(rate_, now_);
      ++packets_;
    }
    return result;
  }

  int packets() const { return packets_; }
  // There was input, and no token to look at it.
  bool held_back() const { return held_back_; }

 private:
  const LengthFieldDecoder& decoder_;
  const PacketRate& rate_;
  PacketBudget& budget_;
  const Clock::time_point now_;
  // ForEachFrame knows decoders as constant.
  mutable int packets_ = 0;
  mutable bool held_back_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_METERED_DECODER_H_
