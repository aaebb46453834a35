// Internal: the connections of one reactor, at addresses that never move.
#ifndef SLUICE_REACTOR_INTERNAL_CONNECTION_SLAB_H_
#define SLUICE_REACTOR_INTERNAL_CONNECTION_SLAB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "reactor/connection.h"

namespace sluice::internal {

class ReactorImpl;

// One reserved range of addresses, cut into chunks of 64 KiB:
//
//   chunk 0                          chunk 1
//   | owner | 1 | 2 | ... | 1023 |   | owner | 1025 | ... | 2047 |   ...
//
// A slot's number is its offset / 64, so slot and address follow from each
// other without a table, and the reactor of a connection is in the first slot
// of its chunk. Chunks become usable one after the other; one that has emptied
// gives its memory back (all but one, so that a connection that comes and goes
// at the border costs nothing). Given-back memory reads as zeros, generation 0
// is nobody's, so another thread may look at any slot at any time.
// Thread: the reactor's, except IsCurrent.
class ConnectionSlab {
 public:
  static constexpr uint32_t kSlotsPerChunk = 1024;
  static constexpr size_t kChunkBytes = kSlotsPerChunk * sizeof(Connection);

  ConnectionSlab() = default;
  ~ConnectionSlab();
  ConnectionSlab(const ConnectionSlab&) = delete;
  ConnectionSlab& operator=(const ConnectionSlab&) = delete;

  // Reserves addresses (not memory) for at least `connections`.
  absl::Status Reserve(ReactorImpl* owner, size_t connections);

  // A record with `generation` and all else zero; nullptr if full.
  Connection* Allocate(uint32_t generation);
  void Free(Connection* connection);

  // nullptr if the slot has another generation now.
  Connection* Find(uint32_t slot, uint32_t generation) {
    return IsCurrent(slot, generation) ? At(slot) : nullptr;
  }
  Connection* At(uint32_t slot) const { return base_ + slot; }
  uint32_t SlotOf(const Connection& connection) const {
    return static_cast<uint32_t>(&connection - base_);
  }

  // [any] Is this generation still in its slot?
  bool IsCurrent(uint32_t slot, uint32_t generation) const {
    return generation != 0 &&
           slot < usable_slots_.load(std::memory_order_acquire) &&
           At(slot)->generation_.load(std::memory_order_acquire) == generation;
  }

  // The first live connection at or after *slot, which is moved behind it;
  // nullptr at the end. For walks that are interrupted.
  Connection* NextLive(uint32_t* slot) const;

  static ReactorImpl& OwnerOf(const Connection& connection);

  uint32_t live() const { return live_; }
  // Bytes of chunks that hold memory now.
  size_t resident_bytes() const { return resident_chunks_ * kChunkBytes; }

 private:
  struct Chunk {
    uint32_t live = 0;
    uint32_t fresh = 1;  // slots from here on were never used
    uint32_t free = 0;   // head of a list through Connection::wheel_.next
    bool resident = false;
  };
  struct ChunkHeader;

  bool MakeResident(uint32_t chunk);
  void GiveBack(uint32_t chunk);

  Connection* base_ = nullptr;  // aligned to kChunkBytes
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  ReactorImpl* owner_ = nullptr;
  uint32_t max_chunks_ = 0;
  std::atomic<uint32_t> usable_slots_{0};
  uint32_t live_ = 0;
  size_t resident_chunks_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> with_room_;  // resident chunks; the last is used first
  std::vector<uint32_t> given_back_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_CONNECTION_SLAB_H_
