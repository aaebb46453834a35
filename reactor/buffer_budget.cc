#include "reactor/buffer_budget.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "reactor/buffer_pool.h"
#include "reactor/internal/mutex.h"
#include "reactor/reactor.h"

namespace sluice {

struct BufferBudget::Reactors {
  internal::Mutex mutex;
  std::vector<Reactor*> all SLUICE_GUARDED_BY(mutex);
};

BufferBudget::BufferBudget(BufferBudgetOptions options)
    : options_(options), reactors_(std::make_unique<Reactors>()) {}

BufferBudget::~BufferBudget() = default;

absl::StatusOr<std::shared_ptr<BufferBudget>> BufferBudget::Create(
    BufferBudgetOptions options) {
  constexpr size_t kLeast = BufferPool::kClasses.front();
  if (options.bytes < kLeast) {
    return absl::InvalidArgumentError(
        absl::StrCat("BufferBudgetOptions: bytes is ", options.bytes,
                     ": must be at least ", kLeast));
  }
  if (options.when_over > WhenOverBudget::kCloseWorst) {
    return absl::InvalidArgumentError(
        absl::StrCat("BufferBudgetOptions: when_over is ",
                     static_cast<int>(options.when_over),
                     ": must be one of its enumerators"));
  }
  return std::shared_ptr<BufferBudget>(new BufferBudget(options));
}

void BufferBudget::Look() {
  internal::MutexLock lock(reactors_->mutex);
  const bool before = exceeded_.load();
  bool now = before;
  // Again after each change: whoever crossed a mark before he could see it has
  // not come here.
  for (;;) {
    const size_t used = used_.load();
    const bool next = used > options_.bytes    ? true
                      : used <= resume_bytes() ? false
                                               : now;
    if (next == now) break;
    now = next;
    exceeded_.store(now);
  }
  // Those that read on, or close their worst, may be asleep. Each looks for
  // itself when it turns.
  const bool wake_on = options_.when_over == WhenOverBudget::kCloseWorst;
  if (now == before || now != wake_on) return;
  for (Reactor* reactor : reactors_->all) {
    // A reactor that has ended needs no waking.
    (void)reactor->Post([] {});
  }
}

void BufferBudget::Join(Reactor* reactor) {
  internal::MutexLock lock(reactors_->mutex);
  reactors_->all.push_back(reactor);
  joined_.store(reactors_->all.size());
}

void BufferBudget::Leave(Reactor* reactor) {
  internal::MutexLock lock(reactors_->mutex);
  std::erase(reactors_->all, reactor);
  joined_.store(reactors_->all.size());
}

}  // namespace sluice
