#include "examples/push_load/messages.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::push {
namespace {

constexpr size_t kDigits = Messages::kLeastBytes - 1;

// "abc...zabc...", long enough to begin anywhere in it.
std::string Alphabet(size_t letters) {
  std::string text;
  for (size_t i = 0; i < letters + 26; ++i) {
    text.push_back(static_cast<char>('a' + i % 26));
  }
  return text;
}

}  // namespace

Messages::Messages(const std::string& topic, size_t bytes)
    : pub_(absl::StrCat("PUB ", topic, " ")),
      msg_(absl::StrCat("MSG ", topic, " ")),
      letters_(bytes - kLeastBytes),
      alphabet_(Alphabet(letters_)) {}

std::string_view Messages::Letters(uint32_t number) const {
  return std::string_view(alphabet_).substr(number % 26, letters_);
}

std::string Messages::PubLine(uint32_t number) const {
  return absl::StrFormat("%s%010d ", pub_, number).append(Letters(number));
}

std::optional<uint32_t> Messages::Parse(std::string_view msg_line) const {
  if (msg_line.size() != msg_.size() + kLeastBytes + letters_ ||
      !msg_line.starts_with(msg_)) {
    return std::nullopt;
  }
  const std::string_view text = msg_line.substr(msg_.size());
  uint32_t number = 0;
  const char* const end = text.data() + kDigits;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || *end != ' ' ||
      text.substr(kLeastBytes) != Letters(number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace sluice::push
