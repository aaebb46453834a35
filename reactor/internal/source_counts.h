// Internal: how many connections each source address has.
#ifndef SLUICE_REACTOR_INTERNAL_SOURCE_COUNTS_H_
#define SLUICE_REACTOR_INTERNAL_SOURCE_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "reactor/internal/accepted_socket.h"
#include "reactor/internal/mutex.h"

namespace sluice::internal {

// What counts as one source: an IPv4 address, or the 64 bits of prefix of an
// IPv6 address, since that is the least a provider gives one customer, who can
// use any of the 2^64 addresses in it. Link-local neighbours, which all have
// the same prefix, count by their whole address and link.
struct Source {
  uint64_t high = 0;
  uint64_t low = 0;

  // Of a peer that is no Unix peer.
  static Source Of(const PeerName& peer);
  std::string ToString() const;  // "192.0.2.1", "2001:db8:1:2::/64"

  friend bool operator==(const Source&, const Source&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Source& s) {
    return H::combine(std::move(h), s.high, s.low);
  }
};

// Holds sources that have a connection, and no others. Sharded, so that one
// table that grows does not hold all acceptors up.
// Thread: any.
class SourceCounts {
 public:
  enum class Answer { kTaken, kSourceFull, kRefused };

  explicit SourceCounts(size_t most) : most_(most) {}

  // Counts one more connection if the source has fewer than the most and
  // `admit` says yes as well. It is asked last and nothing is undone
  // afterwards, so that nobody is refused because of a connection that comes
  // to nothing.
  Answer TryTake(const Source& source, absl::FunctionRef<bool()> admit);
  void GiveBack(const Source& source);

  // For tests.
  size_t sources() const;
  uint32_t CountOf(const Source& source) const;
  size_t capacity() const;

 private:
  static constexpr size_t kShards = 64;
  // A table may have room for so many times what is in it.
  static constexpr size_t kLoosest = 8;

  struct Shard {
    mutable Mutex mutex;
    absl::flat_hash_map<Source, uint32_t> counts SLUICE_GUARDED_BY(mutex);
  };
  static size_t ShardOf(const Source& source);

  const size_t most_;
  std::array<Shard, kShards> shards_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_SOURCE_COUNTS_H_
