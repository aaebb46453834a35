#include "codec/line_codec.h"
#include "test/fuzz/fuzz_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  test::FuzzInput input(data, size);
  LineOptions options;
  test::FuzzRules(input, &options);
  options.strip_delimiter = input.Bool();
  test::CheckDecoder(LineDecoder::Create(options), options, input);
  test::CheckRoundTrip<LineEncoder>(LineEncoder({.crlf = input.Bool()}),
                                    LineDecoder::Create(), input.rest());
  return 0;
}
