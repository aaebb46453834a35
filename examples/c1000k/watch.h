// c1000k: what can cut a run short.
#ifndef SLUICE_EXAMPLES_C1000K_WATCH_H_
#define SLUICE_EXAMPLES_C1000K_WATCH_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace sluice::c1000k {

// Waits, and notices SIGINT, SIGTERM and the end of the server process.
// Thread: the main one.
// Lifetime: SIGINT and SIGTERM are blocked from Create on, in every thread
//   started after it; a forked child has to unblock them.
class Watch {
 public:
  enum class Event { kNone, kInterrupted, kServerDied };

  static absl::StatusOr<std::unique_ptr<Watch>> Create();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The server's channel; its end is the server's end. -1: no longer.
  void WatchServer(int channel) { channel_ = channel; }

  // Called at a second signal: the user will not wait for the clean way.
  void OnSecondSignal(std::function<void()> f) { second_ = std::move(f); }

  // Sleeps, shorter if something happens. What happened once stays: a later
  // Wait does sleep, and returns it again.
  Event Wait(int milliseconds);
  Event event() const { return event_; }
  // Whatever came first, the server is gone.
  bool server_gone() const { return server_gone_; }

 private:
  explicit Watch(int signals) : signals_(signals) {}
  void Poll(int milliseconds);
  void TakeSignals();

  int signals_;  // signalfd
  int channel_ = -1;
  int count_ = 0;
  Event event_ = Event::kNone;
  bool server_gone_ = false;
  std::function<void()> second_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_WATCH_H_
