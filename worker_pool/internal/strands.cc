#include "worker_pool/internal/strands.h"

#include "absl/hash/hash.h"
#include "reactor/internal/check.h"

namespace sluice::internal {
namespace {

// A table would keep the room of an extraordinary burst for ever.
template <typename Table>
void ShrinkIfEmpty(Table& table) {
  constexpr size_t kKeep = 256;
  if (table.empty() && table.capacity() > kKeep) Table().swap(table);
}

}  // namespace

Strands::Shard& Strands::ShardOf(const ConnectionRef& ref) {
  // The map uses the low bits of the same hash.
  return shards_[(absl::HashOf(ref) >> 40) % shards_.size()];
}

bool Strands::Begin(std::unique_ptr<ConnectionJob>& job) noexcept {
  Shard& shard = ShardOf(job->ref());
  MutexLock lock(shard.mutex);
  if (shard.busy.insert(job->ref()).second) return true;
  ConnectionJob*& last = shard.waiting[job->ref()];
  ConnectionJob* added = job.release();
  if (last == nullptr) {
    added->next = added;
  } else {
    added->next = last->next;
    last->next = added;
  }
  last = added;
  return false;
}

std::unique_ptr<ConnectionJob> Strands::End(const ConnectionRef& ref) {
  Shard& shard = ShardOf(ref);
  MutexLock lock(shard.mutex);
  const auto line = shard.waiting.find(ref);
  if (line == shard.waiting.end()) {
    SLUICE_CHECK(shard.busy.erase(ref) == 1, "a job ended that did not begin");
    ShrinkIfEmpty(shard.busy);
    return nullptr;
  }
  ConnectionJob*& last = line->second;
  std::unique_ptr<ConnectionJob> next(last->next);
  if (next.get() == last) {
    shard.waiting.erase(line);
    ShrinkIfEmpty(shard.waiting);
  } else {
    last->next = next->next;
  }
  next->next = nullptr;
  return next;
}

}  // namespace sluice::internal
