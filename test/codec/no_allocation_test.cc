// Decoding allocates nothing: frames are views, and a length is only a number.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace {

thread_local size_t allocations = 0;

}  // namespace

// All that may be mixed with each other. Not inlined, or GCC takes free for the
// wrong counterpart of new.
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* block = operator new(size, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept {
  std::free(block);
}

namespace sluice::test {
namespace {

template <typename Options>
size_t AllocationsOf(const Options& options, std::string_view stream) {
  const auto decoder = MakeDecoder(options);
  DecodeState state;
  const size_t before = allocations;
  size_t begin = 0;
  for (size_t end = 1; end <= stream.size(); ++end) {
    for (;;) {
      const DecodeResult result =
          decoder.Decode(stream.substr(begin, end - begin), state);
      begin += result.consumed;
      if (result.code == DecodeCode::kNeedMore || state.failed()) break;
    }
  }
  return allocations - before;
}

TEST(NoAllocation, WhateverIsDecoded) {
  const size_t before = allocations;
  const std::string text = std::string(1000, 'x') + "\r\n" + "ab\n";
  ASSERT_GT(allocations, before) << "they are not counted";
  EXPECT_EQ(AllocationsOf(LineOptions{}, text), 0u);
  EXPECT_EQ(AllocationsOf(LineOptions{.max_frame = 10}, text), 0u);
  EXPECT_EQ(AllocationsOf(DelimiterOptions{.delimiters = {"\r\n", "\n"}}, text),
            0u);
  EXPECT_EQ(AllocationsOf(FixedLengthOptions{.frame_length = 10}, text), 0u);
  EXPECT_EQ(AllocationsOf(VarintOptions{}, text), 0u);
  // Case B55: whatever length a peer tells.
  for (const char* lengths : {"\xFF\xFF\xFF\xFF", "\x7F\xFF\xFF\xFF"}) {
    EXPECT_EQ(AllocationsOf(LengthFieldOptions{}, lengths), 0u);
    EXPECT_EQ(AllocationsOf(
                  LengthFieldOptions{.when_too_long = WhenTooLong::kSkipFrame},
                  lengths),
              0u);
  }
}

}  // namespace
}  // namespace sluice::test
