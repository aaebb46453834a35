// Internal: what other threads want of a reactor.
#ifndef SLUICE_REACTOR_INTERNAL_MAILBOX_H_
#define SLUICE_REACTOR_INTERNAL_MAILBOX_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reactor/internal/accepted_socket.h"
#include "reactor/internal/mutex.h"
#include "reactor/reactor.h"

namespace sluice::internal {

class ConnectionSlab;

// Many producers, one consumer. The consumer swaps everything out under the
// lock and runs it outside; its eventfd is written only when the mailbox turns
// from empty to not empty, so a burst costs one wake-up.
//
// A mailbox is never freed: a ConnectionRef points to it for ever. When its
// reactor has ended it is closed, then handed to a later reactor. Generations
// go on counting across reactors, so an old ref fits no new connection.
// Thread: any, except where marked [loop].
class Mailbox {
 public:
  // A closed mailbox, from those given back or new.
  static Mailbox* Acquire();
  // The caller has closed it.
  static void GiveBack(Mailbox* mailbox);

  // Opens it for the reactor that sleeps on `wake_fd` (an eventfd that stays
  // open until Close, in every thread's table) and owns `slab`.
  void Open(int wake_fd, const ConnectionSlab* slab) SLUICE_EXCLUDES(mutex_);

  // Unavailable if closed; `task` is then destroyed without having run.
  absl::Status Post(Task task) SLUICE_EXCLUDES(mutex_);

  // The same for one connection: NotFound if it is gone already.
  absl::Status PostFor(uint32_t slot, uint32_t generation, Task task)
      SLUICE_EXCLUDES(mutex_);

  // False if closed: the descriptors still are the caller's.
  bool PostSockets(std::span<const AcceptedSocket> sockets)
      SLUICE_EXCLUDES(mutex_);

  // [loop] Is there mail? Cheap: no lock.
  bool HasMail() const { return has_mail_.load(std::memory_order_acquire); }

  // [loop] Moves all there is into the two empty vectors.
  void Take(std::vector<Task>* tasks, std::vector<AcceptedSocket>* sockets)
      SLUICE_EXCLUDES(mutex_);

  // From here on posts are Unavailable. What is in it may still be taken.
  void Refuse() SLUICE_EXCLUDES(mutex_);
  // Refuse, and drops what is in it (a reactor that never ran): tasks are
  // destroyed, descriptors closed.
  void Close() SLUICE_EXCLUDES(mutex_);

  // [loop] A number for the next connection; never 0.
  uint32_t NextGeneration() {
    if (++generation_ == 0) ++generation_;
    return generation_;
  }

  // This thread has just taken a table of open files of its own: it can wake
  // only mailboxes that were open before. Posts to later ones, whose eventfd is
  // not in its table, are FailedPrecondition from here on.
  static void NoteOwnTable();

  // The mailbox whose loop this thread runs, or nullptr. Its own posts need no
  // wake-up.
  static Mailbox* Current();
  static void SetCurrent(Mailbox* mailbox);

 private:
  Mailbox() = default;

  // Leaves `task` to the caller if it is not taken: it is destroyed outside of
  // the lock, since its destructor may post.
  absl::Status PostLocked(Task& task) SLUICE_REQUIRES(mutex_);
  void WakeLocked(bool was_empty) SLUICE_REQUIRES(mutex_);
  bool EmptyLocked() const SLUICE_REQUIRES(mutex_) {
    return tasks_.empty() && sockets_.empty();
  }

  uint32_t generation_ = 0;
  std::atomic<bool> has_mail_{false};
  Mutex mutex_;
  bool open_ SLUICE_GUARDED_BY(mutex_) = false;
  uint64_t opened_ SLUICE_GUARDED_BY(mutex_) = 0;  // order of the Opens
  int wake_fd_ SLUICE_GUARDED_BY(mutex_) = -1;
  const ConnectionSlab* slab_ SLUICE_GUARDED_BY(mutex_) = nullptr;
  std::vector<Task> tasks_ SLUICE_GUARDED_BY(mutex_);
  std::vector<AcceptedSocket> sockets_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_MAILBOX_H_
