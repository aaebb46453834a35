// gateway_client: does things at their time, however late the ones before are.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_OPEN_LOOP_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_OPEN_LOOP_H_

#include <cstdint>
#include <functional>

#include "reactor/reactor.h"

namespace sluice::gateway {

// Nanoseconds of the steady clock.
int64_t NowNs();

// When turn 0, 1, 2, ... is due.
struct Schedule {
  int64_t start = 0;
  double per_second = 1;

  int64_t DueAt(uint64_t turn) const {
    return start +
           static_cast<int64_t>(static_cast<double>(turn) * 1e9 / per_second);
  }
};

// An open loop: players do not wait for each other's answers, and a server that
// stalls does not slow its load down. Turns whose time has come while we were
// late follow at once, and what they do is measured from when it was due.
// Thread: the reactor's. Lifetime: outlives the reactor's timers, so as long as
//   the engine.
class OpenLoop {
 public:
  using Turn = std::function<void(uint64_t turn)>;

  // A rate of 0: there are no turns.
  void Start(Reactor& reactor, const Schedule& schedule, Turn turn);
  void Stop();

  const Schedule& schedule() const { return schedule_; }

 private:
  void RunDue();

  Reactor* reactor_ = nullptr;
  Schedule schedule_;
  Turn turn_;
  uint64_t next_ = 0;
  TimerId timer_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_OPEN_LOOP_H_
