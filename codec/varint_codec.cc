#include "codec/varint_codec.h"

#include "absl/strings/str_cat.h"
#include "codec/internal/append.h"
#include "codec/internal/frame_rules.h"
#include "codec/internal/length_prefixed.h"

namespace sluice {
namespace {

constexpr size_t kMaxVarintBytes = 5;

internal::Prefix ReadVarint(std::string_view bytes) {
  internal::Prefix prefix;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    prefix.received |= uint64_t{byte & 0x7fu} << (7 * i);
    const bool last = byte < 0x80;
    if (!last && i + 1 < kMaxVarintBytes) continue;
    prefix.complete = true;
    if (!last || prefix.received > UINT32_MAX) {
      prefix.corrupt = CorruptReason::kVarintOverflow;
    }
    prefix.strip = i + 1;
    prefix.limited = prefix.received;
    prefix.size = prefix.strip + prefix.received;
    break;
  }
  return prefix;
}

}  // namespace

absl::StatusOr<VarintDecoder> VarintDecoder::Create(
    const VarintOptions& options) {
  const absl::Status checked = internal::CheckRules(options);
  if (!checked.ok()) return checked;
  return VarintDecoder(options);
}

DecodeResult VarintDecoder::Decode(std::string_view input,
                                   DecodeState& state) const {
  return internal::DecodeLengthPrefixed(
      internal::RulesOf(options_),
      [](std::string_view bytes) { return ReadVarint(bytes); }, input, state);
}

absl::StatusOr<FrameHeader> VarintEncoder::Header(size_t payload_size) const {
  if (payload_size > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", payload_size,
                     " bytes: a length of 32 bits is at most ", UINT32_MAX));
  }
  FrameHeader header;
  for (size_t rest = payload_size;; rest >>= 7) {
    const bool last = rest < 0x80;
    header.bytes[header.size++] =
        static_cast<char>((rest & 0x7f) | (last ? 0 : 0x80));
    if (last) return header;
  }
}

absl::Status VarintEncoder::Encode(std::string_view payload,
                                   std::string* out) const {
  return internal::AppendWithHeader(Header(payload.size()), payload, out);
}

}  // namespace sluice
