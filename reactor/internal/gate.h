// Internal: may one more connection be taken off a listener's queue?
#ifndef SLUICE_REACTOR_INTERNAL_GATE_H_
#define SLUICE_REACTOR_INTERNAL_GATE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "reactor/internal/accepted_socket.h"
#include "reactor/internal/mutex.h"
#include "reactor/internal/places.h"
#include "reactor/internal/rate_bucket.h"
#include "reactor/options.h"

namespace sluice::internal {

class EngineImpl;

// Holds a listener's limits and the engine's together. A bound whose policy is
// to wait is reserved before accept4, so that who is over it stays in the
// kernel's queue. One whose policy is to reject is looked at afterwards: a
// place that was reserved for a connection that is not there after all would,
// for that moment, be missing to another acceptor, which would reject somebody
// there is room for.
//
// The same care in the order of what is taken: nothing with the policy to
// reject is ever given back but by a connection that ends.
// Thread: any; shared by the acceptors of one listener.
class Gate {
 public:
  enum class Answer {
    kYes,      // Admit or Cancel follows
    kNoPlace,  // an acceptor that lacks a place will be resumed
    kNoToken,  // accept_rate: come again after TokenWait
  };
  enum class Verdict { kIn, kFull, kSourceFull };

  // `acceptors` of this listener.
  Gate(EngineImpl& engine, uint16_t listener, const ListenOptions& options,
       size_t acceptors);

  // Before accept4.
  Answer Ask();
  std::chrono::nanoseconds TokenWait() const;
  // accept4 gave nothing.
  void Cancel();
  // accept4 gave a connection of this peer. kIn: GiveBack when it has ended;
  // otherwise nothing is held for it any more.
  Verdict Admit(const PeerName& peer);

  void GiveBack(const PeerName& peer);
  // After that, and after the rest of the connection was given back too.
  void Wake();

 private:
  bool TakeToken();
  void GiveBackToken();
  bool TakeAhead();
  void GiveBackAhead();
  bool TakeAfterwards();

  EngineImpl& engine_;
  const uint16_t listener_;
  const bool several_acceptors_;
  // Which bounds are reserved before accept4. With the engine's that is every
  // connection's count, bounded or not.
  const bool engine_ahead_;
  const bool own_ahead_;

  Places own_;
  Mutex rejecting_;  // held while both bounds are taken afterwards

  const RateLimit rate_;
  const int64_t tokens_at_once_;
  SharedRateBucket bucket_;
  std::atomic<bool> token_wanted_{false};
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_GATE_H_
