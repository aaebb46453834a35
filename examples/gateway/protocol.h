// gateway: what players and the gateway say to each other.
//
// Every packet, in both directions (numbers are big-endian):
//
//      0        1        2        3        4
//   +--------+--------+--------+--------+---------------- - -
//   |      length     |     command     |  body
//   +--------+--------+--------+--------+---------------- - -
//                     |<--------- length bytes --------- - ->|
//
// The length counts the command and the body, and not itself: a packet without
// a body is 00 02 and the command. A packet, length included, has at most
// kMaxPacket bytes.
//
//   player          gateway          body
//   login     ->                     name, 1 to kMaxName bytes
//             <-    logged in        player 4
//   move      ->                     sequence 4, x 4, y 4, sent at 8
//             <-    moved            the same, x and y kept inside the world
//             <-    refused          command 2, why 2
//
// A player waits for "logged in" before it moves; what it asks too early is
// refused. "Refused" never ends the connection. What is no packet at all (too
// long, shorter than a command, an unknown command, a body of the wrong size)
// does: after it nobody knows what the sender believes it has said.
#ifndef SLUICE_EXAMPLES_GATEWAY_PROTOCOL_H_
#define SLUICE_EXAMPLES_GATEWAY_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "codec/length_field_codec.h"
#include "reactor/connection.h"

namespace sluice::gateway {

inline constexpr size_t kMaxPacket = 1024;
inline constexpr size_t kMaxName = 32;
inline constexpr int32_t kWorldSize = 10'000;  // x and y: 0 to kWorldSize - 1

enum class Command : uint16_t {
  kLogin = 0x0001,
  kMove = 0x0002,
  kLoggedIn = 0x8001,
  kMoved = 0x8002,
  kRefused = 0x8003,
};

enum class Why : uint16_t {
  kNobody = 1,         // login: there is no such player
  kComeBack = 2,       // login: too many at once; the same again, later
  kLoginUnderWay = 3,  // login: the answer to the one before comes first
  kLoginFirst = 4,     // move: only after "logged in"
};

struct Move {
  uint32_t sequence = 0;
  int32_t x = 0;
  int32_t y = 0;
  uint64_t sent_at = 0;  // by the player's clock, for the player alone

  friend bool operator==(const Move&, const Move&) = default;
};
// The move as the gateway takes it.
Move InsideTheWorld(Move move);

struct Refusal {
  Command command = {};
  Why why = {};

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// --- Reading.

// The decoder's frames are packets without their length.
LengthFieldDecoder MakeDecoder();

struct Packet {
  Command command = {};  // may be one that is not known
  std::string_view body;
};
// nullopt: the frame is shorter than a command.
std::optional<Packet> ParsePacket(std::string_view frame);

// nullopt: the body's size is wrong.
std::optional<std::string_view> ParseLogin(std::string_view body);
std::optional<uint32_t> ParseLoggedIn(std::string_view body);
std::optional<Move> ParseMove(std::string_view body);  // of "moved" as well
std::optional<Refusal> ParseRefused(std::string_view body);

// --- Writing.

// A command and its body, up to a login's: lies on the stack, so that answering
// a move allocates nothing.
class Payload {
 public:
  static Payload Login(std::string_view name);  // cut after kMaxName bytes
  static Payload LoggedIn(uint32_t player);
  static Payload MoveOf(Command move_or_moved, const Move& move);
  static Payload Refused(Command command, Why why);

  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  explicit Payload(Command command) { Add(static_cast<uint16_t>(command)); }
  template <typename T>
  void Add(T number);

  std::array<char, sizeof(Command) + kMaxName> bytes_;
  size_t size_ = 0;
};

// With the length in front.
absl::Status Send(Connection& c, const Payload& payload);
std::string Framed(const Payload& payload);

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_PROTOCOL_H_
