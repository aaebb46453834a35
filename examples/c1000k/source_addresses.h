// c1000k: the addresses the client dials from.
#ifndef SLUICE_EXAMPLES_C1000K_SOURCE_ADDRESSES_H_
#define SLUICE_EXAMPLES_C1000K_SOURCE_ADDRESSES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::c1000k {

// connect(2) finds a free port quickly until half of the range is taken; then
// it looks through the rest, hundreds of times slower. So at most half of the
// range, and no more than this, is used of one address.
inline constexpr uint64_t kMostPerSource = 10'000;

// 127.0.0.2, 127.0.0.3, ... 127.0.0.254, 127.0.1.1, ... 127.0.255.254: all of
// 127.0.0.0/8 is local without any setup. .0 and .255 are left out, as they
// look like a network and a broadcast address, and 127.0.0.1 is the server.
inline constexpr size_t kMaxSources = 256 * 254 - 1;

// The address with this number, 0 <= index < kMaxSources.
std::string SourceAddress(size_t index);

// Deals out sources: each `per_source` times, in order.
//
// A dial that found no port free on its source ends that source for good, and
// the dial is made again from the next one. All dials together, repeated ones
// too, are at most sources x per_source, so a machine without ports ends in a
// count of failures and never in a storm of attempts.
class SourcePicker {
 public:
  SourcePicker(size_t sources, uint64_t per_source)
      : sources_(sources), per_source_(per_source) {}

  // The source of the next dial; nullopt when all are used up.
  std::optional<size_t> Next();

  // No port was free on `source`. True the first time it is told of it.
  bool Exhausted(size_t source);

 private:
  size_t sources_;
  uint64_t per_source_;
  size_t current_ = 0;
  uint64_t used_ = 0;  // of the current one
  std::vector<bool> exhausted_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SOURCE_ADDRESSES_H_
