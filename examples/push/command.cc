#include "examples/push/command.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::push {
namespace {

struct Form {
  const char* name;
  Verb verb;
  bool has_topic;
  bool has_text;
};
constexpr Form kForms[] = {
    {"SUB", Verb::kSub, true, false},    {"UNSUB", Verb::kUnsub, true, false},
    {"PUB", Verb::kPub, true, true},     {"STATS", Verb::kStats, true, false},
    {"PING", Verb::kPing, false, false},
};

// Takes the part before the first space, and the space.
std::string_view TakeWord(std::string_view* rest) {
  const size_t space = rest->find(' ');
  const std::string_view word = rest->substr(0, space);
  rest->remove_prefix(space == std::string_view::npos ? rest->size()
                                                      : space + 1);
  return word;
}

absl::Status Error(const char* command, std::string_view value,
                   const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(command, " ", Quoted(value), ": ", reason));
}

absl::Status CheckTopic(const char* command, std::string_view topic) {
  if (topic.empty()) return Error(command, topic, "a topic is missing");
  if (topic.size() > kMaxTopic) {
    return Error(command, topic,
                 absl::StrCat("a topic has at most ", kMaxTopic,
                              " characters, this one has ", topic.size()));
  }
  const bool printable = std::all_of(
      topic.begin(), topic.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (printable) return absl::OkStatus();
  return Error(command, topic, "a topic is of printable ASCII characters");
}

}  // namespace

std::string Quoted(std::string_view value) {
  constexpr size_t kShown = 80;
  const std::string_view shown = value.substr(0, kShown);
  return absl::StrCat(
      "\"", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
      "\"", value.size() > kShown ? "..." : "");
}

absl::StatusOr<Command> ParseCommand(std::string_view line) {
  std::string_view rest = line;
  const std::string_view name = TakeWord(&rest);
  for (const Form& form : kForms) {
    if (name != form.name) continue;
    Command command{.verb = form.verb, .topic = {}, .text = {}};
    if (form.has_topic) {
      command.topic = TakeWord(&rest);
      absl::Status s = CheckTopic(form.name, command.topic);
      if (!s.ok()) return s;
    }
    if (form.has_text) {
      if (rest.empty()) {
        return Error(form.name, command.topic,
                     "a text is missing behind the topic");
      }
      command.text = rest;
    } else if (!rest.empty()) {
      return Error(form.name, rest, "nothing may follow here");
    }
    return command;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(name),
                   ": there is no such command; SUB, UNSUB, PUB, STATS or PING "
                   "is wanted"));
}

}  // namespace sluice::push
