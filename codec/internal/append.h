// Internal: an encoder's Encode, given what goes around the payload.
#ifndef SLUICE_CODEC_INTERNAL_APPEND_H_
#define SLUICE_CODEC_INTERNAL_APPEND_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/frame_header.h"

namespace sluice::internal {

inline absl::Status AppendWithHeader(const absl::StatusOr<FrameHeader>& header,
                                     std::string_view payload,
                                     std::string* out) {
  if (!header.ok()) return header.status();
  out->append(header->view()).append(payload);
  return absl::OkStatus();
}

inline absl::Status AppendWithTrailer(
    std::string_view payload, const absl::StatusOr<std::string_view>& trailer,
    std::string* out) {
  if (!trailer.ok()) return trailer.status();
  out->append(payload).append(*trailer);
  return absl::OkStatus();
}

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_APPEND_H_
