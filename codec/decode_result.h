// Public header: what a decoder answers.
#ifndef SLUICE_CODEC_DECODE_RESULT_H_
#define SLUICE_CODEC_DECODE_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// The bound of every decoder unless its options say otherwise, and the highest
// they may say. A frame is held in memory whole.
inline constexpr size_t kDefaultMaxFrame = size_t{1} << 20;
inline constexpr size_t kHighestMaxFrame = INT32_MAX;

// What becomes of the stream after a frame above max_frame.
enum class WhenTooLong : uint8_t {
  // The error is final: every later Decode answers it again.
  kCloseConnection,
  // The frame is left out, the error is told once, and decoding goes on with
  // the frame behind it.
  kSkipFrame,
};

enum class DecodeCode : uint8_t {
  kNeedMore,  // nothing to be had from these bytes alone
  kFrame,
  kError,
};

enum class DecodeError : uint8_t {
  kNone,
  kTooLong,  // above max_frame
  kCorrupt,  // where the next frame begins cannot be known: always final
  // Within max_frame, and yet more than the connection keeps of its input
  // (ConnectionLimits::max_inbound): always final, told by ForEachFrame.
  kNoRoom,
};

// What exactly is corrupt.
enum class CorruptReason : uint8_t {
  kNone,
  kLengthOverflow,     // the length, or the sum it goes into, is over 63 bits
  kShorterThanHeader,  // the frame would end inside its own header
  kShorterThanStrip,   // the frame has fewer bytes than are to be stripped
  kVarintOverflow,     // more than 5 bytes, or more than 32 bits
};

// An error of the input, in 16 bytes.
struct DecodeFault {
  // As received for kCorrupt. For kTooLong, that of the frame; 0 if it was not
  // known yet when the error was told. For kNoRoom, max_inbound.
  uint64_t length = 0;
  uint32_t max_frame = 0;
  DecodeError error = DecodeError::kNone;
  CorruptReason reason = CorruptReason::kNone;

  // The same in words. DataLoss for kCorrupt, else ResourceExhausted.
  absl::Status ToStatus() const;

  friend bool operator==(const DecodeFault&, const DecodeFault&) = default;
};

struct DecodeResult {
  DecodeCode code = DecodeCode::kNeedMore;
  // Bytes at the front of the input that are done with: leave them out of the
  // next call's input. Not 0 with kNeedMore while a too long frame is skipped,
  // all of the input with a final error.
  size_t consumed = 0;
  // With kFrame: a part of the input, inside its consumed bytes. Empty is a
  // frame too.
  std::string_view frame;
  DecodeFault fault;  // with kError
};

}  // namespace sluice

#endif  // SLUICE_CODEC_DECODE_RESULT_H_
