// Public header: frames behind a varint, as Protocol Buffers delimit messages.
#ifndef SLUICE_CODEC_VARINT_CODEC_H_
#define SLUICE_CODEC_VARINT_CODEC_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "codec/frame_header.h"

namespace sluice {

struct VarintOptions {
  // The longest frame, without its length. From 1 to kHighestMaxFrame.
  size_t max_frame = kDefaultMaxFrame;
  // A frame that is too long is told when its length has arrived. False: when
  // all of it has gone by.
  bool fail_fast = true;
  WhenTooLong when_too_long = WhenTooLong::kCloseConnection;
};

// A length of 1 to 5 bytes, seven bits in each, the lowest first, the highest
// bit set in all but the last; then so many bytes.
//
//   | 03 | a b c | AC 02 | 300 bytes |  ->  |a b c|  |300 bytes|
//
// A length with zeros at its end (83 00 for 3) is taken, as Protocol Buffers
// do. More than 5 bytes, or than 32 bits, are corrupt.
//
// Thread: any, several at once. Constant; copy it or share it.
class VarintDecoder {
 public:
  static absl::StatusOr<VarintDecoder> Create(
      const VarintOptions& options = {});

  DecodeResult Decode(std::string_view input, DecodeState& state) const;
  size_t max_frame() const { return options_.max_frame; }

 private:
  explicit VarintDecoder(const VarintOptions& options) : options_(options) {}

  VarintOptions options_;
};

//   |abc|  ->  | 03 | a b c |
//
// Thread: any, several at once.
class VarintEncoder {
 public:
  // Appends the frame. InvalidArgument, and nothing appended, if the payload
  // has 4 GiB or more.
  absl::Status Encode(std::string_view payload, std::string* out) const;

  // What is to be sent in front of the payload, for a gathering write. The same
  // error.
  absl::StatusOr<FrameHeader> Header(size_t payload_size) const;
};

}  // namespace sluice

#endif  // SLUICE_CODEC_VARINT_CODEC_H_
