// Internal: frames that tell their length in front.
#ifndef SLUICE_CODEC_INTERNAL_LENGTH_PREFIXED_H_
#define SLUICE_CODEC_INTERNAL_LENGTH_PREFIXED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "codec/internal/frame_rules.h"

namespace sluice::internal {

// What the beginning of a frame says.
struct Prefix {
  bool complete = false;  // if not: the rest means nothing
  uint64_t received = 0;  // the length as it is there
  uint64_t size = 0;      // of all of the frame, what is stripped too; > 0
  uint64_t limited = 0;   // the part of it that max_frame is about
  uint64_t strip = 0;     // bytes at the front that are not given
  CorruptReason corrupt = CorruptReason::kNone;
};

// Decodes frames whose prefix `read(input)` understands. A frame's bytes behind
// its prefix are never looked at.
template <typename ReadPrefix>
DecodeResult DecodeLengthPrefixed(const FrameRules& rules,
                                  const ReadPrefix& read,
                                  std::string_view input, DecodeState& state) {
  using Phase = DecodeState::Phase;
  size_t skipped = 0;
  if (state.phase != Phase::kReading) [[unlikely]] {
    if (state.phase == Phase::kFailed) return FailForEver(input, state);
    skipped = static_cast<size_t>(std::min<uint64_t>(state.skip, input.size()));
    state.skip -= skipped;
    if (state.skip > 0) return NeedMore(skipped);
    state.phase = Phase::kReading;
    if (!rules.fail_fast) return Tell(rules, skipped, input, state);
  }

  const std::string_view rest = input.substr(skipped);
  const Prefix prefix = read(rest);
  if (!prefix.complete) return NeedMore(skipped);
  if (prefix.corrupt != CorruptReason::kNone) [[unlikely]] {
    return Corrupt(rules, prefix.corrupt, prefix.received, input, state);
  }
  if (prefix.limited > rules.max_frame) [[unlikely]] {
    if (prefix.size <= rest.size()) {
      return SkipWhole(rules, prefix.limited,
                       skipped + static_cast<size_t>(prefix.size), input,
                       state);
    }
    state.skip = prefix.size - rest.size();
    return BeginSkip(rules, prefix.limited, input.size(), input, state);
  }
  if (prefix.size > rest.size()) return NeedMore(skipped);
  // Not above the input's size from here on.
  const size_t size = static_cast<size_t>(prefix.size);
  const size_t strip = static_cast<size_t>(prefix.strip);
  DecodeResult result;
  result.code = DecodeCode::kFrame;
  result.consumed = skipped + size;
  result.frame = rest.substr(strip, size - strip);
  return result;
}

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_LENGTH_PREFIXED_H_
