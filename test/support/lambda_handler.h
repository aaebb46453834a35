// Internal: an EventHandler made of functions, which also counts its calls.
#ifndef SLUICE_TEST_SUPPORT_LAMBDA_HANDLER_H_
#define SLUICE_TEST_SUPPORT_LAMBDA_HANDLER_H_

#include <atomic>
#include <functional>

#include "reactor/connection.h"
#include "reactor/event_handler.h"

namespace sluice::test {

// Set the functions before the engine runs. One that is not set does what
// EventHandler does; OnTraffic then discards what arrived.
class LambdaHandler : public EventHandler {
 public:
  std::function<Action(Engine&)> on_boot;
  std::function<Action(Connection&)> on_open;
  std::function<Action(Connection&)> on_traffic;
  std::function<Action(Connection&)> on_peer_shutdown;
  std::function<void(Connection&)> on_high_water;
  std::function<void(Connection&)> on_low_water;
  std::function<void(Connection&, const CloseInfo&)> on_close;
  std::function<void(Reactor&)> on_tick;
  std::function<void(Engine&)> on_drain;
  std::function<void(Engine&)> on_shutdown;

  // Calls so far, counted before the function runs; `closed` after it.
  std::atomic<int> boots{0};
  std::atomic<int> opened{0};
  std::atomic<int> traffic{0};
  std::atomic<int> peer_shutdowns{0};
  std::atomic<int> high_waters{0};
  std::atomic<int> low_waters{0};
  std::atomic<int> closed{0};
  std::atomic<int> ticks{0};
  std::atomic<int> drains{0};
  std::atomic<int> shutdowns{0};

  Action OnBoot(Engine& engine) override {
    ++boots;
    return on_boot ? on_boot(engine) : EventHandler::OnBoot(engine);
  }
  Action OnOpen(Connection& connection) override {
    ++opened;
    return on_open ? on_open(connection) : EventHandler::OnOpen(connection);
  }
  Action OnTraffic(Connection& connection) override {
    ++traffic;
    if (on_traffic) return on_traffic(connection);
    connection.Discard();
    return Action::kNone;
  }
  Action OnPeerShutdown(Connection& connection) override {
    ++peer_shutdowns;
    return on_peer_shutdown ? on_peer_shutdown(connection)
                            : EventHandler::OnPeerShutdown(connection);
  }
  void OnHighWater(Connection& connection) override {
    ++high_waters;
    if (on_high_water) on_high_water(connection);
  }
  void OnLowWater(Connection& connection) override {
    ++low_waters;
    if (on_low_water) on_low_water(connection);
  }
  void OnClose(Connection& connection, const CloseInfo& info) override {
    struct Count {
      std::atomic<int>& count;
      ~Count() { ++count; }
    } count_at_end{closed};
    if (on_close) {
      on_close(connection, info);
    } else {
      EventHandler::OnClose(connection, info);
    }
  }
  void OnTick(Reactor& reactor) override {
    ++ticks;
    if (on_tick) {
      on_tick(reactor);
    } else {
      EventHandler::OnTick(reactor);
    }
  }
  void OnDrain(Engine& engine) override {
    ++drains;
    if (on_drain) {
      on_drain(engine);
    } else {
      EventHandler::OnDrain(engine);
    }
  }
  void OnShutdown(Engine& engine) override {
    ++shutdowns;
    if (on_shutdown) {
      on_shutdown(engine);
    } else {
      EventHandler::OnShutdown(engine);
    }
  }
};

// Sends back what arrives.
inline Action EchoTraffic(Connection& connection) {
  (void)connection.Write(connection.Next());
  return Action::kNone;
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_LAMBDA_HANDLER_H_
