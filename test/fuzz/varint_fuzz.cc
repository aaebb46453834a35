#include "codec/varint_codec.h"
#include "test/fuzz/fuzz_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  test::FuzzInput input(data, size);
  VarintOptions options;
  test::FuzzRules(input, &options);
  test::CheckDecoder(VarintDecoder::Create(options), options, input);
  test::CheckRoundTrip<VarintEncoder>(VarintEncoder(), VarintDecoder::Create(),
                                      input.rest());
  return 0;
}
