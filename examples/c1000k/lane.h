// c1000k: the client's connections on one reactor.
#ifndef SLUICE_EXAMPLES_C1000K_LANE_H_
#define SLUICE_EXAMPLES_C1000K_LANE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "examples/c1000k/heartbeat.h"
#include "examples/histogram.h"
#include "reactor/close.h"
#include "reactor/connection.h"
#include "reactor/connection_ref.h"
#include "reactor/reactor.h"

namespace sluice::c1000k {

// What a lane, or all of them together, has counted.
struct LaneCounts {
  uint64_t connected = 0;  // connections there ever were
  uint64_t closed = 0;     // of them, those that are gone
  uint64_t lost = 0;       // of them, those we did not close
  uint64_t sent = 0;       // paced heartbeats
  uint64_t answered = 0;
  uint64_t roll_asked = 0;     // roll call: messages sent
  uint64_t roll_answered = 0;  // connections that answered
  uint64_t wrong = 0;          // replies that were not what was sent

  uint64_t open() const { return connected - closed; }
  LaneCounts& operator+=(const LaneCounts& other);
};

// Sends heartbeats over its connections and checks what comes back.
// Thread: [loop] as marked, on the lane's reactor; the rest on any.
// Lifetime: as long as the engine.
class Lane {
 public:
  // `expected`: connections there will be; memory for their refs is taken now
  // and not while dialing.
  Lane(uint32_t index, size_t expected);

  // [loop] From the engine's callbacks.
  void Opened(Connection& connection);
  void Arrived(Connection& connection);
  void Closed();

  // [loop] Sends `each_per_second` heartbeats a connection and second, in turn
  // over all connections and in small portions; the first after `offset_ms`, so
  // that the lanes of a client do not all fire together.
  void StartHeartbeats(Reactor& reactor, double each_per_second, int offset_ms);
  void StopHeartbeats(Reactor& reactor);

  // [loop] Asks every connection once, with at most `window` answers
  // outstanding.
  void StartRollCall(Reactor& reactor, size_t window);

  // [loop] Resets every connection, a slice each turn of the loop. The kernel
  // would keep a million sockets in TIME_WAIT for a minute after a FIN.
  void StartClose(Reactor& reactor);

  LaneCounts counts() const;
  // StopHeartbeats has run; `sent` is final.
  bool heartbeats_stopped() const {
    return stopped_.load(std::memory_order_acquire);
  }
  // Every connection of this lane was asked.
  bool roll_call_sent() const {
    return roll_sent_.load(std::memory_order_acquire);
  }

  // Paced, and of the roll call.
  const examples::Histogram& rtt() const { return rtt_; }
  const examples::Histogram& roll_rtt() const { return roll_rtt_; }

 private:
  using Count = std::atomic<uint64_t>;
  // Written by the loop only.
  static void Add(Count& count, uint64_t n = 1) {
    count.store(count.load(std::memory_order_relaxed) + n,
                std::memory_order_release);
  }

  void Check(Connection& connection, std::string_view reply);
  bool Send(Reactor& reactor, size_t index, Heartbeat::Kind kind);
  void Tick(Reactor& reactor);
  void PumpRollCall(Reactor& reactor);
  void CloseSlice(Reactor& reactor);

  const uint32_t index_;
  std::vector<ConnectionRef> refs_;  // in the order they connected

  // Paced heartbeats.
  TimerId timer_;
  double per_second_ = 0;
  double credit_ = 0;  // heartbeats that are due
  uint64_t last_ns_ = 0;
  size_t next_ = 0;

  // Roll call.
  std::vector<bool> roll_heard_;  // which have answered
  size_t roll_next_ = 0;
  size_t roll_window_ = 0;
  size_t roll_outstanding_ = 0;
  uint64_t roll_answered_before_ = 0;

  bool closing_ = false;
  size_t close_next_ = 0;

  std::atomic<bool> stopped_{false};
  std::atomic<bool> roll_sent_{false};
  Count connected_{0}, closed_{0}, lost_{0}, sent_{0}, answered_{0};
  Count roll_asked_{0}, roll_answered_{0}, wrong_{0};
  examples::Histogram rtt_;
  examples::Histogram roll_rtt_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_LANE_H_
