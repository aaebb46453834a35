#include "examples/flags.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

DEFINE_int64(test_number, 7, "A number.");
DEFINE_double(test_double, 1.5, "Another one.");
DEFINE_string(test_text, "none", "A text.");
DEFINE_string(test_list, "default", "A list.");

namespace sluice::examples {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FlagsTest : public testing::Test {
 protected:
  absl::Status Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return ParseFlags(static_cast<int>(arguments.size()), arguments.data(),
                      {"test_list"}, &help_);
  }
  std::string Error(std::vector<const char*> arguments) {
    const absl::Status s = Parse(std::move(arguments));
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.message());
  }
  bool help_ = false;

 private:
  gflags::FlagSaver saver_;
};

TEST_F(FlagsTest, EveryForm) {
  ASSERT_TRUE(Parse({"--test_number=5", "-test_double=0.25", "--test_text",
                     "two words", "--test_list=a"})
                  .ok());
  EXPECT_EQ(FLAGS_test_number, 5);
  EXPECT_EQ(FLAGS_test_double, 0.25);
  EXPECT_EQ(FLAGS_test_text, "two words");
  EXPECT_EQ(FLAGS_test_list, "a");
  EXPECT_FALSE(help_);
}

TEST_F(FlagsTest, RepeatedFlagsCollectOrTheLastCounts) {
  ASSERT_TRUE(Parse({"--test_list=a,b", "--test_number=1", "--test_list", "c",
                     "--test_number=2"})
                  .ok());
  EXPECT_EQ(FLAGS_test_list, "a,b,c");
  EXPECT_EQ(FLAGS_test_number, 2);
}

TEST_F(FlagsTest, NothingGivenLeavesTheDefaults) {
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(FLAGS_test_number, 7);
  EXPECT_EQ(FLAGS_test_list, "default");
}

TEST_F(FlagsTest, ErrorsNameTheArgument) {
  EXPECT_THAT(Error({"--test_number=abc"}),
              AllOf(HasSubstr("--test_number=abc"), HasSubstr("whole number")));
  EXPECT_THAT(Error({"--test_number=99999999999999999999"}),
              HasSubstr("99999999999999999999"));
  EXPECT_THAT(Error({"--test_double=1,5"}), HasSubstr("--test_double=1,5"));
  EXPECT_THAT(Error({"--no_such=1"}),
              AllOf(HasSubstr("--no_such=1"), HasSubstr("no such flag")));
  EXPECT_THAT(Error({"stray"}), HasSubstr("\"stray\""));
  EXPECT_THAT(Error({"--"}), HasSubstr("no such flag"));
  EXPECT_THAT(Error({"--test_number"}), HasSubstr("value is missing"));
}

TEST_F(FlagsTest, HelpStopsThere) {
  ASSERT_TRUE(Parse({"--help", "--test_number=abc"}).ok());
  EXPECT_TRUE(help_);
  EXPECT_THAT(HelpText("Usage.", "flags_test.cc"),
              AllOf(HasSubstr("Usage."), HasSubstr("--test_number=7"),
                    HasSubstr("A number."), Not(HasSubstr("flagfile"))));
}

}  // namespace
}  // namespace sluice::examples
