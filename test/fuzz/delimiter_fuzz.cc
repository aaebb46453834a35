#include "codec/delimiter_codec.h"
#include "test/fuzz/fuzz_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  test::FuzzInput input(data, size);
  DelimiterOptions options;
  test::FuzzRules(input, &options);
  options.strip_delimiter = input.Bool();
  for (int i = input.Byte() % 4; i >= 0; --i) {
    options.delimiters.emplace_back(input.Take(1 + input.Byte() % 4));
  }
  test::CheckDecoder(DelimiterDecoder::Create(options), options, input);
  test::CheckRoundTrip(
      DelimiterEncoder::Create(options.delimiters),
      DelimiterDecoder::Create({.delimiters = options.delimiters}),
      input.rest());
  return 0;
}
