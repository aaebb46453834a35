#include "codec/length_field_codec.h"

#include <initializer_list>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

constexpr size_t kSixtyFourKiB = size_t{64} << 10;

// The pictures of length_field_codec.h.
TEST(LengthFieldDecoder, AsThePicturesShow) {
  const auto expect = [](const LengthFieldOptions& options,
                         const std::string& bytes, const std::string& frame) {
    ExpectEvents(options, bytes + bytes, Frames({frame, frame}));
  };
  expect({.length_bytes = 2}, Bytes("\0\3abc"), Bytes("\0\3abc"));
  expect({.length_bytes = 2, .strip = 2}, Bytes("\0\3abc"), "abc");
  expect({.length_bytes = 2, .adjustment = -2}, Bytes("\0\5abc"),
         Bytes("\0\5abc"));
  expect({.length_offset = 1, .length_bytes = 2}, Bytes("\xCA\0\3abc"),
         Bytes("\xCA\0\3abc"));
  expect({.length_bytes = 2, .adjustment = 1},
         Bytes("\0\3\xCA"
               "abc"),
         Bytes("\0\3\xCA"
               "abc"));
  const std::string tail = "\xFE" + std::string("abc");
  expect({.length_offset = 1, .length_bytes = 2, .adjustment = 1, .strip = 3},
         Bytes("\xCA\0\3") + tail, tail);
  expect({.length_offset = 1, .length_bytes = 2, .adjustment = -3, .strip = 3},
         Bytes("\xCA\0\7") + tail, tail);
}

// Case B53.
TEST(LengthFieldDecoder, B53_AdjustmentCountsOnce) {
  LengthFieldOptions options{
      .length_offset = 1, .length_bytes = 2, .adjustment = 1, .strip = 3};
  const std::string body = "\xFE" + std::string("HELLO, WORLD");
  const std::string big = Bytes("\xCA\0\x0C") + body;
  ExpectEvents(options, big + big, Frames({body, body}));
  options.byte_order = ByteOrder::kLittle;
  const std::string little = Bytes("\xCA\x0C\0") + body;
  ExpectEvents(options, little + little, Frames({body, body}));
}

// Case B54.
TEST(LengthFieldDecoder, B54_LengthCountsItself) {
  const LengthFieldOptions options{.length_bytes = 2, .adjustment = -2};
  const std::string frame = Bytes("\0\5abc");
  ExpectEvents(options, frame, Frames({frame}));
  for (const char length : {'\1', '\0'}) {
    const std::string bad = std::string(1, '\0') + length;
    const std::string error =
        CorruptEvent(options.max_frame, static_cast<uint64_t>(length),
                     CorruptReason::kShorterThanHeader);
    ExpectEvents(options, bad, {error});
    // Final: what follows has no meaning.
    ExpectEvents(options, frame + bad + frame, {FrameEvent(frame), error});
  }
  EXPECT_EQ(CorruptEvent(9, 1, CorruptReason::kShorterThanHeader),
            "error DATA_LOSS: corrupt frame: the length received is 1, so the "
            "frame would end inside its own header");
}

// Case B55: lengths that no program should believe.
TEST(LengthFieldDecoder, B55_HugeLengths) {
  const auto expect = [](const LengthFieldOptions& options,
                         const std::string& field, const std::string& error) {
    for (const WhenTooLong when :
         {WhenTooLong::kCloseConnection, WhenTooLong::kSkipFrame}) {
      LengthFieldOptions o = options;
      o.when_too_long = when;
      ExpectEvents(o, field + "x", {error});
    }
  };
  const auto too_long = [](uint64_t length) {
    return TooLongEvent(kSixtyFourKiB, length);
  };
  const LengthFieldOptions four{.max_frame = kSixtyFourKiB};
  expect(four, "\xFF\xFF\xFF\xFF", too_long(0xFFFFFFFF + uint64_t{4}));
  expect(four, Bytes("\x80\0\0\0"), too_long(0x80000000 + uint64_t{4}));
  expect(four, "\x7F\xFF\xFF\xFF", too_long(0x7FFFFFFF + uint64_t{4}));

  const LengthFieldOptions eight{
      .max_frame = kSixtyFourKiB, .length_bytes = 8, .adjustment = 8};
  const std::string all = std::string(8, '\xFF');
  const std::string most = "\x7F" + std::string(7, '\xFF');
  expect(
      eight, all,
      CorruptEvent(kSixtyFourKiB, UINT64_MAX, CorruptReason::kLengthOverflow));
  expect(
      eight, most,
      CorruptEvent(kSixtyFourKiB, INT64_MAX, CorruptReason::kLengthOverflow));
  // The largest sum there is.
  LengthFieldOptions plain = eight;
  plain.adjustment = -8;
  expect(plain, most, too_long(INT64_MAX));
}

