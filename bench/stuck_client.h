// Internal: the client of slow_reader that does not read.
#ifndef SLUICE_BENCH_STUCK_CLIENT_H_
#define SLUICE_BENCH_STUCK_CLIENT_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// A connection to RunSlowReaderServer's other_port.
// Thread: one. Lifetime: the destructor resets it.
class StuckClient {
 public:
  static absl::StatusOr<std::unique_ptr<StuckClient>> Connect(uint16_t port);
  ~StuckClient();
  StuckClient(const StuckClient&) = delete;
  StuckClient& operator=(const StuckClient&) = delete;

  // From here on the server writes.
  absl::Status Ask();

  // When all has been measured: of the pieces that were offered, those that
  // were accepted are there, each of them whole and once, in their order, and
  // nothing else.
  absl::Status TakeAll(uint64_t accepted, uint64_t offered);

 private:
  explicit StuckClient(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_STUCK_CLIENT_H_
