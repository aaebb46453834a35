// Public header: what a user implements.
#ifndef SLUICE_REACTOR_EVENT_HANDLER_H_
#define SLUICE_REACTOR_EVENT_HANDLER_H_

#include <cstdint>

#include "reactor/close.h"

namespace sluice {

class Connection;
class Engine;
class Reactor;

// What the engine does after a callback has returned.
enum class Action : uint8_t {
  kNone,      // go on
  kClose,     // Connection::Close(CloseMode::kFlush) on this connection
  kShutdown,  // Engine::Stop
};

// The user's side of an engine: one object, called for every connection.
// Thread: callbacks marked [loop] run on the connection's reactor, so several
//   run at the same time on different connections, and never two at a time on
//   one. Keep what belongs to a connection in it (Connection::Emplace).
// Lifetime: must outlive the engine. A Connection& is good until the
//   connection's OnClose returns; keep a ConnectionRef for longer.
// Errors: an exception that leaves a callback closes that one connection
//   (CloseReason::kHandlerException), is counted and logged; the loop goes on.
class EventHandler {
 public:
  EventHandler() = default;
  EventHandler(const EventHandler&) = delete;
  EventHandler& operator=(const EventHandler&) = delete;
  virtual ~EventHandler() = default;

  // Every listener is bound and listening, none is accepting yet. Runs on the
  // thread that called Engine::Run. kShutdown makes Run return OK at once.
  virtual Action OnBoot(Engine& engine);

  // [loop] A connection was accepted or dialed. Before any OnTraffic.
  virtual Action OnOpen(Connection& connection);

  // [loop] Bytes arrived, or ConnectionRef::Wake was called. What is not
  // consumed stays, in order, and is seen again beside later bytes; OnTraffic
  // is not called again for it until more bytes arrive, Wake is called, or the
  // last ReadPause goes.
  virtual Action OnTraffic(Connection& connection) = 0;

  // [loop] More output than ConnectionLimits::high_water waits for a peer that
  // reads slowly: the time to write less, or to stop reading what makes it
  // (Connection::PauseWhileHigh). Once, until OnLowWater has been called.
  virtual void OnHighWater(Connection& connection);

  // [loop] ... and of that output no more than ConnectionLimits::low_water is
  // left. Neither is called inside another callback, nor once the connection
  // is closing.
  virtual void OnLowWater(Connection& connection);

  // [loop] The peer sent FIN: no more bytes will come, every byte before it
  // was delivered, and it may still be reading. The default flushes and closes
  // (kPeerClosed). kNone keeps the connection for writing (half-close); it then
  // ends by Close, by a timeout or by an error of the peer.
  virtual Action OnPeerShutdown(Connection& connection);

  // [loop] The connection is over: once for each OnOpen, never inside another
  // callback. Its addresses and its Emplace'd object are still there, writes
  // fail, and its descriptor is released only after this returns.
  virtual void OnClose(Connection& connection, const CloseInfo& info);

  // On every reactor, each Options::tick, if that is set.
  virtual void OnTick(Reactor& reactor);

  // Engine::Drain has begun: no more connections are accepted; finish with
  // those there are. Runs on the main reactor.
  virtual void OnDrain(Engine& engine);

  // Last: every connection has had its OnClose and every reactor but the
  // caller's has ended. Runs on the thread that called Engine::Run.
  virtual void OnShutdown(Engine& engine);
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_EVENT_HANDLER_H_