// Case B57.
TEST(LengthFieldDecoder, B57_CutAnywhere) {
  const std::string stream = Bytes("\0\0\0\5first\0\0\0\0\0\0\0\3\0\0\1");
  ExpectEvents(LengthFieldOptions{.strip = 4}, stream,
               Frames({"first", "", Bytes("\0\0\1")}));
  // An incomplete header is left alone.
  const LengthFieldDecoder decoder = MakeDecoder(LengthFieldOptions{});
  Stream<LengthFieldDecoder> half(decoder);
  half.Feed(Bytes("\0\0\0"));
  EXPECT_EQ(half.pending(), Bytes("\0\0\0"));
  EXPECT_EQ(half.state().phase, DecodeState::Phase::kReading);
}

TEST(LengthFieldDecoder, EverySizeAndOrderOfTheField) {
  for (const size_t size : std::initializer_list<size_t>{1, 2, 3, 4, 8}) {
    for (const ByteOrder order : {ByteOrder::kBig, ByteOrder::kLittle}) {
      std::string field(size, '\0');
      field[order == ByteOrder::kBig ? size - 1 : 0] = '\3';
      ExpectEvents(
          LengthFieldOptions{
              .length_bytes = size, .byte_order = order, .strip = size},
          field + "abc" + field + "def", Frames({"abc", "def"}));
    }
  }
}

TEST(LengthFieldDecoder, ExactlyMaxAndOneMore) {
  // max_frame is about all of the frame, with what is stripped, as in Netty.
  const LengthFieldOptions options{
      .max_frame = 5, .length_bytes = 2, .strip = 2};
  ExpectEvents(options, Bytes("\0\3abc"), Frames({"abc"}));
  ExpectEvents(options, Bytes("\0\4abcd\0\3abc"), {TooLongEvent(5, 6)});
}

TEST(LengthFieldDecoder, TooLongFrameIsSkippedAndNotKept) {
  for (const bool fail_fast : {true, false}) {
    const LengthFieldOptions options{.max_frame = 100,
                                     .length_bytes = 3,
                                     .strip = 3,
                                     .fail_fast = fail_fast,
                                     .when_too_long = WhenTooLong::kSkipFrame};
    const std::string error = TooLongEvent(100, 65539);
    const LengthFieldDecoder decoder = MakeDecoder(options);
    Stream<LengthFieldDecoder> stream(decoder);
    stream.Feed(Bytes("\1\0"));
    EXPECT_EQ(stream.events(), Events());
    stream.Feed(Bytes("\0"));
    EXPECT_EQ(stream.events(), fail_fast ? Events({error}) : Events());
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(stream.events(), fail_fast ? Events({error}) : Events());
      stream.Feed(std::string(256, '\xFF'));
      EXPECT_EQ(stream.pending(), "");
    }
    EXPECT_EQ(stream.events(), Events({error}));
    stream.Feed(Bytes("\0\0\2ok"));
    EXPECT_EQ(stream.events(), Events({error, FrameEvent("ok")}));
    ExpectEvents(options,
                 Bytes("\0\0\x62") + std::string(98, 'x') + Bytes("\0\0\2ok"),
                 {TooLongEvent(100, 101), FrameEvent("ok")});
  }
  // Final, and yet not before all of it has gone by.
  ExpectEvents(
      LengthFieldOptions{.max_frame = 5, .length_bytes = 1, .fail_fast = false},
      Bytes("\5abcde\1x"), {TooLongEvent(5, 6)});
  ExpectEvents(
      LengthFieldOptions{.max_frame = 5, .length_bytes = 1, .fail_fast = false},
      Bytes("\5abcd"), Events());
}

