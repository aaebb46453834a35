#include "examples/format.h"

#include <gtest/gtest.h>

namespace sluice::examples {
namespace {

TEST(Format, Numbers) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(4071), "4.07 KB");
  EXPECT_EQ(FormatBytes(90e6), "90.0 MB");
  EXPECT_EQ(FormatBytes(8.2e9), "8.20 GB");
  EXPECT_EQ(FormatBytes(999'900), "1.00 MB");
  EXPECT_EQ(FormatBytes(-5000), "-5.00 KB");
  EXPECT_EQ(FormatMicros(85), "85 us");
  EXPECT_EQ(FormatMicros(1250), "1.25 ms");
  EXPECT_EQ(FormatMicros(250'000), "250 ms");
  EXPECT_EQ(FormatMicros(3'200'000), "3.20 s");
  EXPECT_EQ(FormatSeconds(0.42), "0.42 s");
  EXPECT_EQ(FormatSeconds(25.3), "25.3 s");
  EXPECT_EQ(FormatSeconds(242), "4 min 02 s");
}

}  // namespace
}  // namespace sluice::examples
