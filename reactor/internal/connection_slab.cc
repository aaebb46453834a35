#include "reactor/internal/connection_slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>

#include "reactor/internal/check.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {

// Lies where slot 0 of a chunk would; the first word is its "generation".
struct ConnectionSlab::ChunkHeader {
  std::atomic<uint32_t> generation;  // 0: no ref fits it
  ReactorImpl* owner;
};

ConnectionSlab::~ConnectionSlab() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

absl::Status ConnectionSlab::Reserve(ReactorImpl* owner, size_t connections) {
  static_assert(sizeof(ChunkHeader) <= sizeof(Connection));
  // 2^31 slots would still fit the timer wheel's links.
  constexpr size_t kMaxChunks = size_t{1} << 20;
  const size_t chunks =
      std::clamp<size_t>(connections / (kSlotsPerChunk - 1) + 1, 1, kMaxChunks);
  const size_t bytes = (chunks + 1) * kChunkBytes;  // one more to align
  void* mapping = mmap(nullptr, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return ErrnoStatus(errno, "reserving " + std::to_string(bytes) +
                                  " bytes of addresses for connections");
  }
  // A huge page would make one connection cost 2 MiB.
  madvise(mapping, bytes, MADV_NOHUGEPAGE);
  const uintptr_t address = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = (address + kChunkBytes - 1) & ~(kChunkBytes - 1);
  mapping_ = mapping;
  mapping_bytes_ = bytes;
  base_ = reinterpret_cast<Connection*>(aligned);
  max_chunks_ = static_cast<uint32_t>(chunks);
  owner_ = owner;
  return absl::OkStatus();
}

bool ConnectionSlab::MakeResident(uint32_t chunk) {
  Connection* first = base_ + size_t{chunk} * kSlotsPerChunk;
  if (chunk == chunks_.size()) {
    if (mprotect(first, kChunkBytes, PROT_READ | PROT_WRITE) != 0) return false;
    chunks_.emplace_back();
    usable_slots_.store((chunk + 1) * kSlotsPerChunk,
                        std::memory_order_release);
  }
  auto* header = reinterpret_cast<ChunkHeader*>(first);
  header->owner = owner_;  // generation stays 0, which others may be reading
  chunks_[chunk].resident = true;
  ++resident_chunks_;
  with_room_.push_back(chunk);
  return true;
}

Connection* ConnectionSlab::Allocate(uint32_t generation) {
  if (with_room_.empty()) {
    uint32_t chunk;
    if (!given_back_.empty()) {
      chunk = given_back_.back();
      given_back_.pop_back();
    } else if (chunks_.size() < max_chunks_) {
      chunk = static_cast<uint32_t>(chunks_.size());
    } else {
      return nullptr;
    }
    if (!MakeResident(chunk)) return nullptr;
  }
  const uint32_t chunk_index = with_room_.back();
  Chunk& chunk = chunks_[chunk_index];
  uint32_t slot;
  if (chunk.free != 0) {
    slot = chunk.free;
    chunk.free = At(slot)->wheel_.next;
  } else {
    slot = chunk_index * kSlotsPerChunk + chunk.fresh++;
  }
  ++chunk.live;
  ++live_;
  if (chunk.free == 0 && chunk.fresh == kSlotsPerChunk) with_room_.pop_back();

  Connection* connection = At(slot);
  connection->fd_ = -1;
  connection->state_ = 0;
  connection->armed_ = 0;
  connection->flags_ = 0;
  connection->reason_ = CloseReason::kNone;
  connection->listener_ = 0;
  connection->error_ = 0;
  connection->activity_tick_ = 0;
  connection->idle_ticks_ = 0;
  connection->input_tick_ = 0;
  connection->wheel_ = WheelNode{};
  connection->peer_box_ = nullptr;
  connection->context_ = nullptr;
  connection->active_ = nullptr;
  connection->generation_.store(generation, std::memory_order_release);
  return connection;
}

void ConnectionSlab::Free(Connection* connection) {
  const uint32_t slot = SlotOf(*connection);
  const uint32_t chunk_index = slot / kSlotsPerChunk;
  Chunk& chunk = chunks_[chunk_index];
  connection->generation_.store(0, std::memory_order_release);
  const bool was_full = chunk.free == 0 && chunk.fresh == kSlotsPerChunk;
  connection->wheel_.next = chunk.free;
  chunk.free = slot;
  --chunk.live;
  --live_;
  if (was_full) with_room_.push_back(chunk_index);
  if (chunk.live == 0 && with_room_.size() > 1) GiveBack(chunk_index);
}

void ConnectionSlab::GiveBack(uint32_t chunk_index) {
  std::erase(with_room_, chunk_index);
  Chunk& chunk = chunks_[chunk_index];
  chunk = Chunk{};
  --resident_chunks_;
  madvise(base_ + size_t{chunk_index} * kSlotsPerChunk, kChunkBytes,
          MADV_DONTNEED);
  given_back_.push_back(chunk_index);
}

Connection* ConnectionSlab::NextLive(uint32_t* slot) const {
  const uint32_t end = usable_slots_.load(std::memory_order_relaxed);
  while (*slot < end) {
    const Chunk& chunk = chunks_[*slot / kSlotsPerChunk];
    if (chunk.live == 0) {  // also keeps given-back memory untouched
      *slot = (*slot / kSlotsPerChunk + 1) * kSlotsPerChunk;
      continue;
    }
    Connection* connection = At((*slot)++);
    if (connection->generation_.load(std::memory_order_relaxed) != 0) {
      return connection;
    }
  }
  return nullptr;
}

ReactorImpl& ConnectionSlab::OwnerOf(const Connection& connection) {
  const uintptr_t chunk =
      reinterpret_cast<uintptr_t>(&connection) & ~(kChunkBytes - 1);
  return *reinterpret_cast<const ChunkHeader*>(chunk)->owner;
}

}  // namespace sluice::internal
