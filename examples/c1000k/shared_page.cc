#include "examples/c1000k/shared_page.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/status/status.h"

namespace sluice::c1000k {

absl::StatusOr<SharedMapping> SharedMapping::Create() {
  void* memory = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, "mmap of the page both processes share");
  }
  return SharedMapping(new (memory) SharedPage);
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

SharedMapping::~SharedMapping() {
  if (page_ != nullptr) munmap(page_, sizeof(SharedPage));
}

}  // namespace sluice::c1000k
