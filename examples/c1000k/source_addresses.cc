#include "examples/c1000k/source_addresses.h"

#include "absl/strings/str_cat.h"

namespace sluice::c1000k {

std::string SourceAddress(size_t index) {
  const size_t slot = index + 1;  // slot 0 is 127.0.0.1
  return absl::StrCat("127.0.", slot / 254, ".", slot % 254 + 1);
}

std::optional<size_t> SourcePicker::Next() {
  if (used_ >= per_source_) {
    ++current_;
    used_ = 0;
  }
  while (current_ < exhausted_.size() && exhausted_[current_]) {
    ++current_;
    used_ = 0;
  }
  if (current_ >= sources_ || per_source_ == 0) return std::nullopt;
  ++used_;
  return current_;
}

bool SourcePicker::Exhausted(size_t source) {
  if (source >= exhausted_.size()) exhausted_.resize(source + 1);
  if (exhausted_[source]) return false;
  exhausted_[source] = true;
  return true;
}

}  // namespace sluice::c1000k
