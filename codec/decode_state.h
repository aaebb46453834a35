// Public header: what a decoder remembers of one stream between two reads.
#ifndef SLUICE_CODEC_DECODE_STATE_H_
#define SLUICE_CODEC_DECODE_STATE_H_

#include <cstdint>
#include <type_traits>

#include "codec/decode_result.h"

namespace sluice {

// One a stream, 32 bytes, in the object the user keeps in the connection. The
// decoder itself is constant and shared by all streams.
// Contract of a stream: each Decode sees the bytes the one before did not
//   consume, at any address, and behind them what has arrived since. Nothing
//   of the input is remembered but numbers.
// `DecodeState()` starts anew, after an error too.
struct DecodeState {
  enum class Phase : uint8_t {
    kReading,
    kSkipping,  // in a frame above max_frame; its bytes are only counted
    kFailed,    // for ever
  };

  // Of a too long frame, bytes to come, where a length tells.
  uint64_t skip = 0;
  // The last error; while skipping, the one that was or will be told.
  DecodeFault fault;
  // Bytes of the unconsumed input that were searched already.
  uint32_t scanned = 0;
  Phase phase = Phase::kReading;

  bool failed() const { return phase == Phase::kFailed; }
};
static_assert(sizeof(DecodeState) == 32);
static_assert(std::is_trivially_copyable_v<DecodeState>);

}  // namespace sluice

#endif  // SLUICE_CODEC_DECODE_STATE_H_
