// Internal: feeds a decoder as a stream does, and writes down what comes out.
#ifndef SLUICE_TEST_CODEC_FEED_H_
#define SLUICE_TEST_CODEC_FEED_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "codec/decode_result.h"
#include "codec/decode_state.h"

namespace sluice::test {

// "frame <bytes>" or "error <text>", in order.
using Events = std::vector<std::string>;

inline std::string FrameEvent(std::string_view frame) {
  return "frame " + std::string(frame);
}
inline std::string ErrorEvent(const DecodeFault& fault) {
  return "error " + fault.ToStatus().ToString();
}
inline bool IsError(const std::string& event) {
  return event.compare(0, 6, "error ") == 0;
}

// No GoogleTest here: fuzz targets use this too, and end by the exception.
inline void Require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// One stream. Whatever a decoder promises of each answer is checked, and the
// input is a block of exactly its size at a new address for each read, so that
// AddressSanitizer sees a look beyond its end or back into an earlier one.
template <typename Decoder>
class Stream {
 public:
  explicit Stream(const Decoder& decoder) : decoder_(decoder) {}

  void Feed(std::string_view bytes) {
    pending_ += bytes;
    const auto block = std::make_unique<char[]>(pending_.size());
    std::copy(pending_.begin(), pending_.end(), block.get());
    std::string_view input(block.get(), pending_.size());
    while (Step(&input)) {
    }
    pending_ = std::string(input);
  }

  const Events& events() const { return events_; }
  const DecodeState& state() const { return state_; }
  // What the decoder has left there for later.
  const std::string& pending() const { return pending_; }

 private:
  // False: there is no more to be had.
  bool Step(std::string_view* input) {
    const bool had_failed = state_.failed();
    const DecodeResult result = decoder_.Decode(*input, state_);
    Require(result.consumed <= input->size(), "consumed more than there is");
    switch (result.code) {
      case DecodeCode::kNeedMore: {
        input->remove_prefix(result.consumed);
        DecodeState again = state_;
        const DecodeResult same = decoder_.Decode(*input, again);
        Require(same.code == DecodeCode::kNeedMore && same.consumed == 0,
                "kNeedMore, but there was more to be had");
        return false;
      }
      case DecodeCode::kFrame:
        Require(result.consumed > 0, "a frame of nothing");
        Require(result.frame.data() >= input->data() &&
                    result.frame.data() + result.frame.size() <=
                        input->data() + result.consumed,
                "the frame is not a part of what was consumed");
        events_.push_back(FrameEvent(result.frame));
        break;
      case DecodeCode::kError:
        Require(!result.fault.ToStatus().ok(), "an error without a reason");
        Require(result.fault == state_.fault, "two reasons");
        Require(result.fault.error == DecodeError::kTooLong || state_.failed(),
                "went on after a corrupt frame");
        if (state_.failed()) {
          Require(result.consumed == input->size(), "kept what is of no use");
        }
        if (!had_failed) events_.push_back(ErrorEvent(result.fault));
        if (had_failed) {
          Require(ErrorEvent(result.fault) == events_.back(),
                  "the error that stays has changed");
          return false;
        }
        break;
    }
    input->remove_prefix(result.consumed);
    return true;
  }

  const Decoder& decoder_;
  DecodeState state_;
  std::string pending_;
  Events events_;
};

// Of one stream that arrives in these pieces.
template <typename Decoder>
Events Decode(const Decoder& decoder,
              const std::vector<std::string_view>& pieces) {
  Stream<Decoder> stream(decoder);
  for (const std::string_view piece : pieces) stream.Feed(piece);
  return stream.events();
}

template <typename Decoder>
Events DecodeWhole(const Decoder& decoder, std::string_view bytes) {
  return Decode(decoder, {bytes});
}

template <typename Decoder>
Events DecodeByteByByte(const Decoder& decoder, std::string_view bytes) {
  Stream<Decoder> stream(decoder);
  for (size_t i = 0; i < bytes.size(); ++i) stream.Feed(bytes.substr(i, 1));
  return stream.events();
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_CODEC_FEED_H_