TEST(LengthFieldDecoder, FrameShorterThanWhatIsStripped) {
  const LengthFieldOptions options{.length_bytes = 1, .strip = 3};
  ExpectEvents(options, Bytes("\2ab\3abc"), Frames({"", "c"}));
  ExpectEvents(
      options, Bytes("\1a"),
      {CorruptEvent(options.max_frame, 1, CorruptReason::kShorterThanStrip)});
}

TEST(LengthFieldDecoder, OptionsAreChecked) {
  const auto expect = [](const LengthFieldOptions& options,
                         const std::string& text) {
    ExpectInvalid(LengthFieldDecoder::Create(options).status(), text);
  };
  expect({.max_frame = 0}, "max_frame is 0: must be 1 to 2147483647");
  for (const size_t size : std::initializer_list<size_t>{0, 5, 6, 7, 9}) {
    expect({.length_bytes = size}, "length_bytes is " + std::to_string(size) +
                                       ": must be 1, 2, 3, 4 or 8");
  }
  expect({.byte_order = static_cast<ByteOrder>(2)},
         "byte_order is 2: must be one of its enumerators");
  expect({.max_frame = 100, .length_offset = 97},
         "length_offset is 97: the 4 bytes of the length must end within "
         "max_frame, 100");
  expect({.max_frame = 3}, "length_offset is 0: the 4 bytes of the length");
  expect({.length_offset = SIZE_MAX}, "length_offset is 18446744073709551615");
  expect({.max_frame = 100, .strip = 101},
         "strip is 101: must not be more than max_frame, 100");
  expect({.max_frame = 100, .adjustment = 97},
         "adjustment is 97: every frame would be longer than max_frame, 100");
  expect({.adjustment = INT64_MAX}, "adjustment is 9223372036854775807");
  expect({.length_bytes = 1, .adjustment = -256},
         "adjustment is -256: no length of 1 bytes would be enough");
  expect({.length_bytes = 8, .adjustment = INT64_MIN},
         "adjustment is -9223372036854775808: no length of 8 bytes");
  EXPECT_TRUE(LengthFieldDecoder::Create(
                  {.max_frame = 100, .length_offset = 96, .strip = 100})
                  .ok());
  EXPECT_TRUE(
      LengthFieldDecoder::Create({.length_bytes = 1, .adjustment = -255}).ok());
}

// --- The encoder.

struct BoundaryCase {
  size_t length_bytes;
  size_t largest;  // that fits, without counting the field itself
};

