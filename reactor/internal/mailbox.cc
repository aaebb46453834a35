#include "reactor/internal/mailbox.h"

#include <unistd.h>

#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/connection_slab.h"

namespace sluice::internal {
namespace {

thread_local Mailbox* current_mailbox = nullptr;

// Opens so far; what it was when this thread left the process's table.
std::atomic<uint64_t> opens{0};
thread_local uint64_t opens_in_my_table = UINT64_MAX;

// Never destroyed: a thread may still hold a ref while statics are torn down.
struct Retired {
  Mutex mutex;
  std::vector<Mailbox*> mailboxes SLUICE_GUARDED_BY(mutex);
};
Retired& RetiredMailboxes() {
  static Retired* retired = new Retired;
  return *retired;
}

// A vector keeps its room for the next burst, but not the room of an
// extraordinary one for ever.
template <typename T>
void Swap(std::vector<T>* full, std::vector<T>* empty) {
  constexpr size_t kKeep = 4096;
  SLUICE_CHECK(empty->empty(), "a batch was not finished");
  if (empty->capacity() > kKeep && full->size() < kKeep) {
    std::vector<T>().swap(*empty);
  }
  full->swap(*empty);
}

}  // namespace

void Mailbox::NoteOwnTable() { opens_in_my_table = opens.load(); }

Mailbox* Mailbox::Current() { return current_mailbox; }
void Mailbox::SetCurrent(Mailbox* mailbox) { current_mailbox = mailbox; }

Mailbox* Mailbox::Acquire() {
  Retired& retired = RetiredMailboxes();
  MutexLock lock(retired.mutex);
  if (retired.mailboxes.empty()) return new Mailbox;
  Mailbox* mailbox = retired.mailboxes.back();
  retired.mailboxes.pop_back();
  return mailbox;
}

void Mailbox::GiveBack(Mailbox* mailbox) {
  Retired& retired = RetiredMailboxes();
  MutexLock lock(retired.mutex);
  retired.mailboxes.push_back(mailbox);
}

void Mailbox::Open(int wake_fd, const ConnectionSlab* slab) {
  MutexLock lock(mutex_);
  SLUICE_CHECK(!open_, "mailbox opened twice");
  open_ = true;
  opened_ = opens.fetch_add(1) + 1;
  wake_fd_ = wake_fd;
  slab_ = slab;
}

void Mailbox::WakeLocked(bool was_empty) {
  has_mail_.store(true, std::memory_order_release);
  // Under the lock: the reactor closes the mailbox before the descriptor, so
  // the number cannot have become somebody else's.
  if (was_empty && current_mailbox != this) {
    const uint64_t one = 1;
    // It fails only if the counter is full, and then the loop is awake.
    [[maybe_unused]] ssize_t n = ::write(wake_fd_, &one, sizeof(one));
  }
}

absl::Status Mailbox::PostLocked(Task& task) {
  if (!open_) return absl::UnavailableError("the engine has stopped");
  if (opened_ > opens_in_my_table) {
    return absl::FailedPreconditionError(
        "this thread has a descriptor table of its own, older than the engine "
        "it posts to");
  }
  const bool was_empty = EmptyLocked();
  tasks_.push_back(std::move(task));
  WakeLocked(was_empty);
  return absl::OkStatus();
}

absl::Status Mailbox::Post(Task task) {
  MutexLock lock(mutex_);
  return PostLocked(task);
}

absl::Status Mailbox::PostFor(uint32_t slot, uint32_t generation, Task task) {
  MutexLock lock(mutex_);
  if (open_ && !slab_->IsCurrent(slot, generation)) {
    return absl::NotFoundError("the connection is gone");
  }
  return PostLocked(task);
}

bool Mailbox::PostSockets(std::span<const AcceptedSocket> sockets) {
  MutexLock lock(mutex_);
  if (!open_) return false;
  const bool was_empty = EmptyLocked();
  sockets_.insert(sockets_.end(), sockets.begin(), sockets.end());
  WakeLocked(was_empty);
  return true;
}

void Mailbox::Take(std::vector<Task>* tasks,
                   std::vector<AcceptedSocket>* sockets) {
  MutexLock lock(mutex_);
  Swap(&tasks_, tasks);
  Swap(&sockets_, sockets);
  has_mail_.store(false, std::memory_order_relaxed);
}

void Mailbox::Refuse() {
  MutexLock lock(mutex_);
  open_ = false;
  wake_fd_ = -1;
  slab_ = nullptr;
}

void Mailbox::Close() {
  Refuse();
  std::vector<Task> tasks;
  std::vector<AcceptedSocket> sockets;
  Take(&tasks, &sockets);
  for (const AcceptedSocket& socket : sockets) ::close(socket.fd);
}

}  // namespace sluice::internal
