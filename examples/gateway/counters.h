// gateway: what happened, by kind.
#ifndef SLUICE_EXAMPLES_GATEWAY_COUNTERS_H_
#define SLUICE_EXAMPLES_GATEWAY_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "worker_pool/stats.h"

namespace sluice::gateway {

enum class Count : uint8_t {
  kOpened,

  // Packets.
  kLogins,
  kLoggedIn,
  kNobody,         // refused: there is no such player
  kComeBack,       // refused: the pool is full, or the query failed
  kLoginUnderWay,  // refused: the one before is not answered yet
  kMoves,
  kLoginFirst,  // refused: a move before the login
  kPauses,      // a connection had used its budget up

  // Closed connections, by reason. Bad input first.
  kTooLong,
  kCorruptLength,
  kUnknownCommand,
  kBadBody,
  kUnfinished,  // began a packet and did not finish it in time
  kIdle,
  kSlowReader,
  kByPeer,
  kReset,
  kDrained,  // by us, because the gateway ends
  kOther,

  kHowMany,
};

// As the table has it: "moves", "closed: unknown command".
std::string_view CountName(Count count);

// Thread: any.
class Counters {
 public:
  // `loop`: the index of the reactor on which it happened.
  void Add(int loop, Count count) {
    lanes_[static_cast<size_t>(loop) % kLanes]
        .cells[static_cast<size_t>(count)]
        .fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t Get(Count count) const;

 private:
  // Loops that count at the same time do so in different cache lines.
  static constexpr size_t kLanes = 32;
  struct alignas(64) Lane {
    std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::kHowMany)>
        cells = {};
  };
  std::array<Lane, kLanes> lanes_;
};

// All of them, a line each, and what the pool has to say.
std::string Table(const Counters& counters, const WorkerPoolStats& pool);

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_COUNTERS_H_
