// Internal: the decoders once more, as plainly as possible: they see all of a
// stream at once, remember nothing and do not care how long it takes.
#ifndef SLUICE_TEST_CODEC_REFERENCE_H_
#define SLUICE_TEST_CODEC_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/delimiter_codec.h"
#include "codec/fixed_length_codec.h"
#include "codec/length_field_codec.h"
#include "codec/line_codec.h"
#include "codec/varint_codec.h"
#include "test/codec/feed.h"

namespace sluice::test {

// Wide enough for every sum there is.
using Wide = __int128;

inline std::string TooLongEvent(size_t max_frame, uint64_t length) {
  return ErrorEvent({length, static_cast<uint32_t>(max_frame),
                     DecodeError::kTooLong, CorruptReason::kNone});
}
inline std::string CorruptEvent(size_t max_frame, uint64_t length,
                                CorruptReason reason) {
  return ErrorEvent({length, static_cast<uint32_t>(max_frame),
                     DecodeError::kCorrupt, reason});
}

inline Events Reference(const DelimiterOptions& options,
                        std::string_view stream) {
  Events events;
  for (;;) {
    // The first place where a delimiter ends; the longest that ends there.
    size_t end = 0;
    size_t frame = 0;
    for (size_t e = 1; e <= stream.size() && end == 0; ++e) {
      for (const std::string& delimiter : options.delimiters) {
        if (!stream.substr(0, e).ends_with(delimiter)) continue;
        if (end == 0 || e - delimiter.size() < frame) {
          frame = e - delimiter.size();
        }
        end = e;
      }
    }
    if (end == 0) break;
    if (frame > options.max_frame) {
      events.push_back(
          TooLongEvent(options.max_frame, options.fail_fast ? 0 : frame));
      if (options.when_too_long == WhenTooLong::kCloseConnection) return events;
    } else {
      events.push_back(
          FrameEvent(stream.substr(0, options.strip_delimiter ? frame : end)));
    }
    stream.remove_prefix(end);
  }
  // What is left may be too long already: when it is so even without the
  // longest end that could become a delimiter.
  size_t shortest = stream.size();
  for (const std::string& delimiter : options.delimiters) {
    for (size_t part = 0; part < delimiter.size(); ++part) {
      if (stream.ends_with(delimiter.substr(0, part))) {
        shortest = std::min(shortest, stream.size() - part);
      }
    }
  }
  if (options.fail_fast && shortest > options.max_frame) {
    events.push_back(TooLongEvent(options.max_frame, 0));
  }
  return events;
}

inline Events Reference(const LineOptions& options, std::string_view stream) {
  return Reference(DelimiterOptions{.delimiters = {"\n", "\r\n"},
                                    .max_frame = options.max_frame,
                                    .strip_delimiter = options.strip_delimiter,
                                    .fail_fast = options.fail_fast,
                                    .when_too_long = options.when_too_long},
                   stream);
}

inline Events Reference(const FixedLengthOptions& options,
                        std::string_view stream) {
  Events events;
  while (stream.size() >= options.frame_length) {
    events.push_back(FrameEvent(stream.substr(0, options.frame_length)));
    stream.remove_prefix(options.frame_length);
  }
  return events;
}

// What a beginning of a frame means.
struct ReferencePrefix {
  bool complete = false;
  uint64_t received = 0;
  Wide size = 0;
  Wide limited = 0;
  size_t strip = 0;
  CorruptReason corrupt = CorruptReason::kNone;
};

inline ReferencePrefix ReadReferencePrefix(const LengthFieldOptions& options,
                                           std::string_view stream) {
  ReferencePrefix prefix;
  const size_t header = options.length_offset + options.length_bytes;
  if (stream.size() < header) return prefix;
  prefix.complete = true;
  std::string field(stream.substr(options.length_offset, options.length_bytes));
  if (options.byte_order == ByteOrder::kLittle) {
    field = std::string(field.rbegin(), field.rend());
  }
  for (const char byte : field) {
    prefix.received = prefix.received * 256 + static_cast<unsigned char>(byte);
  }
  const Wide behind = Wide{prefix.received} + options.adjustment;
  prefix.size = prefix.limited = behind + static_cast<Wide>(header);
  prefix.strip = options.strip;
  if (prefix.received > uint64_t{INT64_MAX} || prefix.size > INT64_MAX) {
    prefix.corrupt = CorruptReason::kLengthOverflow;
  } else if (behind < 0) {
    prefix.corrupt = CorruptReason::kShorterThanHeader;
  } else if (prefix.size < static_cast<Wide>(options.strip)) {
    prefix.corrupt = CorruptReason::kShorterThanStrip;
  }
  return prefix;
}

inline ReferencePrefix ReadReferencePrefix(const VarintOptions&,
                                           std::string_view stream) {
  ReferencePrefix prefix;
  Wide unit = 1;
  Wide value = 0;
  for (size_t i = 0; i < 5 && i < stream.size(); ++i, unit *= 128) {
    const int byte = static_cast<unsigned char>(stream[i]);
    value += byte % 128 * unit;
    prefix.strip = i + 1;
    if (byte < 128 || i == 4) {
      prefix.complete = true;
      if (byte >= 128 || value >= Wide{1} << 32) {
        prefix.corrupt = CorruptReason::kVarintOverflow;
      }
      break;
    }
  }
  prefix.received = static_cast<uint64_t>(value);
  prefix.limited = value;
  prefix.size = value + static_cast<Wide>(prefix.strip);
  return prefix;
}

template <typename Options>
Events ReferencePrefixed(const Options& options, std::string_view stream) {
  Events events;
  for (;;) {
    const ReferencePrefix prefix = ReadReferencePrefix(options, stream);
    if (!prefix.complete) return events;
    if (prefix.corrupt != CorruptReason::kNone) {
      events.push_back(
          CorruptEvent(options.max_frame, prefix.received, prefix.corrupt));
      return events;
    }
    const bool all = prefix.size <= static_cast<Wide>(stream.size());
    if (prefix.limited > static_cast<Wide>(options.max_frame)) {
      if (options.fail_fast || all) {
        events.push_back(TooLongEvent(options.max_frame,
                                      static_cast<uint64_t>(prefix.limited)));
        if (options.when_too_long == WhenTooLong::kCloseConnection) {
          return events;
        }
      }
    } else if (all) {
      events.push_back(FrameEvent(stream.substr(
          prefix.strip, static_cast<size_t>(prefix.size) - prefix.strip)));
    }
    if (!all) return events;
    stream.remove_prefix(static_cast<size_t>(prefix.size));
  }
}

inline Events Reference(const LengthFieldOptions& options,
                        std::string_view stream) {
  return ReferencePrefixed(options, stream);
}
inline Events Reference(const VarintOptions& options, std::string_view stream) {
  return ReferencePrefixed(options, stream);
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_CODEC_REFERENCE_H_