// Case B59.
TEST(LengthFieldEncoder, B59_LargestThatFitsAndOneMore) {
  const std::string bytes((size_t{1} << 24) + 1, 'x');
  for (const auto& [length_bytes, largest] :
       {BoundaryCase{1, 255}, BoundaryCase{2, 65535},
        BoundaryCase{3, 16777215}}) {
    for (const bool itself : {false, true}) {
      for (const ByteOrder order : {ByteOrder::kBig, ByteOrder::kLittle}) {
        const auto encoder =
            LengthFieldEncoder::Create({.length_bytes = length_bytes,
                                        .byte_order = order,
                                        .length_includes_itself = itself});
        ASSERT_TRUE(encoder.ok());
        const size_t own = itself ? length_bytes : 0;
        const LengthFieldDecoder decoder = MakeDecoder(
            LengthFieldOptions{.max_frame = size_t{1} << 25,
                               .length_bytes = length_bytes,
                               .byte_order = order,
                               .adjustment = -static_cast<int64_t>(own),
                               .strip = length_bytes});
        for (const size_t size :
             {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{32767},
              size_t{32768}, size_t{36890}, largest - own - 1, largest - own}) {
          if (size > largest - own) continue;
          const std::string_view payload =
              std::string_view(bytes).substr(0, size);
          std::string out;
          ASSERT_TRUE(encoder->Encode(payload, &out).ok()) << size;
          DecodeState state;
          const DecodeResult result = decoder.Decode(out, state);
          ASSERT_EQ(result.code, DecodeCode::kFrame) << size;
          EXPECT_EQ(result.consumed, out.size());
          EXPECT_TRUE(result.frame == payload) << size;
        }
        for (const size_t size : {largest - own + 1, largest - own + 2}) {
          std::string out = "before";
          ExpectInvalid(
              encoder->Encode(std::string_view(bytes).substr(0, size), &out),
              "payload of " + std::to_string(size) +
                  " bytes: the length would be " + std::to_string(size + own) +
                  ", a field of " + std::to_string(length_bytes) +
                  " bytes holds " + std::to_string(largest));
          EXPECT_EQ(out, "before");
        }
      }
    }
  }
}

// As above, of sizes no test has the memory for.
TEST(LengthFieldEncoder, B59_HeadersOfFourAndEightBytes) {
  const auto four = LengthFieldEncoder::Create({});
  const auto four_itself =
      LengthFieldEncoder::Create({.length_includes_itself = true});
  EXPECT_EQ(four->Header(0xFFFFFFFF)->view(), "\xFF\xFF\xFF\xFF");
  EXPECT_FALSE(four->Header(0x100000000).ok());
  EXPECT_EQ(four_itself->Header(0xFFFFFFFB)->view(), "\xFF\xFF\xFF\xFF");
  EXPECT_FALSE(four_itself->Header(0xFFFFFFFC).ok());

  const auto eight = LengthFieldEncoder::Create({.length_bytes = 8});
  const auto eight_itself = LengthFieldEncoder::Create(
      {.length_bytes = 8, .length_includes_itself = true});
  const size_t most = size_t{INT64_MAX};
  EXPECT_EQ(eight->Header(most)->view(), "\x7F" + std::string(7, '\xFF'));
  ExpectInvalid(eight->Header(most + 1).status(),
                "payload of 9223372036854775808 bytes: its length is more than "
                "63 bits hold");
  EXPECT_TRUE(eight_itself->Header(most - 8).ok());
  EXPECT_FALSE(eight_itself->Header(most - 7).ok());
  EXPECT_FALSE(eight->Header(SIZE_MAX).ok());
}

TEST(LengthFieldEncoder, Adjustment) {
  const auto encoder = LengthFieldEncoder::Create(
      {.length_bytes = 1, .length_includes_itself = true, .adjustment = -4});
  ASSERT_TRUE(encoder.ok());
  std::string out = "before";
  ExpectInvalid(encoder->Encode("ab", &out),
                "payload of 2 bytes: the length would be -1");
  EXPECT_EQ(out, "before");
  EXPECT_TRUE(encoder->Encode("abc", &out).ok());
  EXPECT_EQ(out, "before" + Bytes("\0abc"));
  const auto lowest = LengthFieldEncoder::Create({.adjustment = INT64_MIN});
  EXPECT_FALSE(lowest->Header(0).ok());
  const auto highest = LengthFieldEncoder::Create({.adjustment = INT64_MAX});
  EXPECT_FALSE(highest->Header(1).ok());
}

TEST(LengthFieldEncoder, OptionsAreChecked) {
  ExpectInvalid(LengthFieldEncoder::Create({.length_bytes = 5}).status(),
                "length_bytes is 5: must be 1, 2, 3, 4 or 8");
  ExpectInvalid(
      LengthFieldEncoder::Create({.byte_order = static_cast<ByteOrder>(9)})
          .status(),
      "byte_order is 9");
}

}  // namespace
}  // namespace sluice::test
