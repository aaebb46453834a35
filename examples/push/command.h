// push: what its clients say, a line each.
//
//   client            push answers
//   SUB topic         OK SUB topic
//   UNSUB topic       OK UNSUB topic; no message of it comes after that
//   PUB topic text    OK PUB topic N; N: its subscribers, 0 if there are none
//   STATS topic       OK STATS topic subscribers=N published=N delivered=N ...
//   PING              PONG
//
// Or ERR, the command as far as it is known, the value and the reason; the
// connection goes on. In between come the messages: MSG topic text.
//
// Answers come in the order of the commands. A line ends with LF or CR LF, and
// with LF in the other direction. The text is what follows the one space behind
// the topic, of any bytes but LF, and is passed on as it is.
#ifndef SLUICE_EXAMPLES_PUSH_COMMAND_H_
#define SLUICE_EXAMPLES_PUSH_COMMAND_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::push {

// Of printable ASCII without a space.
inline constexpr size_t kMaxTopic = 64;

enum class Verb : uint8_t { kSub, kUnsub, kPub, kStats, kPing };

// Views of the line it was read from.
struct Command {
  Verb verb = {};
  std::string_view topic;  // not with kPing
  std::string_view text;   // with kPub
};

// InvalidArgument: what to answer behind "ERR ".
absl::StatusOr<Command> ParseCommand(std::string_view line);

// In quotes, as one may print it: escaped, and the beginning only if it is
// long.
std::string Quoted(std::string_view value);

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_COMMAND_H_
