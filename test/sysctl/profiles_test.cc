// The profiles: what each key must say about itself, and sysctl.d's format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

namespace sluice::test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::Key;
using testing::MatchesRegex;
using testing::StartsWith;

class ProfilesTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, ProfilesTest,
                         testing::Values("idle", "throughput", "load-client"),
                         [](const auto& profile) {
                           return profile.param == "load-client"
                                      ? "load_client"
                                      : profile.param;
                         });

TEST_P(ProfilesTest, EachKeyCarriesReasonDangerWayBackAndRule) {
  std::ifstream file(SLUICE_SOURCE_DIR "/sysctl/" + GetParam() + ".conf");
  std::set<std::string> keys;
  std::map<std::string, std::string> said;
  std::string line;
  while (std::getline(file, line)) {
    EXPECT_LE(line.size(), 80u) << line;
    if (line.empty()) {
      said.clear();
    } else if (line.starts_with("# ") && line.find(": ") != std::string::npos) {
      const size_t colon = line.find(": ");
      said[line.substr(2, colon - 2)] = line.substr(colon + 2);
    } else if (!line.starts_with("#")) {
      EXPECT_THAT(line, MatchesRegex("[a-z0-9_.-]+ = [0-9]+( [0-9]+)*"));
      EXPECT_TRUE(keys.insert(line.substr(0, line.find(' '))).second)
          << "twice: " << line;
      for (const char* word : {"why", "danger", "revert", "rule"}) {
        EXPECT_THAT(said, Contains(Key(word))) << line;
      }
      EXPECT_THAT(said["rule"], AnyOf("at-least", "exactly", "widen")) << line;
      if (said.contains("scale")) {
        EXPECT_THAT(said["scale"],
                    AnyOf("connections", StartsWith("memory-pages "),
                          StartsWith("memory-kib ")))
            << line;
      }
    }
  }
  EXPECT_GE(keys.size(), 10u);
}

}  // namespace
}  // namespace sluice::test
