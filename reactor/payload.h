// Public header: bytes that many connections share.
#ifndef SLUICE_REACTOR_PAYLOAD_H_
#define SLUICE_REACTOR_PAYLOAD_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// Bytes that never change, with a count of those who hold them: encoded once,
// sent to many. A copy of a Payload is another holder, not a copy of the bytes.
// Thread: any; each Payload object one at a time, as a shared_ptr.
class Payload {
 public:
  Payload() = default;  // no bytes
  explicit Payload(std::string bytes)
      : bytes_(bytes.empty()
                   ? nullptr
                   : std::make_shared<const std::string>(std::move(bytes))) {}

  // Good as long as any holder lives.
  std::string_view view() const {
    return bytes_ == nullptr ? std::string_view() : std::string_view(*bytes_);
  }
  size_t size() const { return view().size(); }
  bool empty() const { return bytes_ == nullptr; }

 private:
  std::shared_ptr<const std::string> bytes_;
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_PAYLOAD_H_
