// Internal: what each fuzz target does with its input.
#ifndef SLUICE_TEST_FUZZ_FUZZ_DECODER_H_
#define SLUICE_TEST_FUZZ_FUZZ_DECODER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "test/codec/feed.h"
#include "test/codec/reference.h"

namespace sluice::test {

// The fuzzer's bytes: choices first, then the stream.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  // 0 when nothing is left.
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return static_cast<uint8_t>(byte);
  }
  bool Bool() { return (Byte() & 1) != 0; }
  std::string_view Take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// The options that most decoders share.
template <typename Options>
void FuzzRules(FuzzInput& input, Options* options) {
  const uint8_t flags = input.Byte();
  options->fail_fast = (flags & 1) != 0;
  options->when_too_long = (flags & 2) != 0 ? WhenTooLong::kSkipFrame
                                            : WhenTooLong::kCloseConnection;
  options->max_frame = input.Byte();
}

// What is left of the input, in any pieces, gives what the reference gives.
template <typename Decoder, typename Options>
void CheckDecoder(const absl::StatusOr<Decoder>& decoder,
                  const Options& options, FuzzInput& input) {
  const size_t piece = size_t{1} + input.Byte() % 16;
  const size_t grow = input.Byte() % 8;
  const std::string_view stream = input.rest();
  if (!decoder.ok()) return;
  const Events expected = Reference(options, stream);
  Require(DecodeWhole(*decoder, stream) == expected, "whole");
  Require(DecodeByteByByte(*decoder, stream) == expected, "byte by byte");
  std::vector<std::string_view> pieces;
  for (size_t at = 0, size = piece; at < stream.size(); size += grow) {
    pieces.push_back(stream.substr(at, size));
    at += size;
  }
  Require(Decode(*decoder, pieces) == expected, "in pieces");
}

// What the encoder takes comes back, and what it refuses leaves no trace.
template <typename Encoder, typename Decoder>
void CheckRoundTrip(const absl::StatusOr<Encoder>& encoder,
                    const absl::StatusOr<Decoder>& decoder,
                    std::string_view payload) {
  if (!encoder.ok() || !decoder.ok()) return;
  std::string out = "before";
  if (!encoder->Encode(payload, &out).ok()) {
    Require(out == "before", "appended something of what was refused");
    return;
  }
  Require(DecodeWhole(*decoder, std::string_view(out).substr(6)) ==
              Events{FrameEvent(payload)},
          "did not come back");
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_FUZZ_FUZZ_DECODER_H_
