// Public header: frames with their length in a field of a fixed place.
#ifndef SLUICE_CODEC_LENGTH_FIELD_CODEC_H_
#define SLUICE_CODEC_LENGTH_FIELD_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "codec/frame_header.h"

namespace sluice {

enum class ByteOrder : uint8_t { kBig, kLittle };

// The parameters and the arithmetic are those of Netty's
// LengthFieldBasedFrameDecoder, so that a protocol described for one can be
// read by the other.
struct LengthFieldOptions {
  // The longest frame, all of it: what is in front of the length, the length,
  // and what is stripped. From 1 to kHighestMaxFrame.
  size_t max_frame = kDefaultMaxFrame;
  size_t length_offset = 0;  // bytes in front of the length field
  size_t length_bytes = 4;   // 1, 2, 3, 4 or 8
  ByteOrder byte_order = ByteOrder::kBig;
  // Added to the value of the field to get how many bytes follow the field:
  // below 0 if the field counts itself, or what is in front of it, too.
  int64_t adjustment = 0;
  size_t strip = 0;  // bytes at the beginning that are not part of the frame
  // A frame that is too long is told when its length has arrived. False: when
  // all of it has gone by.
  bool fail_fast = true;
  WhenTooLong when_too_long = WhenTooLong::kCloseConnection;
};

//   size of a frame = length_offset + length_bytes + length + adjustment
//
// The length alone in front, kept or stripped:
//
//   length_bytes 2                | 00 03 | a b c |  ->  |00 03 a b c|
//   length_bytes 2, strip 2       | 00 03 | a b c |  ->  |a b c|
//
// The length counts itself as well:
//
//   length_bytes 2, adjustment -2 | 00 05 | a b c |  ->  |00 05 a b c|
//
// The length behind another header, or in front of one:
//
//   length_offset 1, length_bytes 2
//                            | CA | 00 03 | a b c |  ->  |CA 00 03 a b c|
//   length_bytes 2, adjustment 1
//                            | 00 03 | CA | a b c |  ->  |00 03 CA a b c|
//
// Between two, of which the first is stripped along with the length:
//
//   length_offset 1, length_bytes 2, adjustment 1, strip 3
//                       | CA | 00 03 | FE | a b c |  ->  |FE a b c|
//   ... and the length counts everything: adjustment -3, strip 3
//                       | CA | 00 07 | FE | a b c |  ->  |FE a b c|
//
// Corrupt are a length with the highest of 64 bits set, a frame that would end
// before its length field does, and one shorter than `strip`.
//
// Thread: any, several at once. Constant; copy it or share it.
class LengthFieldDecoder {
 public:
  static absl::StatusOr<LengthFieldDecoder> Create(
      const LengthFieldOptions& options = {});

  DecodeResult Decode(std::string_view input, DecodeState& state) const;
  size_t max_frame() const { return options_.max_frame; }

 private:
  explicit LengthFieldDecoder(const LengthFieldOptions& options)
      : options_(options) {}

  LengthFieldOptions options_;
};

// As Netty's LengthFieldPrepender.
struct LengthFieldEncoderOptions {
  size_t length_bytes = 4;  // 1, 2, 3, 4 or 8
  ByteOrder byte_order = ByteOrder::kBig;
  bool length_includes_itself = false;  // the field's own bytes count too
  int64_t adjustment = 0;               // added to the value of the field
};

//   value of the field = payload + (length_includes_itself ? length_bytes : 0)
//                        + adjustment
//
//   length_bytes 2                          |abc|  ->  | 00 03 | a b c |
//   length_bytes 2, length_includes_itself  |abc|  ->  | 00 05 | a b c |
//
// Thread: any, several at once.
class LengthFieldEncoder {
 public:
  static absl::StatusOr<LengthFieldEncoder> Create(
      const LengthFieldEncoderOptions& options = {});

  // Appends the frame. InvalidArgument, and nothing appended, if the value of
  // the field would be negative, or more than it holds (of 8 bytes: 63 bits).
  absl::Status Encode(std::string_view payload, std::string* out) const;

  // What is to be sent in front of the payload, for a gathering write. The same
  // errors.
  absl::StatusOr<FrameHeader> Header(size_t payload_size) const;

 private:
  explicit LengthFieldEncoder(const LengthFieldEncoderOptions& options)
      : options_(options) {}

  LengthFieldEncoderOptions options_;
};

}  // namespace sluice

#endif  // SLUICE_CODEC_LENGTH_FIELD_CODEC_H_
