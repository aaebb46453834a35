#include "codec/fixed_length_codec.h"
#include "test/fuzz/fuzz_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  test::FuzzInput input(data, size);
  const FixedLengthOptions options{.frame_length = input.Byte()};
  test::CheckDecoder(FixedLengthDecoder::Create(options), options, input);
  test::CheckRoundTrip(FixedLengthEncoder::Create(options),
                       FixedLengthDecoder::Create(options), input.rest());
  return 0;
}
