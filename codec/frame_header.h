// Public header: the bytes in front of a payload.
#ifndef SLUICE_CODEC_FRAME_HEADER_H_
#define SLUICE_CODEC_FRAME_HEADER_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

// What an encoder puts in front of a payload, so that both can be sent without
// copying the payload:
//
//   absl::StatusOr<FrameHeader> header = encoder.Header(payload.size());
//   const std::string_view pieces[] = {header->view(), payload};
//   connection.Write(pieces);
struct FrameHeader {
  std::array<char, 8> bytes = {};
  uint8_t size = 0;

  // Good while this object lives.
  std::string_view view() const { return {bytes.data(), size}; }
};

}  // namespace sluice

#endif  // SLUICE_CODEC_FRAME_HEADER_H_
