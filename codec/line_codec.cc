#include "codec/line_codec.h"

#include "absl/strings/str_cat.h"
#include "codec/internal/append.h"
#include "codec/internal/delimited.h"
#include "codec/internal/frame_rules.h"
#include "codec/internal/line_finder.h"

namespace sluice {

absl::StatusOr<LineDecoder> LineDecoder::Create(const LineOptions& options) {
  const absl::Status checked = internal::CheckRules(options);
  if (!checked.ok()) return checked;
  return LineDecoder(options);
}

DecodeResult LineDecoder::Decode(std::string_view input,
                                 DecodeState& state) const {
  return internal::DecodeDelimited(internal::RulesOf(options_),
                                   internal::LineFinder{},
                                   options_.strip_delimiter, input, state);
}

absl::StatusOr<std::string_view> LineEncoder::Trailer(
    std::string_view payload) const {
  const size_t lf = payload.find('\n');
  if (lf != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", payload.size(), " bytes has an LF at ", lf,
                     ": it would be two lines"));
  }
  if (end_.size() == 1 && !payload.empty() && payload.back() == '\r') {
    return absl::InvalidArgumentError(absl::StrCat(
        "payload of ", payload.size(),
        " bytes ends with CR: it would be taken for a part of CR LF"));
  }
  return end_;
}

absl::Status LineEncoder::Encode(std::string_view payload,
                                 std::string* out) const {
  return internal::AppendWithTrailer(payload, Trailer(payload), out);
}

}  // namespace sluice
