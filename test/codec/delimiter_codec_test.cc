#include "codec/delimiter_codec.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

absl::Status Created(std::vector<std::string> delimiters) {
  return DelimiterDecoder::Create({.delimiters = std::move(delimiters)})
      .status();
}

TEST(DelimiterDecoder, OneOrSeveralOfManyBytes) {
  ExpectEvents(DelimiterOptions{.delimiters = {"$$"}}, "ab$c$$$$$x$$",
               Frames({"ab$c", "", "$x"}));
  const std::vector<std::string> three = {"$$", "\r\n", "\n"};
  ExpectEvents(DelimiterOptions{.delimiters = three}, "ab$c$$de\r\nf\n$$g",
               Frames({"ab$c", "de", "f", ""}));
  ExpectEvents(DelimiterOptions{.delimiters = three, .strip_delimiter = false},
               "ab$c$$de\r\nf\n$$g", Frames({"ab$c$$", "de\r\n", "f\n", "$$"}));
}

TEST(DelimiterDecoder, ZeroBytesAreBytes) {
  ExpectEvents(DelimiterOptions{.delimiters = {Bytes("\0"), Bytes("\1\2")}},
               Bytes("ab\0c\1\2\0"), Frames({"ab", "c", ""}));
}

TEST(DelimiterDecoder, TheShortestFrameWins) {
  // Of two that end together the longer one begins first.
  ExpectEvents(DelimiterOptions{.delimiters = {"\n", "END\n"}},
               "aEND\nbEN\nEND\n", Frames({"a", "bEN", ""}));
  // A false start is no end: the second '-' begins a new one.
  ExpectEvents(DelimiterOptions{.delimiters = {"-->"}}, "a--->b-->",
               Frames({"a-", "b"}));
}

TEST(DelimiterDecoder, DelimitersNeverReachBackIntoTheFrameBefore) {
  ExpectEvents(DelimiterOptions{.delimiters = {"aa"}}, "xaaaya", Frames({"x"}));
  ExpectEvents(DelimiterOptions{.delimiters = {"ab", "bc"}}, "abcxbc",
               Frames({"", "cx"}));
}

// The search for several goes by blocks.
TEST(DelimiterDecoder, FramesOfEveryLengthUpToAFewBlocks) {
  const DelimiterDecoder decoder =
      MakeDecoder(DelimiterOptions{.delimiters = {"<->", "\r\n", "|"}});
  for (size_t size = 0; size <= 400; ++size) {
    const std::string first(size, 'x');
    const std::string false_ends(size, '>');
    EXPECT_EQ(DecodeWhole(decoder, first + "|" + first + "<->" + false_ends +
                                       "\r\n" + first),
              Frames({first, first, false_ends}));
  }
}

TEST(DelimiterDecoder, ExactlyMaxAndOneMore) {
  const DelimiterOptions options{.delimiters = {"<>!", "|"}, .max_frame = 3};
  const std::string error = TooLongEvent(3, 0);
  ExpectEvents(options, "abc<>!abc|", Frames({"abc", "abc"}));
  ExpectEvents(options, "abcd<>!", {error});
  ExpectEvents(options, "abcd|", {error});
  // Certain as soon as what could be a delimiter turns out to be none.
  const DelimiterDecoder decoder = MakeDecoder(options);
  Stream<DelimiterDecoder> stream(decoder);
  stream.Feed("abc<>");
  EXPECT_EQ(stream.events(), Events());
  stream.Feed("?");
  EXPECT_EQ(stream.events(), Events({error}));
  EXPECT_EQ(DecodeWhole(decoder, "abcd"), Events({error}));
  EXPECT_EQ(DecodeWhole(decoder, "ab<>"), Events());
}

