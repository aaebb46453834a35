#include <cstring>

#include "codec/length_field_codec.h"
#include "test/fuzz/fuzz_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  test::FuzzInput input(data, size);
  LengthFieldOptions options;
  test::FuzzRules(input, &options);
  options.length_offset = input.Byte() % 8;
  options.length_bytes = input.Byte() % 9;
  options.byte_order = input.Bool() ? ByteOrder::kLittle : ByteOrder::kBig;
  // Mostly small, now and then any there is.
  options.adjustment = static_cast<int8_t>(input.Byte());
  if (input.Byte() == 0xFF) {
    const std::string_view any = input.Take(sizeof(options.adjustment));
    std::memcpy(&options.adjustment, any.data(), any.size());
  }
  options.strip = input.Byte() % 32;
  test::CheckDecoder(LengthFieldDecoder::Create(options), options, input);

  const bool itself = input.Bool();
  const auto own = static_cast<int64_t>(itself ? options.length_bytes : 0);
  const int64_t adjustment = static_cast<int8_t>(input.Byte());
  test::CheckRoundTrip(
      LengthFieldEncoder::Create({.length_bytes = options.length_bytes,
                                  .byte_order = options.byte_order,
                                  .length_includes_itself = itself,
                                  .adjustment = adjustment}),
      LengthFieldDecoder::Create({.length_bytes = options.length_bytes,
                                  .byte_order = options.byte_order,
                                  .adjustment = -own - adjustment,
                                  .strip = options.length_bytes}),
      input.rest());
  return 0;
}
