// Internal: what all decoders that can meet a too long frame have in common.
#ifndef SLUICE_CODEC_INTERNAL_FRAME_RULES_H_
#define SLUICE_CODEC_INTERNAL_FRAME_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"

namespace sluice::internal {

// "`field` is `value`: `reason`".
absl::Status BadOption(const char* field, const std::string& value,
                       const std::string& reason);

// The options of the same names.
struct FrameRules {
  uint32_t max_frame;
  bool fail_fast;
  WhenTooLong when_too_long;

  bool final() const { return when_too_long == WhenTooLong::kCloseConnection; }
};

// Of any options that have them. Checked where a decoder is created, taken
// where it decodes.
absl::Status CheckRules(size_t max_frame, WhenTooLong when_too_long);
template <typename Options>
absl::Status CheckRules(const Options& options) {
  return CheckRules(options.max_frame, options.when_too_long);
}
template <typename Options>
FrameRules RulesOf(const Options& options) {
  return {static_cast<uint32_t>(options.max_frame), options.fail_fast,
          options.when_too_long};
}

// --- Results that are no frame. `input` is all of the call's input, and of it
// the first `consumed` bytes are done with.

// Answers state.fault, for ever. Also what each later call answers.
inline DecodeResult FailForEver(std::string_view input, DecodeState& state) {
  state.phase = DecodeState::Phase::kFailed;
  DecodeResult result;
  result.code = DecodeCode::kError;
  result.consumed = input.size();
  result.fault = state.fault;
  return result;
}

inline DecodeResult Corrupt(const FrameRules& rules, CorruptReason reason,
                            uint64_t length, std::string_view input,
                            DecodeState& state) {
  state.fault = {length, rules.max_frame, DecodeError::kCorrupt, reason};
  return FailForEver(input, state);
}

// Answers state.fault: final or not, as the rules say.
inline DecodeResult Tell(const FrameRules& rules, size_t consumed,
                         std::string_view input, DecodeState& state) {
  if (rules.final()) return FailForEver(input, state);
  DecodeResult result;
  result.code = DecodeCode::kError;
  result.consumed = consumed;
  result.fault = state.fault;
  return result;
}

inline DecodeResult NeedMore(size_t consumed) {
  DecodeResult result;
  result.consumed = consumed;
  return result;
}

// A frame above max_frame is among the consumed bytes with its end.
inline DecodeResult SkipWhole(const FrameRules& rules, uint64_t length,
                              size_t consumed, std::string_view input,
                              DecodeState& state) {
  state.fault = {length, rules.max_frame, DecodeError::kTooLong,
                 CorruptReason::kNone};
  return Tell(rules, consumed, input, state);
}

// A frame above max_frame begins there, and its end has not arrived.
inline DecodeResult BeginSkip(const FrameRules& rules, uint64_t length,
                              size_t consumed, std::string_view input,
                              DecodeState& state) {
  state.phase = DecodeState::Phase::kSkipping;
  state.fault = {length, rules.max_frame, DecodeError::kTooLong,
                 CorruptReason::kNone};
  return rules.fail_fast ? Tell(rules, consumed, input, state)
                         : NeedMore(consumed);
}

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_FRAME_RULES_H_