TEST(DelimiterDecoder, TooLongFrameIsSkippedAndNotKept) {
  for (const bool fail_fast : {true, false}) {
    const DelimiterOptions options{.delimiters = {"<->"},
                                   .max_frame = 4,
                                   .fail_fast = fail_fast,
                                   .when_too_long = WhenTooLong::kSkipFrame};
    const std::string error = TooLongEvent(4, fail_fast ? 0 : 300002);
    const DelimiterDecoder decoder = MakeDecoder(options);
    Stream<DelimiterDecoder> stream(decoder);
    for (int i = 0; i < 1000; ++i) {
      stream.Feed(std::string(300, 'x'));
      EXPECT_LE(stream.pending().size(), 2u);
    }
    stream.Feed("<-<");  // a false start, kept across reads
    stream.Feed("-");
    EXPECT_EQ(stream.events(), fail_fast ? Events({error}) : Events());
    stream.Feed(">abcd<->");
    EXPECT_EQ(stream.events(), Events({error, FrameEvent("abcd")}));
    ExpectEvents(options, "<-x<-<-<->abcd<->",
                 {TooLongEvent(4, fail_fast ? 0 : 7), FrameEvent("abcd")});
  }
}

TEST(DelimiterDecoder, OptionsAreChecked) {
  ExpectInvalid(Created({}), "delimiters is a list of 0: must be 1 to 16");
  ExpectInvalid(Created(std::vector<std::string>(17, "x")),
                "delimiters is a list of 17: must be 1 to 16");
  ExpectInvalid(Created({"a", ""}), "delimiters[1] is \"\": must not be empty");
  ExpectInvalid(Created({"a", std::string(257, 'x')}), "delimiters[1] is \"xx");
  ExpectInvalid(Created({"a", "b", "a"}),
                "delimiters[2] is \"a\": is delimiters[0] again");
  // A prefix, and a part in the middle.
  ExpectInvalid(Created({"\r", "\r\n"}),
                "delimiters[0] is \"\\r\": occurs in delimiters[1], "
                "\"\\r\\n\", before its end");
  ExpectInvalid(Created({"abcd", "bc"}),
                "delimiters[1] is \"bc\": occurs in delimiters[0]");
  // In another twice, at its end too.
  ExpectInvalid(Created({"xbxb", "xb"}),
                "delimiters[1] is \"xb\": occurs in delimiters[0]");
  EXPECT_TRUE(Created({"\r\n", "\n"}).ok());
  EXPECT_TRUE(Created({std::string(256, 'x')}).ok());
  ExpectInvalid(
      DelimiterDecoder::Create({.delimiters = {"a"}, .max_frame = 0}).status(),
      "max_frame is 0: must be 1 to 2147483647");
  ExpectInvalid(DelimiterEncoder::Create({""}).status(),
                "delimiters[0] is \"\": must not be empty");
}

TEST(DelimiterEncoder, EndsPayloadsWithTheFirst) {
  const auto encoder = DelimiterEncoder::Create({"$$", "\n"});
  ASSERT_TRUE(encoder.ok());
  std::string out = "before ";
  EXPECT_TRUE(encoder->Encode("a$b", &out).ok());
  EXPECT_TRUE(encoder->Encode("", &out).ok());
  EXPECT_EQ(out, "before a$b$$$$");
  EXPECT_EQ(*encoder->Trailer("x"), "$$");
}

TEST(DelimiterEncoder, RefusesWhatWouldNotComeBack) {
  const auto encoder = DelimiterEncoder::Create({"$$", "\n", "=$"});
  ASSERT_TRUE(encoder.ok());
  std::string out = "before";
  ExpectInvalid(encoder->Encode("ab$$c", &out),
                "payload of 5 bytes would end at 2: a delimiter begins there");
  ExpectInvalid(encoder->Encode("abc\nd", &out),
                "payload of 5 bytes would end at 3");
  // Its end and the delimiter behind it make one.
  ExpectInvalid(encoder->Encode("abcdef$", &out),
                "payload of 7 bytes would end at 6");
  ExpectInvalid(encoder->Encode("abc=", &out),
                "payload of 4 bytes would end at 3");
  EXPECT_EQ(out, "before");
}

}  // namespace
}  // namespace sluice::test
