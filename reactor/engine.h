// Public header: the engine, from Create to OnShutdown.
#ifndef SLUICE_REACTOR_ENGINE_H_
#define SLUICE_REACTOR_ENGINE_H_

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/address.h"
#include "reactor/connection.h"
#include "reactor/connection_ref.h"
#include "reactor/event_handler.h"
#include "reactor/options.h"
#include "reactor/reactor.h"
#include "reactor/stats.h"

namespace sluice {

// Told how a dial ended, on the reactor the connection belongs to: with the
// connection, just before its OnOpen, or with the reason it failed. What it
// sets up (Emplace, SetIdleTimeout) is there in OnOpen. If the connection ends
// inside of it, by Close or a failed write, neither OnOpen nor OnClose follows.
using DialDone = absl::AnyInvocable<void(absl::StatusOr<Connection*>) &&>;

// Listeners, a main reactor that accepts, and the reactors that serve.
// Thread: Create, Run and the destructor on one thread; the rest where marked.
// Lifetime: the handler must outlive it. Destroying an engine whose Run has not
//   returned is a bug and ends the program.
// Errors: setup answers a status that names the value and the reason; then
//   nothing stays bound. What happens to one connection arrives in OnClose.
class Engine {
 public:
  // Binds and listens on every address, or on none. An empty list is fine for
  // an engine that only dials.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      EventHandler& handler, std::vector<ListenerSpec> listeners,
      Options options = {});

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  // Serves until Stop or Drain is done. The caller's thread becomes the main
  // reactor. Once an engine: a second call is FailedPrecondition.
  virtual absl::Status Run() = 0;

  // [any] and any callback, more than once is fine: listeners close, every
  // connection gets one attempt to send what is queued and its OnClose
  // (kShutdown), then Run returns. Returns at once. Before Run it makes that
  // Run return after OnBoot.
  virtual void Stop() = 0;

  // [any] Stops accepting, calls OnDrain, and stops when the last connection is
  // gone or the deadline has passed (what is left then closes with kDrain). The
  // first call counts.
  virtual void Drain(std::chrono::milliseconds deadline) = 0;

  // [any] Stops accepting on one listener (its index in Create's list) for
  // good. Its connections live on; bound() keeps its address. Harmless twice.
  virtual void CloseListener(int index) = 0;

  // [any] The addresses of the listeners in the order of Create, with the real
  // port where 0 was asked for.
  virtual std::span<const Address> bound() const = 0;

  // [any] Connects to `address`. OK: `done` will be called exactly once, on a
  // reactor's thread, never inside this call. Otherwise `done` is destroyed
  // uncalled: InvalidArgument (ends that cannot meet, no `done`, a timeout or
  // reactor out of range), Unavailable
  // (the engine does not run).
  virtual absl::Status Dial(const Address& address, DialOptions options,
                            DialDone done) = 0;

  // [any]
  virtual EngineStats stats() const = 0;
  virtual int reactors() const = 0;
  virtual Reactor& reactor(int index) = 0;  // 0 <= index < reactors()
  virtual const Options& options() const = 0;

 protected:
  Engine() = default;
};

// The short form: Create on one address, then Run.
absl::Status Run(EventHandler& handler, std::string_view address,
                 Options options = {});

}  // namespace sluice

#endif  // SLUICE_REACTOR_ENGINE_H_
