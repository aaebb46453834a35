// What push makes of a line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "examples/push/command.h"

namespace sluice::push {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

void ExpectCommand(const std::string& line, Verb verb, const std::string& topic,
                   const std::string& text) {
  const absl::StatusOr<Command> command = ParseCommand(line);
  ASSERT_TRUE(command.ok()) << line << ": " << command.status();
  EXPECT_EQ(command->verb, verb) << line;
  EXPECT_EQ(command->topic, topic) << line;
  EXPECT_EQ(command->text, text) << line;
}

TEST(PushCommand, IsRead) {
  ExpectCommand("SUB news", Verb::kSub, "news", "");
  ExpectCommand("UNSUB ~!/:", Verb::kUnsub, "~!/:", "");
  ExpectCommand("STATS a", Verb::kStats, "a", "");
  ExpectCommand("PING", Verb::kPing, "", "");
  ExpectCommand("PUB a b", Verb::kPub, "a", "b");
}

TEST(PushCommand, ATextIsLeftAsItIs) {
  ExpectCommand("PUB a  two  spaces ", Verb::kPub, "a", " two  spaces ");
  ExpectCommand("PUB a \0\xff\r"s, Verb::kPub, "a", "\0\xff\r"s);
}

TEST(PushCommand, ATopicHasABound) {
  const std::string longest(kMaxTopic, 't');
  ExpectCommand("SUB " + longest, Verb::kSub, longest, "");
  ExpectCommand("PUB " + longest + " x", Verb::kPub, longest, "x");
}

TEST(PushCommand, ErrorsNameTheCommandTheValueAndTheReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "\"\": there is no such command"},
      {" SUB a", "\"\": there is no such command"},
      {"sub a", "\"sub\": there is no such command"},
      {"SUBSCRIBE a", "\"SUBSCRIBE\": there is no such command"},
      {"PING\r", "\"PING\\r\": there is no such command"},
      {"PING x", "PING \"x\": nothing may follow"},
      {"SUB", "SUB \"\": a topic is missing"},
      {"SUB  a", "SUB \"\": a topic is missing"},
      {"UNSUB a b", "UNSUB \"b\": nothing may follow"},
      {"STATS \x1f", "STATS \"\\x1f\": a topic is of printable ASCII"},
      {"SUB caf\xc3\xa9", "SUB \"caf\\xc3\\xa9\": a topic is of printable"},
      {"SUB a\0"s, "SUB \"a\\x00\": a topic is of printable"},
      {"SUB a\x7f", "SUB \"a\\x7f\": a topic is of printable"},
      {"PUB", "PUB \"\": a topic is missing"},
      {"PUB a", "PUB \"a\": a text is missing"},
      {"PUB a ", "PUB \"a\": a text is missing"},
      {"SUB " + std::string(kMaxTopic + 1, 't'),
       "at most 64 characters, this one has 65"},
  };
  for (const auto& [line, error] : cases) {
    const absl::StatusOr<Command> command = ParseCommand(line);
    EXPECT_TRUE(absl::IsInvalidArgument(command.status())) << line;
    EXPECT_THAT(std::string(command.status().message()), HasSubstr(error));
  }
}

TEST(PushCommand, AQuotedValueIsPrintableAndShort) {
  EXPECT_EQ(Quoted("a\n\"b\""), "\"a\\n\\\"b\\\"\"");
  const std::string quoted = Quoted(std::string(10'000, '\x01'));
  EXPECT_LT(quoted.size(), 400u);
  EXPECT_TRUE(quoted.ends_with("\"..."));
}

}  // namespace
}  // namespace sluice::push
