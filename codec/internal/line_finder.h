// Internal: the ends of lines.
#ifndef SLUICE_CODEC_INTERNAL_LINE_FINDER_H_
#define SLUICE_CODEC_INTERNAL_LINE_FINDER_H_

#include <cstddef>
#include <string_view>

#include "codec/internal/delimited.h"

namespace sluice::internal {

// LF, or CR LF.
struct LineFinder {
  FrameEnd Find(std::string_view input, size_t from) const {
    const size_t lf = input.find('\n', from);
    if (lf == std::string_view::npos) return {};
    const bool cr = lf > 0 && input[lf - 1] == '\r';
    return {lf - (cr ? 1 : 0), lf + 1};
  }
  size_t tail() const { return 1; }
  bool MayFit(std::string_view input, size_t max_frame) const {
    return input.size() == max_frame + 1 && input.back() == '\r';
  }
};

}  // namespace sluice::internal

#endif  // SLUICE_CODEC_INTERNAL_LINE_FINDER_H_
