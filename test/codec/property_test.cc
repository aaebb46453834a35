// Random options and streams: each decoder, fed in random pieces, gives what a
// plain reference gives for all of the stream at once.

#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "test/codec/expect.h"
#include "test/codec/random.h"

namespace sluice::test {
namespace {

constexpr int kRounds = 2000;

// `make_stream(options)` gives bytes that exercise them.
template <typename MakeOptions, typename MakeStream>
void ExpectAsReference(MakeOptions make_options, MakeStream make_stream) {
  int errors = 0;
  int frames = 0;
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto options = make_options(random);
    const auto decoder = MakeDecoder(options);
    const std::string stream = make_stream(random, options);
    const Events expected = Reference(options, stream);
    for (const std::string& event : expected) {
      ++(IsError(event) ? errors : frames);
    }
    ASSERT_EQ(DecodeWhole(decoder, stream), expected);
    ASSERT_EQ(DecodeByteByByte(decoder, stream), expected);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(Decode(decoder, random.Pieces(stream)), expected);
    }
  }
  // Neither is what comes out nearly always.
  EXPECT_GT(frames, kRounds);
  EXPECT_GT(errors, kRounds / 10);
}

TEST(Property, Line) {
  ExpectAsReference(
      [](Random& random) {
        LineOptions options;
        RandomRules(random, &options);
        options.strip_delimiter = random.Bool();
        return options;
      },
      [](Random& random, const LineOptions&) {
        return random.Text("ab\r\n", 80);
      });
}

TEST(Property, Delimiter) {
  ExpectAsReference(
      [](Random& random) {
        DelimiterOptions options;
        RandomRules(random, &options);
        options.strip_delimiter = random.Bool();
        do {
          options.delimiters.clear();
          for (int i = random.Between(1, 4); i > 0; --i) {
            options.delimiters.push_back(random.Text("abc", 4));
          }
        } while (!DelimiterDecoder::Create(options).ok());
        return options;
      },
      [](Random& random, const DelimiterOptions&) {
        return random.Text("abcd", 80);
      });
}

TEST(Property, LengthField) {
  ExpectAsReference(
      [](Random& random) {
        LengthFieldOptions options;
        do {
          options = LengthFieldOptions();
          RandomRules(random, &options);
          options.max_frame += 12;
          options.length_offset = static_cast<size_t>(random.Between(0, 3));
          options.length_bytes = random.Pick<size_t>({1, 2, 3, 4, 8});
          options.byte_order =
              random.Pick({ByteOrder::kBig, ByteOrder::kLittle});
          options.adjustment = random.Between(-12, 12);
          options.strip = static_cast<size_t>(random.Between(0, 12));
        } while (!LengthFieldDecoder::Create(options).ok());
        return options;
      },
      [](Random& random, const LengthFieldOptions& options) {
        std::string stream;
        for (int i = random.Between(1, 8); i > 0; --i) {
          // Frames near the bound, and now and then any bytes at all.
          const auto encoder =
              LengthFieldEncoder::Create({.length_bytes = options.length_bytes,
                                          .byte_order = options.byte_order,
                                          .adjustment = -options.adjustment});
          std::string frame =
              random.Any(static_cast<size_t>(random.Between(0, 20)));
          const auto header = encoder->Header(frame.size());
          if (header.ok()) {
            frame.insert(0, header->view());
            frame.insert(0, random.Any(options.length_offset));
          }
          stream += frame;
          if (random.Between(0, 15) == 0) stream += random.Any(3);
        }
        return stream;
      });
}

TEST(Property, Varint) {
  ExpectAsReference(
      [](Random& random) {
        VarintOptions options;
        RandomRules(random, &options);
        return options;
      },
      [](Random& random, const VarintOptions&) {
        std::string stream;
        for (int i = random.Between(1, 8); i > 0; --i) {
          const std::string payload =
              random.Any(static_cast<size_t>(random.Between(0, 20)));
          EXPECT_TRUE(VarintEncoder().Encode(payload, &stream).ok());
          if (random.Between(0, 15) == 0) stream += random.Any(6);
        }
        return stream;
      });
}

// An encoder takes what its decoder gives back, and nothing else.
template <typename Encoder, typename Decoder>
void ExpectRoundTrip(const Encoder& encoder, const Decoder& decoder,
                     const std::string& payload, int* taken) {
  std::string out = "before";
  if (encoder.Encode(payload, &out).ok()) {
    ++*taken;
    ASSERT_EQ(DecodeWhole(decoder, std::string_view(out).substr(6)),
              Frames({payload}));
    return;
  }
  ASSERT_EQ(out, "before");
  // Refused with reason: the plain sum of both would be something else.
  out = payload;
  out += *encoder.Trailer("x");
  ASSERT_NE(DecodeWhole(decoder, out), Frames({payload}));
}

TEST(Property, LineEncoderRefusesExactlyWhatDoesNotComeBack) {
  const LineDecoder decoder = MakeDecoder(LineOptions{});
  int taken = 0;
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ExpectRoundTrip(LineEncoder({.crlf = random.Bool()}), decoder,
                    random.Text("ab\r\n", 6), &taken);
  }
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, kRounds - kRounds / 10);
}

TEST(Property, DelimiterEncoderRefusesExactlyWhatDoesNotComeBack) {
  int taken = 0;
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<std::string> delimiters;
    do {
      delimiters.clear();
      for (int i = random.Between(1, 3); i > 0; --i) {
        delimiters.push_back(random.Text("ab", 4));
      }
    } while (!DelimiterEncoder::Create(delimiters).ok());
    ExpectRoundTrip(*DelimiterEncoder::Create(delimiters),
                    MakeDecoder(DelimiterOptions{.delimiters = delimiters}),
                    random.Text("abc", 8), &taken);
  }
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, kRounds - kRounds / 10);
}

}  // namespace
}  // namespace sluice::test
