#include "examples/c1000k/heartbeat.h"

#include <cstring>

namespace sluice::c1000k {
namespace {

constexpr uint32_t kMagic = 0x6b63756c;
constexpr size_t kHeader = 24;

template <typename T>
void Put(HeartbeatBytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// A bijection that leaves no bit where it was, so neighbouring connections and
// times give unrelated patterns.
uint64_t Scramble(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return x;
}

}  // namespace

HeartbeatBytes EncodeHeartbeat(const Heartbeat& h) {
  HeartbeatBytes bytes;
  Put(bytes, 0, kMagic);
  Put(bytes, 4, h.kind);
  Put(bytes, 8, h.connection);
  Put(bytes, 16, h.sent_ns);
  uint64_t seed = Scramble(h.connection + 1) ^ Scramble(~h.sent_ns) ^
                  static_cast<uint64_t>(h.kind);
  for (size_t at = kHeader; at < kHeartbeatSize; at += sizeof(seed)) {
    seed = Scramble(seed + at);
    Put(bytes, at, seed);
  }
  return bytes;
}

std::optional<Heartbeat> DecodeHeartbeat(std::string_view bytes) {
  if (bytes.size() != kHeartbeatSize) return std::nullopt;
  const uint32_t kind = Get<uint32_t>(bytes, 4);
  if (kind != static_cast<uint32_t>(Heartbeat::Kind::kPaced) &&
      kind != static_cast<uint32_t>(Heartbeat::Kind::kRollCall)) {
    return std::nullopt;
  }
  const Heartbeat h{.kind = static_cast<Heartbeat::Kind>(kind),
                    .connection = Get<uint64_t>(bytes, 8),
                    .sent_ns = Get<uint64_t>(bytes, 16)};
  const HeartbeatBytes expected = EncodeHeartbeat(h);
  if (std::memcmp(expected.data(), bytes.data(), kHeartbeatSize) != 0) {
    return std::nullopt;
  }
  return h;
}

}  // namespace sluice::c1000k
