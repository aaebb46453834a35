#include "codec/length_field_codec.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "codec/internal/append.h"
#include "codec/internal/frame_rules.h"
#include "codec/internal/length_prefixed.h"

namespace sluice {
namespace {

template <typename T>
uint64_t Load(const char* bytes, ByteOrder order) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  const bool big = std::endian::native == std::endian::big;
  if (big == (order == ByteOrder::kBig)) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

uint64_t LoadLength(const char* bytes, size_t size, ByteOrder order) {
  switch (size) {
    case 2:
      return Load<uint16_t>(bytes, order);
    case 4:
      return Load<uint32_t>(bytes, order);
    case 8:
      return Load<uint64_t>(bytes, order);
    default: {  // 1, 3
      uint64_t value = 0;
      for (size_t i = 0; i < size; ++i) {
        const size_t at = order == ByteOrder::kBig ? i : size - 1 - i;
        value = value << 8 | static_cast<unsigned char>(bytes[at]);
      }
      return value;
    }
  }
}

void StoreLength(uint64_t value, char* bytes, size_t size, ByteOrder order) {
  for (size_t i = 0; i < size; ++i, value >>= 8) {
    const size_t at = order == ByteOrder::kBig ? size - 1 - i : i;
    bytes[at] = static_cast<char>(value & 0xff);
  }
}

// What a field of so many bytes holds; all values are within 63 bits.
uint64_t HighestLength(size_t length_bytes) {
  return length_bytes == 8 ? uint64_t{INT64_MAX}
                           : (uint64_t{1} << (8 * length_bytes)) - 1;
}

// Of either options.
template <typename Options>
absl::Status CheckField(const Options& options) {
  switch (options.length_bytes) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 8:
      break;
    default:
      return internal::BadOption("length_bytes",
                                 absl::StrCat(options.length_bytes),
                                 "must be 1, 2, 3, 4 or 8");
  }
  if (options.byte_order > ByteOrder::kLittle) {
    return internal::BadOption(
        "byte_order", absl::StrCat(static_cast<int>(options.byte_order)),
        "must be one of its enumerators");
  }
  return absl::OkStatus();
}

absl::Status CheckFrame(const LengthFieldOptions& options) {
  const auto bad = [](const char* field, auto value, auto... reason) {
    return internal::BadOption(field, absl::StrCat(value),
                               absl::StrCat(reason...));
  };
  if (options.length_bytes > options.max_frame ||
      options.length_offset > options.max_frame - options.length_bytes) {
    return bad("length_offset", options.length_offset, "the ",
               options.length_bytes,
               " bytes of the length must end within "
               "max_frame, ",
               options.max_frame);
  }
  if (options.strip > options.max_frame) {
    return bad("strip", options.strip, "must not be more than max_frame, ",
               options.max_frame);
  }
  const auto header =
      static_cast<int64_t>(options.length_offset + options.length_bytes);
  if (options.adjustment > static_cast<int64_t>(options.max_frame) - header) {
    return bad("adjustment", options.adjustment,
               "every frame would be longer "
               "than max_frame, ",
               options.max_frame);
  }
  if (options.adjustment <
      -static_cast<int64_t>(HighestLength(options.length_bytes))) {
    return bad("adjustment", options.adjustment, "no length of ",
               options.length_bytes, " bytes would be enough");
  }
  return absl::OkStatus();
}

internal::Prefix ReadPrefix(const LengthFieldOptions& options,
                            std::string_view bytes) {
  internal::Prefix prefix;
  const size_t header = options.length_offset + options.length_bytes;
  if (bytes.size() < header) return prefix;
  prefix.complete = true;
  prefix.received = LoadLength(bytes.data() + options.length_offset,
                               options.length_bytes, options.byte_order);
  int64_t behind;
  int64_t size;
  if (prefix.received > uint64_t{INT64_MAX} ||
      __builtin_add_overflow(static_cast<int64_t>(prefix.received),
                             options.adjustment, &behind) ||
      __builtin_add_overflow(behind, static_cast<int64_t>(header), &size)) {
    prefix.corrupt = CorruptReason::kLengthOverflow;
  } else if (behind < 0) {
    prefix.corrupt = CorruptReason::kShorterThanHeader;
  } else if (static_cast<uint64_t>(size) < options.strip) {
    prefix.corrupt = CorruptReason::kShorterThanStrip;
  } else {
    prefix.size = prefix.limited = static_cast<uint64_t>(size);
    prefix.strip = options.strip;
  }
  return prefix;
}

}  // namespace

absl::StatusOr<LengthFieldDecoder> LengthFieldDecoder::Create(
    const LengthFieldOptions& options) {
  absl::Status checked = internal::CheckRules(options);
  if (checked.ok()) checked = CheckField(options);
  if (checked.ok()) checked = CheckFrame(options);
  if (!checked.ok()) return checked;
  return LengthFieldDecoder(options);
}

DecodeResult LengthFieldDecoder::Decode(std::string_view input,
                                        DecodeState& state) const {
  return internal::DecodeLengthPrefixed(
      internal::RulesOf(options_),
      [this](std::string_view bytes) { return ReadPrefix(options_, bytes); },
      input, state);
}

absl::StatusOr<LengthFieldEncoder> LengthFieldEncoder::Create(
    const LengthFieldEncoderOptions& options) {
  const absl::Status checked = CheckField(options);
  if (!checked.ok()) return checked;
  return LengthFieldEncoder(options);
}

absl::StatusOr<FrameHeader> LengthFieldEncoder::Header(
    size_t payload_size) const {
  const auto bad = [&](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", payload_size, " bytes: ", reason...));
  };
  const size_t own =
      options_.length_includes_itself ? options_.length_bytes : 0;
  const uint64_t highest = HighestLength(options_.length_bytes);
  int64_t value;
  if (payload_size > size_t{INT64_MAX} ||
      __builtin_add_overflow(static_cast<int64_t>(payload_size),
                             static_cast<int64_t>(own), &value) ||
      __builtin_add_overflow(value, options_.adjustment, &value)) {
    return bad("its length is more than 63 bits hold");
  }
  if (value < 0) return bad("the length would be ", value);
  if (static_cast<uint64_t>(value) > highest) {
    return bad("the length would be ", value, ", a field of ",
               options_.length_bytes, " bytes holds ", highest);
  }
  FrameHeader header;
  header.size = static_cast<uint8_t>(options_.length_bytes);
  StoreLength(static_cast<uint64_t>(value), header.bytes.data(), header.size,
              options_.byte_order);
  return header;
}

absl::Status LengthFieldEncoder::Encode(std::string_view payload,
                                        std::string* out) const {
  return internal::AppendWithHeader(Header(payload.size()), payload, out);
}

}  // namespace sluice
