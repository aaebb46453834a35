// Public header: frames of one size.
#ifndef SLUICE_CODEC_FIXED_LENGTH_CODEC_H_
#define SLUICE_CODEC_FIXED_LENGTH_CODEC_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"

namespace sluice {

struct FixedLengthOptions {
  // Of every frame. From 1 to kHighestMaxFrame; must be set.
  size_t frame_length = 0;
};

// Frames of frame_length bytes. There is no input that is wrong.
//
//   frame_length = 3      "abcdefgh"  ->  |abc|  |def|  and "gh" is waiting
//
// Thread: any, several at once. Constant; copy it or share it.
class FixedLengthDecoder {
 public:
  static absl::StatusOr<FixedLengthDecoder> Create(
      const FixedLengthOptions& options);

  // `state` is not used: there for the likeness with the other decoders.
  DecodeResult Decode(std::string_view input, DecodeState& state) const;
  size_t max_frame() const { return frame_length_; }

 private:
  explicit FixedLengthDecoder(size_t frame_length)
      : frame_length_(frame_length) {}

  size_t frame_length_;
};

// Passes payloads of frame_length bytes on as they are.
//
// Thread: any, several at once.
class FixedLengthEncoder {
 public:
  static absl::StatusOr<FixedLengthEncoder> Create(
      const FixedLengthOptions& options);

  // Appends the frame. InvalidArgument, and nothing appended, if the payload
  // has another size.
  absl::Status Encode(std::string_view payload, std::string* out) const;

  // The same check, for a payload that is then sent as it is.
  absl::Status Check(std::string_view payload) const;

 private:
  explicit FixedLengthEncoder(size_t frame_length)
      : frame_length_(frame_length) {}

  size_t frame_length_;
};

}  // namespace sluice

#endif  // SLUICE_CODEC_FIXED_LENGTH_CODEC_H_
