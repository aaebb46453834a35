#include "codec/internal/delimiter_finder.h"

#include <algorithm>
#include <utility>

namespace sluice::internal {

DelimiterFinder::DelimiterFinder(std::vector<std::string> delimiters)
    : longest_first_(std::move(delimiters)) {
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [](const std::string& a, const std::string& b) {
                     return a.size() > b.size();
                   });
  for (const std::string& delimiter : longest_first_) {
    const char last = delimiter.back();
    if (last_bytes_.find(last) == std::string::npos) last_bytes_ += last;
  }
}

size_t DelimiterFinder::FindLastByte(std::string_view input,
                                     size_t from) const {
  if (last_bytes_.size() == 1) return input.find(last_bytes_[0], from);
  // For each in turn, as that is quicker than all at once; and in small blocks,
  // or one that never comes would be searched for in all of the input, and
  // again for each frame.
  constexpr size_t kBlock = 128;
  for (; from < input.size(); from += kBlock) {
    std::string_view block = input.substr(from, kBlock);
    bool found = false;
    for (const char last : last_bytes_) {
      const size_t at = block.find(last);
      if (at == std::string_view::npos) continue;
      block = block.substr(0, at);
      found = true;
    }
    if (found) return from + block.size();
  }
  return std::string_view::npos;
}

FrameEnd DelimiterFinder::Find(std::string_view input, size_t from) const {
  if (longest_first_.size() == 1) {
    const std::string& delimiter = longest_first_[0];
    const size_t at = input.find(delimiter, from - std::min(from, tail()));
    if (at == std::string_view::npos) return {};
    return {at, at + delimiter.size()};
  }
  for (size_t at = from;; ++at) {
    at = FindLastByte(input, at);
    if (at == std::string_view::npos) return {};
    const std::string_view seen = input.substr(0, at + 1);
    for (const std::string& delimiter : longest_first_) {
      if (delimiter.back() == seen.back() && seen.ends_with(delimiter)) {
        return {seen.size() - delimiter.size(), seen.size()};
      }
    }
  }
}

bool DelimiterFinder::MayFit(std::string_view input, size_t max_frame) const {
  // Some end of the input, not much shorter than what is too much, must be the
  // beginning of a delimiter.
  const size_t longest = std::min(tail(), input.size());
  for (size_t part = input.size() - max_frame; part <= longest; ++part) {
    const std::string_view end = input.substr(input.size() - part);
    for (const std::string& delimiter : longest_first_) {
      if (part < delimiter.size() && delimiter.starts_with(end)) return true;
    }
  }
  return false;
}

}  // namespace sluice::internal
