// Internal: long byte strings, and where two of them differ.
#ifndef SLUICE_TEST_SUPPORT_PATTERN_H_
#define SLUICE_TEST_SUPPORT_PATTERN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace sluice::test {

// `size` bytes that repeat in no way a buffer could: a byte that is lost,
// doubled or moved shows. `seed` gives another string.
inline std::string Pattern(size_t size, uint32_t seed = 1) {
  std::string bytes(size, '\0');
  uint32_t x = seed * 2654435769u + 1;
  for (char& byte : bytes) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<char>(x >> 24);
  }
  return bytes;
}

// Equality that names the first difference instead of printing megabytes.
inline ::testing::AssertionResult SameBytes(std::string_view got,
                                            std::string_view expected) {
  if (got == expected) return ::testing::AssertionSuccess();
  const size_t common = std::min(got.size(), expected.size());
  size_t at = 0;
  while (at < common && got[at] == expected[at]) ++at;
  return ::testing::AssertionFailure()
         << got.size() << " bytes, expected " << expected.size()
         << "; the first difference is at " << at;
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_PATTERN_H_
