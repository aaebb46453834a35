// gateway: the server's handler.
#ifndef SLUICE_EXAMPLES_GATEWAY_GATEWAY_H_
#define SLUICE_EXAMPLES_GATEWAY_GATEWAY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/length_field_codec.h"
#include "examples/gateway/counters.h"
#include "examples/gateway/packet_budget.h"
#include "examples/gateway/protocol.h"
#include "examples/gateway/session.h"
#include "reactor/engine.h"
#include "worker_pool/worker_pool.h"

namespace sluice::gateway {

// Asks who a player is. Blocks, on a worker, several at once. NotFound: there
// is no such player; any other error: ask again later.
using AccountQuery =
    std::function<absl::StatusOr<uint32_t>(const std::string& name)>;

struct GatewayOptions {
  AccountQuery query;
  WorkerPoolOptions pool;
  PacketRate rate;  // of each connection
  // From the first byte of a packet to its last. An idle timeout alone does
  // not notice somebody who sends a byte now and then.
  std::chrono::milliseconds frame_deadline{5'000};
};

// What the engine and the kernel are to hold a connection to. Packets are
// small, so buffers are too: this is all that one player can make us keep.
Options BoundedOptions();
ListenOptions BoundedListenOptions();

// Thread: see EventHandler; counters, pool_stats and Report on any.
// Lifetime: one engine. Its worker pool ends with the engine.
class Gateway : public EventHandler {
 public:
  static absl::StatusOr<std::unique_ptr<Gateway>> Create(
      GatewayOptions options);

  const Counters& counters() const { return counters_; }
  WorkerPoolStats pool_stats() const { return pool_->stats(); }
  std::string Report() const { return Table(counters_, pool_->stats()); }

  Action OnOpen(Connection& c) override;
  Action OnTraffic(Connection& c) override;
  void OnClose(Connection& c, const CloseInfo& info) override;
  void OnDrain(Engine& engine) override;
  void OnShutdown(Engine& engine) override;

 private:
  explicit Gateway(GatewayOptions options);

  void OnPacket(Connection& c, std::string_view frame);
  void OnLogin(Connection& c, std::string_view name);
  void LoggedIn(Connection& c, const absl::StatusOr<uint32_t>& player);
  void OnMove(Connection& c, const Move& move);

  void PauseForBudget(Connection& c, Clock::time_point now);
  void WatchUnfinished(Connection& c, bool any_packet);
  void CloseIfDraining(Connection& c);

  void Add(Connection& c, Count count);
  void Answer(Connection& c, const Payload& payload);
  void Refuse(Connection& c, Command command, Why why, Count count);
  // Bad input: the connection ends and is counted under `count`.
  void Reject(Connection& c, Count count);

  const GatewayOptions options_;
  const LengthFieldDecoder decoder_ = MakeDecoder();
  Counters counters_;
  std::atomic<bool> draining_{false};
  // The last member: it ends first, and its workers use the others until then.
  std::unique_ptr<WorkerPool> pool_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_GATEWAY_H_
