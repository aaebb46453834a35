// push_load: what is published, and how it is known again.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_MESSAGES_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::push {

// Message n is the number n and letters that depend on it: one that is cut,
// mixed with another or not what was sent is none.
// Thread: any, several at once.
class Messages {
 public:
  // The number and a space.
  static constexpr size_t kLeastBytes = 11;

  // `bytes` of text in each, at least kLeastBytes.
  Messages(const std::string& topic, size_t bytes);

  std::string PubLine(uint32_t number) const;  // without LF
  // The number, if the line is that message, byte for byte, as push sends it.
  std::optional<uint32_t> Parse(std::string_view msg_line) const;

 private:
  std::string_view Letters(uint32_t number) const;

  const std::string pub_;  // "PUB topic "
  const std::string msg_;  // "MSG topic "
  const size_t letters_;   // in each
  const std::string alphabet_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_MESSAGES_H_
