#include "reactor/buffer_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "reactor/buffer_budget.h"
#include "reactor/internal/mutex.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_ASAN 1
#endif
#endif

#ifdef SLUICE_ASAN
#include <sanitizer/asan_interface.h>
#define SLUICE_POISON(data, size) ASAN_POISON_MEMORY_REGION(data, size)
#define SLUICE_UNPOISON(data, size) ASAN_UNPOISON_MEMORY_REGION(data, size)
#else
#define SLUICE_POISON(data, size) static_cast<void>(0)
#define SLUICE_UNPOISON(data, size) static_cast<void>(0)
#endif

namespace sluice {
namespace {

constexpr size_t kSpan = size_t{1} << 20;
// Classes up to this size are carved from spans; a larger block is a mapping.
constexpr size_t kLargestCarved = size_t{64} << 10;

// The smallest class that holds `bytes`; kClasses.size() if none does.
size_t ClassFor(size_t bytes) {
  size_t i = 0;
  while (i < BufferPool::kClasses.size() && BufferPool::kClasses[i] < bytes) {
    ++i;
  }
  return i;
}

[[noreturn]] void DieNoMemory(size_t bytes, int error) {
  std::fprintf(stderr, "sluice: BufferPool: no memory for %zu bytes: %s\n",
               bytes, std::strerror(error));
  std::abort();
}

char* Map(size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) DieNoMemory(bytes, errno);
  return static_cast<char*>(p);
}

void Unmap(char* data, size_t bytes) {
  // The shadow outlives the mapping: whoever gets the addresses next would
  // find them poisoned.
  SLUICE_UNPOISON(data, bytes);
  ::munmap(data, bytes);
}

// For what is handed out in parts. Neighbouring mappings become one area to the
// kernel, where a huge page would make memory of blocks nobody asked for. A
// kernel without huge pages answers EINVAL, which is as good.
char* MapWithoutHugePages(size_t bytes) {
  char* data = Map(bytes);
  ::madvise(data, bytes, MADV_NOHUGEPAGE);
  return data;
}

size_t RoundUpToPage(size_t bytes) {
  static const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX - page) DieNoMemory(bytes, ENOMEM);
  return (bytes + page - 1) / page * page;
}

template <typename T>
void ShrinkAfterBurst(std::vector<T>& v) {
  if (v.capacity() > 256 && v.size() < v.capacity() / 4) v.shrink_to_fit();
}

}  // namespace

struct BufferPool::Rep {
  struct Block {
    char* data;
    size_t size_class;
  };

  // Free blocks of one size. The lists lie beside the blocks, not in them: a
  // link in a cold block would make its page resident.
  struct FreeList {
    std::vector<char*> warm;  // hold memory; the newest last
    std::vector<char*> cold;  // addresses only; the next to use last
  };

  explicit Rep(size_t keep_bytes)
      : keep(keep_bytes), owner(std::this_thread::get_id()) {}

  void CheckOwner(const char* method) const {
    const std::thread::id mine = std::this_thread::get_id();
    const std::thread::id its = owner.load(std::memory_order_relaxed);
    if (mine == its) [[likely]] {
      return;
    }
    std::ostringstream text;
    text << "sluice: BufferPool::" << method << " on thread " << mine
         << ", but the pool belongs to thread " << its << "\n";
    std::fputs(text.str().c_str(), stderr);
    std::abort();
  }

  void TakeRemote() SLUICE_EXCLUDES(mutex) {
    // Acquire is not needed: the lock orders what matters. A flag seen late
    // only means that the blocks are picked up by the next call.
    if (!has_remote.load(std::memory_order_relaxed)) return;
    {
      internal::MutexLock lock(mutex);
      taken.swap(remote);
      has_remote.store(false, std::memory_order_relaxed);
    }
    for (const Block& b : taken) lists[b.size_class].warm.push_back(b.data);
    taken.clear();
  }

  // Cold blocks of class i from a new span.
  void Carve(size_t i) {
    char* span = MapWithoutHugePages(kSpan);
    SLUICE_POISON(span, kSpan);
    spans.push_back(span);
    for (size_t offset = kSpan; offset > 0; offset -= kClasses[i]) {
      lists[i].cold.push_back(span + offset - kClasses[i]);
    }
  }

  size_t WarmBytes() const {
    size_t sum = 0;
    for (size_t i = 0; i < kClasses.size(); ++i) {
      sum += lists[i].warm.size() * kClasses[i];
    }
    return sum;
  }

  // Gives up the memory of the `count` blocks of class i that were free for
  // the longest time.
  void Chill(size_t i, size_t count) {
    std::vector<char*>& warm = lists[i].warm;
    const size_t size = kClasses[i];
    const auto end = warm.begin() + static_cast<std::ptrdiff_t>(count);
    if (size > kLargestCarved) {
      std::for_each(warm.begin(), end, [&](char* d) { Unmap(d, size); });
    } else {
      // Neighbours go in one call: a quarter of the price of one each. The
      // descending order makes the lowest address the next one to be used.
      std::sort(warm.begin(), end, std::greater<>());
      for (auto it = warm.begin(); it != end;) {
        auto run = it + 1;
        while (run != end && *run == *(run - 1) - size) ++run;
        ::madvise(*(run - 1), static_cast<size_t>(run - it) * size,
                  MADV_DONTNEED);
        it = run;
      }
      lists[i].cold.insert(lists[i].cold.end(), warm.begin(), end);
    }
    warm.erase(warm.begin(), end);
    ShrinkAfterBurst(warm);
  }

