// Public header: frames that end with a line feed.
#ifndef SLUICE_CODEC_LINE_CODEC_H_
#define SLUICE_CODEC_LINE_CODEC_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"

namespace sluice {

struct LineOptions {
  // The longest line, without its LF or CR LF. From 1 to kHighestMaxFrame. Up
  // to this many bytes and a CR are kept while the LF is missing.
  size_t max_frame = kDefaultMaxFrame;
  // The frame is the line alone; false leaves LF or CR LF at its end.
  bool strip_delimiter = true;
  // A line that is too long is told as soon as that is certain; its length is
  // then not known. False: when its end was seen, with its length.
  bool fail_fast = true;
  WhenTooLong when_too_long = WhenTooLong::kCloseConnection;
};

// Lines, ended by LF or CR LF, mixed as they come. A CR anywhere else belongs
// to its line.
//
//   "GET a" CR LF "b" CR "c" LF LF  ->  |GET a|  |b CR c|  ||
//
//   strip_delimiter = false         ->  |GET a CR LF|  |b CR c LF|  |LF|
//
// The CR of a CR LF does not count towards max_frame, any other does. A CR at
// the end of what has arrived counts once the next byte shows that it is none
// of a CR LF: "ab" CR fits in max_frame 2 until a byte other than LF follows.
//
// Thread: any, several at once. Constant; copy it or share it.
class LineDecoder {
 public:
  static absl::StatusOr<LineDecoder> Create(const LineOptions& options = {});

  DecodeResult Decode(std::string_view input, DecodeState& state) const;
  size_t max_frame() const { return options_.max_frame; }

 private:
  explicit LineDecoder(const LineOptions& options) : options_(options) {}

  LineOptions options_;
};

struct LineEncoderOptions {
  bool crlf = false;  // end lines with CR LF instead of LF
};

// |abc|  ->  "abc" LF
//
// Thread: any, several at once.
class LineEncoder {
 public:
  explicit LineEncoder(const LineEncoderOptions& options = {})
      : end_(options.crlf ? "\r\n" : "\n") {}

  // Appends the frame. InvalidArgument, and nothing appended, if the decoder
  // would not give the payload back: it has an LF, or ends with a CR that would
  // make CR LF of the LF.
  absl::Status Encode(std::string_view payload, std::string* out) const;

  // What is to be sent behind the payload, for a gathering write. The same
  // errors.
  absl::StatusOr<std::string_view> Trailer(std::string_view payload) const;

 private:
  std::string_view end_;
};

}  // namespace sluice

#endif  // SLUICE_CODEC_LINE_CODEC_H_
