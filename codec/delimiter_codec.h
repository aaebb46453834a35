// Public header: frames that end with one of some byte strings.
#ifndef SLUICE_CODEC_DELIMITER_CODEC_H_
#define SLUICE_CODEC_DELIMITER_CODEC_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/decode_result.h"
#include "codec/decode_state.h"

namespace sluice {

namespace internal {
class DelimiterFinder;
}

// The bounds keep the work on one byte small whatever a peer sends.
inline constexpr size_t kMaxDelimiters = 16;
inline constexpr size_t kMaxDelimiterBytes = 256;

struct DelimiterOptions {
  // 1 to kMaxDelimiters strings of 1 to kMaxDelimiterBytes bytes, any bytes.
  // None may occur in another except at its end ("\n" and "\r\n" are fine, "\r"
  // and "\r\n" are not): which of the two ends a frame would hang on how the
  // bytes happen to arrive.
  std::vector<std::string> delimiters;
  // The longest frame, without its delimiter. From 1 to kHighestMaxFrame. Up to
  // this many bytes and an unfinished delimiter are kept.
  size_t max_frame = kDefaultMaxFrame;
  // The frame is what is in front of the delimiter; false leaves it at the end.
  bool strip_delimiter = true;
  // A frame that is too long is told as soon as that is certain; its length is
  // then not known. False: when its end was seen, with its length.
  bool fail_fast = true;
  WhenTooLong when_too_long = WhenTooLong::kCloseConnection;
};

// Frames, each ended by whichever delimiter gives the shortest frame.
//
//   delimiters {"$$", "\r\n", "\n"}
//
//   "ab$c$$" "de" CR LF "f" LF "$$"  ->  |ab$c|  |de|  |f|  ||
//
//   strip_delimiter = false          ->  |ab$c$$|  |de CR LF|  |f LF|  |$$|
//
// Thread: any, several at once. Constant; copy it or share it.
class DelimiterDecoder {
 public:
  static absl::StatusOr<DelimiterDecoder> Create(
      const DelimiterOptions& options);

  DecodeResult Decode(std::string_view input, DecodeState& state) const;
  size_t max_frame() const { return options_.max_frame; }

 private:
  explicit DelimiterDecoder(const DelimiterOptions& options);

  DelimiterOptions options_;
  std::shared_ptr<const internal::DelimiterFinder> finder_;
};

// Ends payloads with the first of the delimiters.
//
//   delimiters {"$$", "\n"}      |abc|  ->  "abc$$"
//
// Thread: any, several at once.
class DelimiterEncoder {
 public:
  // The same list as the decoder's, with the same demands.
  static absl::StatusOr<DelimiterEncoder> Create(
      std::vector<std::string> delimiters);

  // Appends the frame. InvalidArgument, and nothing appended, if the decoder
  // would not give the payload back: it contains a delimiter, or its end and
  // the delimiter behind it contain one.
  absl::Status Encode(std::string_view payload, std::string* out) const;

  // What is to be sent behind the payload, for a gathering write. Good while
  // the encoder lives. The same errors.
  absl::StatusOr<std::string_view> Trailer(std::string_view payload) const;

 private:
  explicit DelimiterEncoder(std::vector<std::string> delimiters);

  std::string delimiter_;
  std::shared_ptr<const internal::DelimiterFinder> finder_;
};

}  // namespace sluice

#endif  // SLUICE_CODEC_DELIMITER_CODEC_H_
