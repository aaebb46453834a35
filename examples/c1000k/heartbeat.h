// c1000k: the message that goes round.
#ifndef SLUICE_EXAMPLES_C1000K_HEARTBEAT_H_
#define SLUICE_EXAMPLES_C1000K_HEARTBEAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::c1000k {

// What one message is about.
struct Heartbeat {
  enum class Kind : uint32_t {
    kPaced = 1,     // at the rate of --heartbeat_qps
    kRollCall = 2,  // the last question to each connection
  };
  Kind kind = Kind::kPaced;
  uint64_t connection = 0;  // see ConnectionId
  uint64_t sent_ns = 0;     // CLOCK_MONOTONIC of the sender

  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// 64 bytes on the wire. The pattern follows from the first 24 bytes, so every
// byte of a reply can be checked although the client remembers nothing of what
// it sent:
//
//   0       4      8            16           24                       64
//   | magic | kind | connection | sent_ns    | pattern (40 bytes)      |
inline constexpr size_t kHeartbeatSize = 64;
using HeartbeatBytes = std::array<char, kHeartbeatSize>;

HeartbeatBytes EncodeHeartbeat(const Heartbeat& heartbeat);

// nullopt unless `bytes` are exactly what EncodeHeartbeat makes of some
// heartbeat.
std::optional<Heartbeat> DecodeHeartbeat(std::string_view bytes);

// Names a connection of the client: which reactor, and the how-manieth there.
constexpr uint64_t ConnectionId(uint32_t lane, uint32_t index) {
  return (uint64_t{lane} << 32) | index;
}
constexpr uint32_t LaneOf(uint64_t id) {
  return static_cast<uint32_t>(id >> 32);
}
constexpr uint32_t IndexOf(uint64_t id) { return static_cast<uint32_t>(id); }

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_HEARTBEAT_H_
