#include "codec/line_codec.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

TEST(LineDecoder, LfAndCrLfMixed) {
  ExpectEvents(LineOptions{}, "GET a\r\nb\rc\n\n\r\n\r\r\nrest",
               Frames({"GET a", "b\rc", "", "", "\r"}));
  ExpectEvents(LineOptions{.strip_delimiter = false},
               "GET a\r\nb\rc\n\n\r\n\r\r\nrest",
               Frames({"GET a\r\n", "b\rc\n", "\n", "\r\n", "\r\r\n"}));
}

// Case B60.
TEST(LineDecoder, B60_DelimitersCutByReads) {
  const LineDecoder decoder = MakeDecoder(LineOptions{});
  Stream<LineDecoder> stream(decoder);
  stream.Feed("abc\r");
  EXPECT_EQ(stream.events(), Events());
  stream.Feed("\ndef\n\r");
  EXPECT_EQ(stream.events(), Frames({"abc", "def"}));
  stream.Feed("\n");
  EXPECT_EQ(stream.events(), Frames({"abc", "def", ""}));
  EXPECT_EQ(stream.pending(), "");
}

// Case B61: max 2, the error told once, and the state as new after the line.
TEST(LineDecoder, B61_TooLongLineIsSkipped) {
  for (const bool fail_fast : {true, false}) {
    const LineOptions options{.max_frame = 2,
                              .fail_fast = fail_fast,
                              .when_too_long = WhenTooLong::kSkipFrame};
    const LineDecoder decoder = MakeDecoder(options);
    EXPECT_EQ(Decode(decoder, {"ab\r\n"}), Frames({"ab"}));

    Stream<LineDecoder> stream(decoder);
    stream.Feed("abc");
    const std::string error = TooLongEvent(2, fail_fast ? 0 : 8);
    const Events told = {error};
    EXPECT_EQ(stream.events(), fail_fast ? told : Events())
        << "at once, or not";
    EXPECT_LE(stream.pending().size(), 1u) << "counted, not kept";
    stream.Feed("def");
    EXPECT_LE(stream.pending().size(), 1u);
    stream.Feed("gh\r\n");
    EXPECT_EQ(stream.events(), told);
    EXPECT_EQ(stream.state().phase, DecodeState::Phase::kReading);
    stream.Feed("x\n");
    EXPECT_EQ(stream.events(), Events({error, FrameEvent("x")}));
    EXPECT_EQ(stream.pending(), "");

    ExpectEvents(options, "abcdefgh\r\nx\n", {error, FrameEvent("x")});
  }
}

// Case B61: what counts towards the bound.
TEST(LineDecoder, B61_ExactlyMaxAndOneMore) {
  const LineOptions options{.max_frame = 2};
  const std::string error = TooLongEvent(2, 0);
  ExpectEvents(options, "ab\n", Frames({"ab"}));
  ExpectEvents(options, "abc\n", {error});
  // The CR of a CR LF does not count, wherever the reads cut it.
  ExpectEvents(options, "ab\r\n", Frames({"ab"}));
  EXPECT_EQ(Decode(MakeDecoder(options), {"ab\r", "\n"}), Frames({"ab"}));
  // Any other does.
  ExpectEvents(options, "a\r\r\n", Frames({"a\r"}));
  ExpectEvents(options, "ab\rc\n", {error});
  ExpectEvents(options, "ab\r\r\n", {error});
}

// Case B64: counted for each line, not added up over the reads.
TEST(LineDecoder, B64_LongLinesInManyReads) {
  const LineDecoder decoder = MakeDecoder(LineOptions{.max_frame = 100});
  Stream<LineDecoder> stream(decoder);
  const std::string ten = "0123456789";
  std::string line;
  for (int i = 0; i < 9; ++i) line += ten;
  Events expected;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 9; ++i) stream.Feed(ten);
    stream.Feed("\n");
    expected.push_back(FrameEvent(line));
    EXPECT_EQ(stream.events(), expected);
  }
}

TEST(LineDecoder, TooLongIsFinalUnlessSkippingIsAskedFor) {
  ExpectEvents(LineOptions{.max_frame = 2}, "ok\nabcdef\nx\n",
               {FrameEvent("ok"), TooLongEvent(2, 0)});
  // Told with its length, when all of it has gone by, and final then.
  ExpectEvents(LineOptions{.max_frame = 2, .fail_fast = false},
               "ok\nabcdef\nx\n", {FrameEvent("ok"), TooLongEvent(2, 6)});
  ExpectEvents(LineOptions{.max_frame = 2, .fail_fast = false}, "ok\nabcdef",
               Frames({"ok"}));
}

TEST(LineDecoder, TheReasonInWords) {
  EXPECT_EQ(TooLongEvent(2, 6),
            "error RESOURCE_EXHAUSTED: frame too long: 6 bytes, "
            "max_frame is 2");
  EXPECT_EQ(TooLongEvent(2, 0),
            "error RESOURCE_EXHAUSTED: frame too long: more than max_frame, "
            "2 bytes");
}

TEST(LineDecoder, ANewStateStartsAnew) {
  const LineDecoder decoder = MakeDecoder(LineOptions{.max_frame = 2});
  DecodeState state;
  EXPECT_EQ(decoder.Decode("abcdef", state).code, DecodeCode::kError);
  EXPECT_EQ(decoder.Decode("ab\n", state).code, DecodeCode::kError);
  state = DecodeState();
  EXPECT_EQ(decoder.Decode("ab\n", state).frame, "ab");
}

TEST(LineDecoder, OptionsAreChecked) {
  ExpectInvalid(LineDecoder::Create({.max_frame = 0}).status(),
                "max_frame is 0: must be 1 to 2147483647");
  ExpectInvalid(LineDecoder::Create({.max_frame = size_t{1} << 31}).status(),
                "max_frame is 2147483648: must be 1 to 2147483647");
  ExpectInvalid(
      LineDecoder::Create({.when_too_long = static_cast<WhenTooLong>(7)})
          .status(),
      "when_too_long is 7: must be one of its enumerators");
  EXPECT_TRUE(LineDecoder::Create({.max_frame = kHighestMaxFrame}).ok());
  EXPECT_TRUE(LineDecoder::Create().ok());
}

TEST(LineEncoder, EndsLines) {
  std::string out = "before ";
  EXPECT_TRUE(LineEncoder().Encode("a\rb", &out).ok());
  EXPECT_TRUE(LineEncoder({.crlf = true}).Encode("", &out).ok());
  EXPECT_EQ(out, "before a\rb\n\r\n");
  EXPECT_EQ(*LineEncoder({.crlf = true}).Trailer("x"), "\r\n");
}

TEST(LineEncoder, RefusesWhatWouldNotComeBack) {
  std::string out = "before";
  ExpectInvalid(LineEncoder().Encode("ab\nc", &out),
                "payload of 4 bytes has an LF at 2: it would be two lines");
  ExpectInvalid(LineEncoder().Encode("ab\r", &out),
                "payload of 3 bytes ends with CR: it would be taken for a part "
                "of CR LF");
  EXPECT_EQ(out, "before");
  // Behind CR LF a CR is safe: only one is taken off.
  out.clear();
  EXPECT_TRUE(LineEncoder({.crlf = true}).Encode("ab\r", &out).ok());
  ExpectEvents(LineOptions{}, out, Frames({"ab\r"}));
}

}  // namespace
}  // namespace sluice::test
