#include "codec/delimiter_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "codec/internal/append.h"
#include "codec/internal/delimited.h"
#include "codec/internal/delimiter_finder.h"
#include "codec/internal/frame_rules.h"

namespace sluice {
namespace {

absl::Status CheckDelimiters(const std::vector<std::string>& delimiters) {
  if (delimiters.empty() || delimiters.size() > kMaxDelimiters) {
    return internal::BadOption("delimiters",
                               absl::StrCat("a list of ", delimiters.size()),
                               absl::StrCat("must be 1 to ", kMaxDelimiters));
  }
  const auto bad = [&](size_t i, const std::string& reason) {
    return internal::BadOption(
        absl::StrCat("delimiters[", i, "]").c_str(),
        absl::StrCat("\"", absl::CEscape(delimiters[i]), "\""), reason);
  };
  for (size_t i = 0; i < delimiters.size(); ++i) {
    const std::string& delimiter = delimiters[i];
    if (delimiter.empty()) return bad(i, "must not be empty");
    if (delimiter.size() > kMaxDelimiterBytes) {
      return bad(i, absl::StrCat("must not be longer than ", kMaxDelimiterBytes,
                                 " bytes"));
    }
    for (size_t j = 0; j < delimiters.size(); ++j) {
      if (j == i) continue;
      // Twice the same is told of the later one.
      const std::string& other = delimiters[j];
      if (delimiter == other) {
        if (i > j) return bad(i, absl::StrCat("is delimiters[", j, "] again"));
      } else if (const size_t at = other.find(delimiter);
                 at != std::string::npos &&
                 at + delimiter.size() < other.size()) {
        return bad(i, absl::StrCat("occurs in delimiters[", j, "], \"",
                                   absl::CEscape(other),
                                   "\", before its end, which could then "
                                   "never be told apart"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DelimiterDecoder> DelimiterDecoder::Create(
    const DelimiterOptions& options) {
  absl::Status checked = internal::CheckRules(options);
  if (checked.ok()) checked = CheckDelimiters(options.delimiters);
  if (!checked.ok()) return checked;
  return DelimiterDecoder(options);
}

DelimiterDecoder::DelimiterDecoder(const DelimiterOptions& options)
    : options_(options),
      finder_(std::make_shared<const internal::DelimiterFinder>(
          options.delimiters)) {}

DecodeResult DelimiterDecoder::Decode(std::string_view input,
                                      DecodeState& state) const {
  return internal::DecodeDelimited(internal::RulesOf(options_), *finder_,
                                   options_.strip_delimiter, input, state);
}

absl::StatusOr<DelimiterEncoder> DelimiterEncoder::Create(
    std::vector<std::string> delimiters) {
  const absl::Status checked = CheckDelimiters(delimiters);
  if (!checked.ok()) return checked;
  return DelimiterEncoder(std::move(delimiters));
}

DelimiterEncoder::DelimiterEncoder(std::vector<std::string> delimiters)
    : delimiter_(delimiters[0]),
      finder_(std::make_shared<const internal::DelimiterFinder>(
          std::move(delimiters))) {}

absl::StatusOr<std::string_view> DelimiterEncoder::Trailer(
    std::string_view payload) const {
  internal::FrameEnd found = finder_->Find(payload, 0);
  if (!found) {
    // The last bytes of the payload, as many as can be part of a delimiter.
    const size_t part = std::min(payload.size(), finder_->tail());
    std::string seam(payload.substr(payload.size() - part));
    seam += delimiter_;
    found = finder_->Find(seam, part);
    if (found.frame == part) return delimiter_;
    found.frame += payload.size() - part;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("payload of ", payload.size(), " bytes would end at ",
                   found.frame, ": a delimiter begins there"));
}

absl::Status DelimiterEncoder::Encode(std::string_view payload,
                                      std::string* out) const {
  return internal::AppendWithTrailer(payload, Trailer(payload), out);
}

}  // namespace sluice