  const size_t keep;
  std::atomic<std::thread::id> owner;
  std::array<FreeList, kClasses.size()> lists;
  std::vector<char*> spans;
  std::vector<Block> taken;  // empty between calls

  std::atomic<bool> has_remote{false};
  internal::Mutex mutex;
  // Released on other threads, not yet picked up.
  std::vector<Block> remote SLUICE_GUARDED_BY(mutex);
};

void Buffer::Release() {
  if (data_ == nullptr) return;
  BufferPool* pool = std::exchange(pool_, nullptr);
  char* data = std::exchange(data_, nullptr);
  pool->Return(data, std::exchange(capacity_, 0));
}

BufferPool::BufferPool(size_t keep_bytes, BufferBudget* budget)
    : rep_(std::make_unique<Rep>(keep_bytes)), budget_(budget) {}

BufferPool::~BufferPool() {
  {
    // The lock waits for a release on another thread to let go of the pool.
    internal::MutexLock lock(rep_->mutex);
    const size_t out = outstanding_.load(std::memory_order_acquire);
    if (out != 0) {
      std::fprintf(stderr,
                   "sluice: BufferPool destroyed while %zu bytes of its "
                   "buffers are in use\n",
                   out);
      std::abort();
    }
  }
  rep_->TakeRemote();
  for (size_t i = 0; i < kClasses.size(); ++i) {
    if (kClasses[i] <= kLargestCarved) continue;
    for (char* data : rep_->lists[i].warm) Unmap(data, kClasses[i]);
  }
  for (char* span : rep_->spans) Unmap(span, kSpan);
}

void BufferPool::BindToThisThread() {
  rep_->owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

Buffer BufferPool::Allocate(size_t bytes) {
  Rep& rep = *rep_;
  rep.CheckOwner("Allocate");
  rep.TakeRemote();
  const size_t i = ClassFor(bytes);
  if (i == kClasses.size()) {
    const size_t size = RoundUpToPage(bytes);
    char* data = Map(size);
    if (budget_ != nullptr) budget_->Add(size);
    outstanding_.fetch_add(size, std::memory_order_relaxed);
    return Buffer(this, data, size);
  }
  const size_t size = kClasses[i];
  Rep::FreeList& list = rep.lists[i];
  char* data;
  if (!list.warm.empty()) {
    data = list.warm.back();
    list.warm.pop_back();
    cached_.fetch_sub(size, std::memory_order_relaxed);
  } else if (size > kLargestCarved) {
    data = MapWithoutHugePages(size);
  } else {
    if (list.cold.empty()) rep.Carve(i);
    data = list.cold.back();
    list.cold.pop_back();
  }
  SLUICE_UNPOISON(data, size);
  if (budget_ != nullptr) budget_->Add(size);
  outstanding_.fetch_add(size, std::memory_order_relaxed);
  return Buffer(this, data, size);
}

void BufferPool::Return(char* data, size_t capacity) {
  Rep& rep = *rep_;
  const size_t i = ClassFor(capacity);
  // First: when the count of the pool is 0 it may die.
  if (budget_ != nullptr) budget_->Subtract(capacity);
  if (i == kClasses.size()) {
    Unmap(data, capacity);
    // Last: when the count is 0 the pool may die.
    outstanding_.fetch_sub(capacity, std::memory_order_release);
    return;
  }
  SLUICE_POISON(data, capacity);
  if (rep.owner.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    rep.lists[i].warm.push_back(data);
    cached_.fetch_add(capacity, std::memory_order_relaxed);
    outstanding_.fetch_sub(capacity, std::memory_order_relaxed);
    return;
  }
  internal::MutexLock lock(rep.mutex);
  rep.remote.push_back({data, i});
  rep.has_remote.store(true, std::memory_order_relaxed);
  cached_.fetch_add(capacity, std::memory_order_relaxed);
  outstanding_.fetch_sub(capacity, std::memory_order_relaxed);
}

bool BufferPool::wants_trim() const { return cached_bytes() > rep_->keep; }

void BufferPool::Trim() {
  Rep& rep = *rep_;
  rep.CheckOwner("Trim");
  rep.TakeRemote();
  const size_t before = rep.WarmBytes();
  if (before <= rep.keep) return;
  size_t excess = before - rep.keep;
  // Large blocks first, but none that is larger than what has to go ...
  for (size_t i = kClasses.size(); i-- > 0;) {
    const size_t count =
        std::min(rep.lists[i].warm.size(), excess / kClasses[i]);
    if (count > 0) rep.Chill(i, count);
    excess -= count * kClasses[i];
  }
  // ... and if that was not enough, the smallest one there is: a class that
  // still has blocks has them larger than the rest of the excess.
  for (size_t i = 0; i < kClasses.size() && excess > 0; ++i) {
    if (rep.lists[i].warm.empty()) continue;
    rep.Chill(i, 1);
    excess = 0;
  }
  cached_.fetch_sub(before - rep.WarmBytes(), std::memory_order_relaxed);
  ShrinkAfterBurst(rep.taken);
}

}  // namespace sluice
