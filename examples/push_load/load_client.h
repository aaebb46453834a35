// push_load: the run, from the first dial to the last receipt.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_LOAD_CLIENT_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_LOAD_CLIENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/line_codec.h"
#include "examples/gateway_client/open_loop.h"
#include "examples/push_load/lane.h"
#include "examples/push_load/messages.h"
#include "examples/push_load/publisher.h"
#include "examples/push_load/result.h"
#include "examples/push_load/settings.h"
#include "reactor/engine.h"

namespace sluice::push {

// Subscribers on every reactor, a lane each; the publisher and what decides
// how the run goes on are on the first one. Stops the engine at the end.
class LoadClient : public EventHandler {
 public:
  explicit LoadClient(LoadSettings settings);

  // Once the engine has ended.
  const Result& result() const { return result_; }

  Action OnBoot(Engine& engine) override;
  Action OnOpen(Connection& c) override;
  Action OnTraffic(Connection& c) override;
  void OnClose(Connection& c, const CloseInfo& info) override;
  void OnShutdown(Engine& engine) override;

 private:
  enum class Phase : uint8_t {
    kSubscribing,
    kPublishing,
    kReceiving,  // what is still under way
    kAsking,     // STATS
    kOver,
  };

  void Begin();
  void DialPublisher();
  void Watch();  // is it time for the next phase?
  void Enter(Phase phase);
  void Publish(uint64_t number);
  void Tell(const std::string& line);  // to push, by the publisher
  void Give(const char* up);
  LaneCounts Counts() const;
  // Nothing new for a while.
  bool Stuck(const LaneCounts& counts);

  const LoadSettings settings_;
  const Messages messages_;
  const LineDecoder decoder_;
  Engine* engine_ = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Publication publication_;
  gateway::OpenLoop loop_;
  Phase phase_ = Phase::kSubscribing;
  int64_t began_ = 0;
  int64_t news_at_ = 0;  // when there was something new
  uint64_t news_ = 0;    // how much there was
  Result result_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_LOAD_CLIENT_H_
