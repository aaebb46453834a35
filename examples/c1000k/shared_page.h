// c1000k: what the server tells the client process while it runs.
#ifndef SLUICE_EXAMPLES_C1000K_SHARED_PAGE_H_
#define SLUICE_EXAMPLES_C1000K_SHARED_PAGE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice::c1000k {

// One page that both processes map: made before the fork, written by the server
// only. The counters are on lines of their own, as its reactors all write them.
struct SharedPage {
  enum State : uint32_t { kStarting, kListening, kFailed, kStopped };
  std::atomic<uint32_t> state{kStarting};
  std::atomic<uint32_t> port{0};
  alignas(64) std::atomic<uint64_t> opened{0};  // OnOpen calls
  alignas(64) std::atomic<uint64_t> closed{0};  // OnClose calls
  alignas(64) char error[1024] = {};            // with kFailed

  uint64_t open() const {
    // closed first: a connection that opens in between must not count as -1.
    const uint64_t gone = closed.load(std::memory_order_acquire);
    return opened.load(std::memory_order_acquire) - gone;
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "works between processes only without a lock");

// Owns the mapping.
class SharedMapping {
 public:
  static absl::StatusOr<SharedMapping> Create();
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&&) = delete;
  ~SharedMapping();

  SharedPage* page() const { return page_; }

 private:
  explicit SharedMapping(SharedPage* page) : page_(page) {}
  SharedPage* page_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SHARED_PAGE_H_
