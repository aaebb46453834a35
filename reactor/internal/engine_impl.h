// Internal: the engine's parts and their life.
#ifndef SLUICE_REACTOR_INTERNAL_ENGINE_IMPL_H_
#define SLUICE_REACTOR_INTERNAL_ENGINE_IMPL_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "reactor/engine.h"
#include "reactor/internal/acceptor.h"
#include "reactor/internal/gate.h"
#include "reactor/internal/hand_off.h"
#include "reactor/internal/load_balancer.h"
#include "reactor/internal/log.h"
#include "reactor/internal/places.h"
#include "reactor/internal/reactor_impl.h"
#include "reactor/internal/socket.h"
#include "reactor/internal/source_counts.h"

struct event;

namespace sluice::internal {

// Bound sockets of one ListenerSpec: one, or one a reactor with SO_REUSEPORT.
struct Listener {
  Address address;
  ListenOptions options;
  bool per_reactor = false;  // sockets[i] is accepted on by reactor i
  bool stopped = false;      // main loop
  std::vector<BoundSocket> sockets;
  std::unique_ptr<Gate> gate;
};

// Which file does what:
//   engine_impl.cc    setup, dialing, statistics
//   engine_start.cc   Run: threads start, serve and are waited for
//   engine_accept.cc  listeners open and close, connections are counted
//   engine_stop.cc    Stop, Drain, signals
//
// Threads: `main_` runs in the caller of Run; with one reactor and shared
// tables it is that reactor, otherwise reactors_[i] each have a thread.
//
//   kCreated --Run--> kRunning --Drain--> kDraining --Stop--> kStopping
//       '------------- Stop: Run returns after OnBoot ------------'
//
// Stop runs on the main loop: listeners close, accepted descriptors on their
// way are delivered, every reactor closes its connections and ends, its thread
// says so, and the main loop quits when the last one has.
class EngineImpl final : public Engine {
 public:
  EngineImpl(EventHandler& handler, Options options);
  ~EngineImpl() override;

  absl::Status Init(std::vector<ListenerSpec> specs);

  // --- Engine.
  absl::Status Run() override;
  void Stop() override;
  void Drain(std::chrono::milliseconds deadline) override;
  void CloseListener(int index) override;
  std::span<const Address> bound() const override { return bound_; }
  absl::Status Dial(const Address& address, DialOptions options,
                    DialDone done) override;
  EngineStats stats() const override;
  int reactors() const override { return static_cast<int>(reactors_.size()); }
  Reactor& reactor(int index) override;
  const Options& options() const override { return options_; }

  // --- For the parts. [any]
  EventHandler& handler() { return handler_; }
  Logger& logger() { return logger_; }
  const std::function<absl::Status(int)>& AfterAccept(uint16_t listener) const {
    return listeners_[listener].options.socket.after_accept;
  }
  // Stop was called: nobody is to be greeted any more.
  bool stop_requested() const {
    return stop_requested_.load(std::memory_order_relaxed);
  }
  // It ends, for whatever reason, or has ended: connections are being closed.
  bool ending() const {
    return stop_requested() || phase_.load() >= Phase::kStopping;
  }
  // False from the moment Stop or Drain is called.
  bool accepting() const { return accepting_.load(); }
  // What is counted against max_connections; dialed ones are, but are not
  // bounded. Want makes ConnectionReleased resume the acceptors that lack a
  // place.
  Places& places() { return places_; }
  // nullptr without max_connections_per_source.
  SourceCounts* sources() const { return sources_.get(); }
  // A place that was taken for a connection that did not come.
  void CancelPlace();
  // Of the reactor with this load, on its way or open; `listener` is kDialed
  // for a dialed one.
  void ConnectionReleased(std::atomic<uint32_t>& load, uint16_t listener,
                          const PeerName& peer);
  // The next connection that ends resumes the acceptors that lack a descriptor.
  void WantDescriptor() { descriptor_wanted_.store(true); }
  // Resumes the acceptors that lack this, those of one listener or all.
  void ResumeAccepting(Lack lack, int listener = -1);
  // Connections of reactor i, LoadBalancer::kFull if it can hold no more.
  size_t LoadOf(int i) const;

 private:
  struct Start;
  enum class Phase { kCreated, kRunning, kDraining, kStopping, kStopped };

  bool merged() const { return main_ == reactors_[0].get(); }
  absl::Status CreateReactors();
  absl::Status Bind(const ListenerSpec& spec);
  void CloseSockets(Listener& listener);
  absl::Status Serve();
  std::shared_ptr<Start> StartReactors();
  absl::Status PrepareReactor(size_t i);
  std::vector<int> FdsUnwantedBy(size_t reactor) const;
  void OpenAcceptors(size_t i);
  void OpenMainAcceptors();
  void StopListener(size_t k);
  void StopOwnAcceptor(size_t i, size_t k);
  void StopAccepting();
  void HandleSignals();
  void BeginStop(CloseReason reason);
  void BeginDrain(std::chrono::milliseconds deadline);
  void CheckDrained();
  void WakeForPlace();
  void CheckDrainedAfter(size_t left);
  void ReactorEnded();
  size_t PickForDial(const Address& address);
  static void OnSignal(int, short, void* self);

  EventHandler& handler_;
  const Options options_;
  Logger logger_;
  const pid_t owner_pid_;
  size_t fd_limit_ = 0;
  // Connections that a reactor with a table of its own can hold.
  std::atomic<size_t> reactor_capacity_{SIZE_MAX};

  std::vector<Listener> listeners_;
  std::vector<Address> bound_;
  std::vector<int> cpus_;  // of each reactor, -1: not pinned
  std::vector<std::unique_ptr<ReactorImpl>> reactors_;
  std::unique_ptr<ReactorImpl> main_owned_;
  ReactorImpl* main_ = nullptr;
  std::unique_ptr<HandOff> hand_off_;

  // Acceptors of the main reactor, then those of each reactor.
  std::vector<std::unique_ptr<Acceptor>> main_acceptors_;
  struct OwnAcceptors {
    std::unique_ptr<DirectTarget> target;
    std::vector<std::unique_ptr<Acceptor>> acceptors;
  };
  std::vector<OwnAcceptors> own_acceptors_;
  std::vector<event*> signal_events_;
  std::vector<std::thread> threads_;

  std::atomic<Phase> phase_{Phase::kCreated};
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> accepting_{true};  // until Stop or Drain is called
  size_t reactors_running_ = 0;        // main loop only
  Places places_;
  std::unique_ptr<SourceCounts> sources_;
  std::atomic<bool> descriptor_wanted_{false};
  bool served_ = false;

  Mutex dial_mutex_;
  LoadBalancer dial_balancer_ SLUICE_GUARDED_BY(dial_mutex_);
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_ENGINE_IMPL_H_
