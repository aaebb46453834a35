#include "examples/gateway/protocol.h"

#include <algorithm>
#include <type_traits>

namespace sluice::gateway {
namespace {

constexpr size_t kLengthBytes = 2;
constexpr size_t kMoveBytes = 20;
constexpr size_t kRefusedBytes = 4;

// Takes a number off the front of `bytes`, which has it.
template <typename T>
T Take(std::string_view& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  bytes.remove_prefix(sizeof(T));
  return static_cast<T>(value);
}

const LengthFieldEncoder& Encoder() {
  static const LengthFieldEncoder encoder =
      LengthFieldEncoder::Create({.length_bytes = kLengthBytes}).value();
  return encoder;
}

}  // namespace

Move InsideTheWorld(Move move) {
  move.x = std::clamp(move.x, 0, kWorldSize - 1);
  move.y = std::clamp(move.y, 0, kWorldSize - 1);
  return move;
}

LengthFieldDecoder MakeDecoder() {
  LengthFieldOptions options;
  options.max_frame = kMaxPacket;
  options.length_bytes = kLengthBytes;
  options.strip = kLengthBytes;
  return LengthFieldDecoder::Create(options).value();
}

std::optional<Packet> ParsePacket(std::string_view frame) {
  if (frame.size() < sizeof(Command)) return std::nullopt;
  const auto command = static_cast<Command>(Take<uint16_t>(frame));
  return Packet{.command = command, .body = frame};
}

std::optional<std::string_view> ParseLogin(std::string_view body) {
  if (body.empty() || body.size() > kMaxName) return std::nullopt;
  return body;
}

std::optional<uint32_t> ParseLoggedIn(std::string_view body) {
  if (body.size() != sizeof(uint32_t)) return std::nullopt;
  return Take<uint32_t>(body);
}

std::optional<Move> ParseMove(std::string_view body) {
  if (body.size() != kMoveBytes) return std::nullopt;
  Move move;
  move.sequence = Take<uint32_t>(body);
  move.x = Take<int32_t>(body);
  move.y = Take<int32_t>(body);
  move.sent_at = Take<uint64_t>(body);
  return move;
}

std::optional<Refusal> ParseRefused(std::string_view body) {
  if (body.size() != kRefusedBytes) return std::nullopt;
  Refusal refusal;
  refusal.command = static_cast<Command>(Take<uint16_t>(body));
  refusal.why = static_cast<Why>(Take<uint16_t>(body));
  return refusal;
}

template <typename T>
void Payload::Add(T number) {
  const auto value = static_cast<std::make_unsigned_t<T>>(number);
  for (size_t i = sizeof(T); i-- > 0;) {
    bytes_[size_++] = static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
  }
}

Payload Payload::Login(std::string_view name) {
  Payload payload(Command::kLogin);
  const size_t n = std::min(name.size(), kMaxName);
  std::copy_n(name.data(), n, payload.bytes_.data() + payload.size_);
  payload.size_ += n;
  return payload;
}

Payload Payload::LoggedIn(uint32_t player) {
  Payload payload(Command::kLoggedIn);
  payload.Add(player);
  return payload;
}

Payload Payload::MoveOf(Command move_or_moved, const Move& move) {
  Payload payload(move_or_moved);
  payload.Add(move.sequence);
  payload.Add(move.x);
  payload.Add(move.y);
  payload.Add(move.sent_at);
  return payload;
}

Payload Payload::Refused(Command command, Why why) {
  Payload payload(Command::kRefused);
  payload.Add(static_cast<uint16_t>(command));
  payload.Add(static_cast<uint16_t>(why));
  return payload;
}

absl::Status Send(Connection& c, const Payload& payload) {
  // A payload is far below what 2 bytes can say.
  const FrameHeader header = Encoder().Header(payload.bytes().size()).value();
  const std::string_view pieces[] = {header.view(), payload.bytes()};
  return c.Write(pieces);
}

std::string Framed(const Payload& payload) {
  std::string bytes;
  Encoder().Encode(payload.bytes(), &bytes).IgnoreError();  // as in Send
  return bytes;
}

}  // namespace sluice::gateway
