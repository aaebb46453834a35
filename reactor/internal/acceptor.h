// Internal: accepts on one listening socket, within bounds, whatever happens.
#ifndef SLUICE_REACTOR_INTERNAL_ACCEPTOR_H_
#define SLUICE_REACTOR_INTERNAL_ACCEPTOR_H_

#include <chrono>
#include <cstdint>

#include "reactor/internal/accepted_socket.h"
#include "reactor/internal/event_source.h"
#include "reactor/internal/unique_fd.h"
#include "reactor/reactor.h"

namespace sluice::internal {

class Gate;
class ReactorImpl;

// What an acceptor rests for want of.
enum class Lack : uint8_t {
  kNothing,     // it does not rest
  kPlace,       // a bound is reached
  kToken,       // the listener's accept_rate is; a timer ends it too
  kDescriptor,  // or memory; a timer ends it too
};

// Where accepted descriptors go.
class AcceptTarget {
 public:
  // False: leave it in the queue; acceptors that lack a place will be resumed.
  virtual bool HasRoom() = 0;
  virtual void TakeSocket(const AcceptedSocket& socket) = 0;
  virtual void BatchDone() = 0;
  // Accepting pauses for want of a descriptor. Resume it as soon as there is
  // one (it tries again by itself as well).
  virtual void WantsDescriptor() = 0;

 protected:
  ~AcceptTarget() = default;
};

// Level-triggered, at most Options::accept_batch a wake-up, so what is left is
// told again. Errors:
//   that one client's (ECONNABORTED, network errors of the peer, EINTR):
//     counted, the next one is tried;
//   no descriptor (EMFILE, ENFILE): the reserve descriptor is given up to take
//     and close one client, which is better told no than nothing; then a pause;
//   no memory (ENOBUFS, ENOMEM): a pause. 10 ms, doubled up to 1 s, from the
//     start again after a success;
//   anything else is permanent (EBADF, EINVAL): told once, this listener ends,
//     the engine goes on.
// Thread: its reactor's.
class Acceptor final : public EventSource {
 public:
  static constexpr std::chrono::milliseconds kFirstPause{10};
  static constexpr std::chrono::milliseconds kLongestPause{1000};

  // `fd` stays the caller's.
  Acceptor(ReactorImpl& reactor, AcceptTarget& target, Gate& gate, int fd,
           uint16_t listener, int batch);
  ~Acceptor();

  void Start();  // begins to listen for events
  void Stop();   // for good; harmless twice

  // There is some again: goes on if it rests for want of that.
  void Freed(Lack what);

  void OnReady(uint32_t events) override;

  uint16_t listener() const { return listener_; }

 private:
  // False: stop this batch.
  bool AcceptOne();
  bool MayAccept();
  bool HandleError(int error);
  void ShedOne();
  void Rest(Lack lack);
  void RestFor(Lack lack, std::chrono::nanoseconds time);
  void Resume();

  ReactorImpl& reactor_;
  AcceptTarget& target_;
  Gate& gate_;
  const int fd_;
  const uint16_t listener_;
  const int batch_;
  UniqueFd reserve_;
  uint32_t source_ = 0;
  bool stopped_ = true;
  Lack lack_ = Lack::kNothing;  // otherwise epoll is not asked
  std::chrono::milliseconds pause_{kFirstPause};
  TimerId retry_;  // ends the rest
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_ACCEPTOR_H_
