#include "codec/fixed_length_codec.h"

#include "absl/strings/str_cat.h"
#include "codec/internal/frame_rules.h"

namespace sluice {
namespace {

absl::Status CheckLength(size_t frame_length) {
  if (frame_length < 1 || frame_length > kHighestMaxFrame) {
    return internal::BadOption("frame_length", absl::StrCat(frame_length),
                               absl::StrCat("must be 1 to ", kHighestMaxFrame));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FixedLengthDecoder> FixedLengthDecoder::Create(
    const FixedLengthOptions& options) {
  const absl::Status checked = CheckLength(options.frame_length);
  if (!checked.ok()) return checked;
  return FixedLengthDecoder(options.frame_length);
}

DecodeResult FixedLengthDecoder::Decode(std::string_view input,
                                        DecodeState&) const {
  DecodeResult result;
  if (input.size() < frame_length_) return result;
  result.code = DecodeCode::kFrame;
  result.consumed = frame_length_;
  result.frame = input.substr(0, frame_length_);
  return result;
}

absl::StatusOr<FixedLengthEncoder> FixedLengthEncoder::Create(
    const FixedLengthOptions& options) {
  const absl::Status checked = CheckLength(options.frame_length);
  if (!checked.ok()) return checked;
  return FixedLengthEncoder(options.frame_length);
}

absl::Status FixedLengthEncoder::Check(std::string_view payload) const {
  if (payload.size() == frame_length_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("payload has ", payload.size(),
                                                 " bytes: frame_length is ",
                                                 frame_length_));
}

absl::Status FixedLengthEncoder::Encode(std::string_view payload,
                                        std::string* out) const {
  const absl::Status checked = Check(payload);
  if (checked.ok()) out->append(payload);
  return checked;
}

}  // namespace sluice
