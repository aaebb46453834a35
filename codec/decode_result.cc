#include "codec/decode_result.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

const char* Describe(CorruptReason reason) {
  switch (reason) {
    case CorruptReason::kNone:
      break;
    case CorruptReason::kLengthOverflow:
      return "more than 63 bits hold";
    case CorruptReason::kShorterThanHeader:
      return "so the frame would end inside its own header";
    case CorruptReason::kShorterThanStrip:
      return "so the frame has fewer bytes than are to be stripped";
    case CorruptReason::kVarintOverflow:
      return "more than a varint of 5 bytes and 32 bits holds";
  }
  return "of no use";
}

}  // namespace

absl::Status DecodeFault::ToStatus() const {
  switch (error) {
    case DecodeError::kNone:
      break;
    case DecodeError::kTooLong:
      if (length == 0) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "frame too long: more than max_frame, ", max_frame, " bytes"));
      }
      return absl::ResourceExhaustedError(absl::StrCat(
          "frame too long: ", length, " bytes, max_frame is ", max_frame));
    case DecodeError::kCorrupt:
      return absl::DataLossError(
          absl::StrCat("corrupt frame: the length received is ", length, ", ",
                       Describe(reason)));
    case DecodeError::kNoRoom:
      return absl::ResourceExhaustedError(
          absl::StrCat("frame too long: more than max_inbound, ", length,
                       " bytes, though max_frame is ", max_frame));
  }
  return absl::OkStatus();
}

}  // namespace sluice
