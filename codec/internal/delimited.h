// Internal: frames that end where something is found.
#ifndef SLUICE_CODEC_INTERNAL_DELIMITED_H_
#define SLUICE_CODEC_INTERNAL_DELIMITED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "codec/internal/frame_rules.h"

namespace sluice::internal {

// Where a frame ends: |frame| = [0, frame), |delimiter| = [frame, end).
struct FrameEnd {
  size_t frame = 0;
  size_t end = 0;  // 0: not found

  explicit operator bool() const { return end > 0; }
};

// Decodes what `finder` finds the ends of. A Finder has
//   FrameEnd Find(input, from): of the delimiter that ends first at or behind
//     `from`, where `from` earlier bytes were searched already;
//   size_t tail(): how many bytes in front of the end of a delimiter belong to
//     it, at most;
//   bool MayFit(input, max_frame): whether the input, which has no delimiter
//     and is longer than max_frame, may be the beginning of one shorter frame
//     and a delimiter.
// Each byte is searched once however the input is cut.
template <typename Finder>
DecodeResult DecodeDelimited(const FrameRules& rules, const Finder& finder,
                             bool strip_delimiter, std::string_view input,
                             DecodeState& state) {
  using Phase = DecodeState::Phase;
  if (state.phase == Phase::kFailed) [[unlikely]] {
    return FailForEver(input, state);
  }
  std::string_view rest = input;
  size_t scanned = std::min<size_t>(state.scanned, rest.size());
  if (state.phase == Phase::kSkipping) [[unlikely]] {
    const FrameEnd found = finder.Find(rest, scanned);
    const size_t kept =
        found ? rest.size() - found.end : std::min(rest.size(), finder.tail());
    const size_t consumed = rest.size() - kept;
    if (!rules.fail_fast) state.fault.length += found ? found.frame : consumed;
    if (!found) {
      state.scanned = static_cast<uint32_t>(kept);
      return NeedMore(consumed);
    }
    state.phase = Phase::kReading;
    state.scanned = 0;
    if (!rules.fail_fast) return Tell(rules, consumed, input, state);
    rest.remove_prefix(consumed);
    scanned = 0;
  }

  const size_t skipped = input.size() - rest.size();
  const FrameEnd found = finder.Find(rest, scanned);
  if (!found) {
    if (rest.size() <= rules.max_frame ||
        finder.MayFit(rest, rules.max_frame)) {
      state.scanned = static_cast<uint32_t>(rest.size());
      return NeedMore(skipped);
    }
    const size_t kept = std::min(rest.size(), finder.tail());
    state.scanned = static_cast<uint32_t>(kept);
    return BeginSkip(rules, rules.fail_fast ? 0 : rest.size() - kept,
                     input.size() - kept, input, state);
  }
  state.scanned = 0;
  if (found.frame > rules.max_frame) [[unlikely]] {
    // The length is left out where it would be known only by chance.
    return SkipWhole(rules, rules.fail_fast ? 0 : found.frame,
                     skipped + found.end, input, state);
  }
  DecodeResult result;
  result.code = DecodeCode::kFrame;
  result.consumed = skipped + found.end;
  result.frame = rest.substr(0, strip_delimiter ? found.frame : found.end);
  return result;
}

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_DELIMITED_H_
