// Internal: the first of several delimiters.
#ifndef SLUICE_CODEC_INTERNAL_DELIMITER_FINDER_H_
#define SLUICE_CODEC_INTERNAL_DELIMITER_FINDER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "codec/internal/delimited.h"

namespace sluice::internal {

// Of delimiters none of which occurs in another except at its end. Then the one
// that ends first also gives the shortest frame, and of those that end together
// the longest does, so that a byte decides once and for all when it is seen.
class DelimiterFinder {
 public:
  // At least one; none empty.
  explicit DelimiterFinder(std::vector<std::string> delimiters);

  FrameEnd Find(std::string_view input, size_t from) const;
  size_t tail() const { return longest_first_.front().size() - 1; }
  bool MayFit(std::string_view input, size_t max_frame) const;

 private:
  size_t FindLastByte(std::string_view input, size_t from) const;

  std::vector<std::string> longest_first_;
  std::string last_bytes_;  // of the delimiters, each once
};

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_DELIMITER_FINDER_H_
