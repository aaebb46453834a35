#include "codec/fixed_length_codec.h"

#include <string>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

TEST(FixedLengthDecoder, FramesOfOneSize) {
  ExpectEvents(FixedLengthOptions{.frame_length = 3}, "abcdefgh",
               Frames({"abc", "def"}));
  ExpectEvents(FixedLengthOptions{.frame_length = 1}, "abc",
               Frames({"a", "b", "c"}));
  ExpectEvents(FixedLengthOptions{.frame_length = 9}, "abcdefgh", Events());
}

TEST(FixedLengthDecoder, OptionsAreChecked) {
  ExpectInvalid(FixedLengthDecoder::Create({}).status(),
                "frame_length is 0: must be 1 to 2147483647");
  ExpectInvalid(
      FixedLengthDecoder::Create({.frame_length = size_t{1} << 31}).status(),
      "frame_length is 2147483648: must be 1 to 2147483647");
  ExpectInvalid(FixedLengthEncoder::Create({}).status(), "frame_length is 0");
}

TEST(FixedLengthEncoder, TakesOneSizeOnly) {
  const auto encoder = FixedLengthEncoder::Create({.frame_length = 3});
  ASSERT_TRUE(encoder.ok());
  std::string out = "before ";
  EXPECT_TRUE(encoder->Encode("abc", &out).ok());
  ExpectInvalid(encoder->Encode("ab", &out),
                "payload has 2 bytes: frame_length is 3");
  ExpectInvalid(encoder->Encode("abcdef", &out), "payload has 6 bytes");
  ExpectInvalid(encoder->Check(""), "payload has 0 bytes");
  EXPECT_EQ(out, "before abc");
}

}  // namespace
}  // namespace sluice::test
