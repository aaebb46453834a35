// Internal: what tests of decoders expect, in one line.
#ifndef SLUICE_TEST_CODEC_EXPECT_H_
#define SLUICE_TEST_CODEC_EXPECT_H_

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "test/codec/feed.h"
#include "test/codec/reference.h"

namespace sluice::test {

// std::string, with the zero bytes of a literal.
template <size_t N>
std::string Bytes(const char (&literal)[N]) {
  return std::string(literal, N - 1);
}

inline Events Frames(std::initializer_list<std::string_view> frames) {
  Events events;
  for (const std::string_view frame : frames) {
    events.push_back(FrameEvent(frame));
  }
  return events;
}

// A decoder whose options are known to be right.
template <typename Decoder, typename Options>
Decoder Make(const Options& options) {
  auto decoder = Decoder::Create(options);
  if (!decoder.ok()) throw std::logic_error(decoder.status().ToString());
  return *std::move(decoder);
}

inline LineDecoder MakeDecoder(const LineOptions& options) {
  return Make<LineDecoder>(options);
}
inline DelimiterDecoder MakeDecoder(const DelimiterOptions& options) {
  return Make<DelimiterDecoder>(options);
}
inline FixedLengthDecoder MakeDecoder(const FixedLengthOptions& options) {
  return Make<FixedLengthDecoder>(options);
}
inline LengthFieldDecoder MakeDecoder(const LengthFieldOptions& options) {
  return Make<LengthFieldDecoder>(options);
}
inline VarintDecoder MakeDecoder(const VarintOptions& options) {
  return Make<VarintDecoder>(options);
}

// `stream` gives `expected` whole, byte by byte, and cut in two at each place.
template <typename Options>
void ExpectEvents(const Options& options, std::string_view stream,
                  const Events& expected) {
  const auto decoder = MakeDecoder(options);
  EXPECT_EQ(DecodeWhole(decoder, stream), expected) << "whole";
  EXPECT_EQ(DecodeByteByByte(decoder, stream), expected) << "byte by byte";
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    EXPECT_EQ(Decode(decoder, {stream.substr(0, cut), stream.substr(cut)}),
              expected)
        << "cut at " << cut;
  }
}

// `status` is InvalidArgument and its text begins with `text`.
inline void ExpectInvalid(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).substr(0, text.size()), text);
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_CODEC_EXPECT_H_
