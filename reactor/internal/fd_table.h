// Internal: tables of open files, and descriptors sent between them.
#ifndef SLUICE_REACTOR_INTERNAL_FD_TABLE_H_
#define SLUICE_REACTOR_INTERNAL_FD_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/internal/unique_fd.h"

namespace sluice::internal {

// The soft RLIMIT_NOFILE, after raising it to the hard one if `raise`.
size_t FdLimit(bool raise);

// Descriptors open in the calling thread's table (/proc/thread-self/fd); 0 if
// that cannot be read.
size_t OpenFds();

// Grows the calling thread's table to hold `count` descriptors now, at most the
// soft limit. A table that threads share stalls them for milliseconds each time
// it doubles later. Best effort.
void GrowFdTable(size_t count);

// Gives the calling thread a table of its own, a copy of what is open now, and
// closes `unwanted` in the copy (numbers that are not open there are skipped).
absl::Status UnshareFdTable(std::span<const int> unwanted);

// Moves descriptors between threads whose tables differ: SCM_RIGHTS over a Unix
// SOCK_SEQPACKET pair, up to 253 (SCM_MAX_FD, linux/net/scm.h) a message, each
// with a record of bytes beside it.
//
//   message:  | record 0 | record 1 | ... |   + SCM_RIGHTS { fd 0, fd 1, ... }
//
// The sender's end and the receiver's are used by one thread each.
class FdChannel {
 public:
  static constexpr size_t kMaxBatch = 253;

  // Non-blocking, close-on-exec, with room for several full messages.
  static absl::StatusOr<FdChannel> Create();

  // Sends all of `fds`, with `records` = fds.size() * record_size bytes. The
  // caller's copies stay open either way. fds.size() <= kMaxBatch, record_size
  // > 0; sending none is OK and sends nothing.
  // Unavailable: no room now, try again (nothing was sent). The socket becomes
  // writable (EPOLLOUT) when three quarters of its buffer are free; but a
  // process without CAP_SYS_RESOURCE is also told so when RLIMIT_NOFILE of its
  // user's descriptors are on their way (unix(7), ETOOMANYREFS), and then only
  // trying again tells. FailedPrecondition: the receiver has closed its end.
  absl::Status Send(std::span<const int> fds, const void* records,
                    size_t record_size);

  // Receives one message; fills `fds` (close-on-exec) and `records`, one for
  // each of `fds`. False: nothing there now. NotFound: the sender has closed
  // its end, and all was received. Descriptors that did not fit in this
  // thread's table are lost (their peers see a close) and added to *lost; their
  // records stand behind those of `fds`.
  absl::StatusOr<bool> Receive(std::vector<UniqueFd>* fds,
                               std::vector<char>* records, size_t record_size,
                               size_t* lost) {
    return ReceiveFrom(receive_.get(), fds, records, record_size, lost);
  }
  // The same by the number alone, for a thread whose table has a copy of it.
  static absl::StatusOr<bool> ReceiveFrom(int receive_fd,
                                          std::vector<UniqueFd>* fds,
                                          std::vector<char>* records,
                                          size_t record_size, size_t* lost);

  int send_fd() const { return send_.get(); }
  int receive_fd() const { return receive_.get(); }
  // The receiver sees the end behind what was sent, whoever else (a child of
  // fork(2), another table) still has a copy of the descriptor.
  void CloseSend();
  void CloseReceive() { receive_.Reset(); }

 private:
  UniqueFd send_;
  UniqueFd receive_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_FD_TABLE_H_
