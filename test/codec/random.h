// Internal: random choices that come again with the same seed.
#ifndef SLUICE_TEST_CODEC_RANDOM_H_
#define SLUICE_TEST_CODEC_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "codec/decode_result.h"

namespace sluice::test {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int Between(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine_);
  }
  bool Bool() { return Between(0, 1) == 1; }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Between(0, static_cast<int>(choices.size()) - 1)];
  }
  // 1 to `most` of these letters.
  std::string Text(std::string_view letters, int most) {
    std::string text(static_cast<size_t>(Between(1, most)), '\0');
    for (char& c : text) {
      c = letters[static_cast<size_t>(
          Between(0, static_cast<int>(letters.size()) - 1))];
    }
    return text;
  }
  // Any bytes.
  std::string Any(size_t size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(Between(0, 255));
    return bytes;
  }
  // `bytes` cut anywhere, mostly into small pieces, some of them empty.
  std::vector<std::string_view> Pieces(std::string_view bytes) {
    std::vector<std::string_view> pieces;
    const int most = Pick({1, 3, 10, 100});
    while (!bytes.empty()) {
      pieces.push_back(bytes.substr(0, static_cast<size_t>(Between(0, most))));
      bytes.remove_prefix(pieces.back().size());
    }
    return pieces;
  }

 private:
  std::mt19937 engine_;
};

// The options that most decoders share. Bounds are small, to be met often.
template <typename Options>
void RandomRules(Random& random, Options* options) {
  options->max_frame = static_cast<size_t>(random.Between(1, 16));
  options->fail_fast = random.Bool();
  options->when_too_long =
      random.Pick({WhenTooLong::kCloseConnection, WhenTooLong::kSkipFrame});
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_CODEC_RANDOM_H_
