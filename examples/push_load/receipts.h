// push_load: when each message was received, by whom first and by whom last.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_RECEIPTS_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_RECEIPTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice::push {

// Thread: one.
class Receipts {
 public:
  struct Of {
    uint64_t count = 0;
    int64_t first = 0;  // nanoseconds
    int64_t last = 0;
  };

  explicit Receipts(uint32_t messages) : messages_(messages) {}

  void Received(uint32_t number, int64_t now) {
    Add(number, {.count = 1, .first = now, .last = now});
  }
  void Merge(const Receipts& other) {
    for (uint32_t i = 0; i < other.messages_.size(); ++i) {
      Add(i, other.messages_[i]);
    }
  }
  const std::vector<Of>& messages() const { return messages_; }

 private:
  void Add(uint32_t number, const Of& add) {
    if (add.count == 0) return;
    Of& of = messages_[number];
    of.first = of.count == 0 ? add.first : std::min(of.first, add.first);
    of.last = of.count == 0 ? add.last : std::max(of.last, add.last);
    of.count += add.count;
  }

  std::vector<Of> messages_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_RECEIPTS_H_
