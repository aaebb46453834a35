#include "codec/varint_codec.h"

#include <string>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

TEST(VarintDecoder, FramesBehindTheirLengths) {
  const std::string long_one(300, 'x');
  ExpectEvents(VarintOptions{}, Bytes("\3abc\0\xAC\2") + long_one + "\2z",
               Frames({"abc", "", long_one}));
  // Zeros at the end of a length change nothing.
  ExpectEvents(VarintOptions{}, Bytes("\x83\0abc\x83\x80\x80\x80\0abc"),
               Frames({"abc", "abc"}));
}

TEST(VarintDecoder, ExactlyMaxAndOneMore) {
  // max_frame is about the payload alone.
  const VarintOptions options{.max_frame = 3};
  ExpectEvents(options, Bytes("\3abc"), Frames({"abc"}));
  ExpectEvents(options, Bytes("\4abcd\1x"), {TooLongEvent(3, 4)});
}

TEST(VarintDecoder, LengthsNotToBeBelieved) {
  const size_t max = kDefaultMaxFrame;
  ExpectEvents(VarintOptions{},
               "\xFF\xFF\xFF\xFF\x0F"
               "x",
               {TooLongEvent(max, 0xFFFFFFFF)});
  ExpectEvents(
      VarintOptions{},
      "\xFF\xFF\xFF\xFF\x1F"
      "x",
      {CorruptEvent(max, 0x1FFFFFFFF, CorruptReason::kVarintOverflow)});
  ExpectEvents(VarintOptions{}, Bytes("\x80\x80\x80\x80\x80\0"),
               {CorruptEvent(max, 0, CorruptReason::kVarintOverflow)});
  // Corrupt at the fifth byte; up to there it could have become right.
  const VarintDecoder decoder = MakeDecoder(VarintOptions{});
  EXPECT_EQ(DecodeWhole(decoder, "\xFF\xFF\xFF\xFF"), Events());
}

TEST(VarintDecoder, TooLongFrameIsSkippedAndNotKept) {
  for (const bool fail_fast : {true, false}) {
    const VarintOptions options{.max_frame = 3,
                                .fail_fast = fail_fast,
                                .when_too_long = WhenTooLong::kSkipFrame};
    ExpectEvents(options, Bytes("\4abcd\xAC\2") + std::string(300, 'x') + "\1y",
                 {TooLongEvent(3, 4), TooLongEvent(3, 300), FrameEvent("y")});
    const VarintDecoder decoder = MakeDecoder(options);
    Stream<VarintDecoder> stream(decoder);
    stream.Feed(
        "\xAC\2"
        "ab");
    EXPECT_EQ(stream.pending(), "");
    EXPECT_EQ(stream.events(),
              fail_fast ? Events({TooLongEvent(3, 300)}) : Events());
  }
}

TEST(VarintDecoder, OptionsAreChecked) {
  ExpectInvalid(VarintDecoder::Create({.max_frame = 0}).status(),
                "max_frame is 0: must be 1 to 2147483647");
}

TEST(VarintEncoder, RoundTripsAtEachBoundary) {
  const VarintEncoder encoder;
  const VarintDecoder decoder =
      MakeDecoder(VarintOptions{.max_frame = size_t{1} << 22});
  for (const size_t boundary :
       {size_t{1} << 7, size_t{1} << 14, size_t{1} << 21}) {
    for (const size_t size : {boundary - 1, boundary}) {
      const std::string payload(size, 'x');
      std::string out;
      ASSERT_TRUE(encoder.Encode(payload, &out).ok());
      DecodeState state;
      const DecodeResult result = decoder.Decode(out, state);
      ASSERT_EQ(result.code, DecodeCode::kFrame) << size;
      EXPECT_TRUE(result.frame == payload) << size;
      EXPECT_EQ(result.consumed, out.size());
    }
  }
  EXPECT_EQ(encoder.Header(0)->view(), Bytes("\0"));
  EXPECT_EQ(encoder.Header(127)->view(), "\x7F");
  EXPECT_EQ(encoder.Header(128)->view(), "\x80\1");
  EXPECT_EQ(encoder.Header(size_t{1} << 28)->view(), "\x80\x80\x80\x80\1");
  EXPECT_EQ(encoder.Header(UINT32_MAX)->view(), "\xFF\xFF\xFF\xFF\x0F");
  ExpectInvalid(encoder.Header(size_t{1} << 32).status(),
                "payload of 4294967296 bytes: a length of 32 bits is at most "
                "4294967295");
}

}  // namespace
}  // namespace sluice::test
