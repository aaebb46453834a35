// c1000k: the client: an engine that only dials.
#ifndef SLUICE_EXAMPLES_C1000K_LOAD_CLIENT_H_
#define SLUICE_EXAMPLES_C1000K_LOAD_CLIENT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/c1000k/lane.h"
#include "examples/c1000k/plan.h"
#include "examples/histogram.h"
#include "reactor/engine.h"

namespace sluice::c1000k {

struct DialFailure {
  size_t source = 0;  // index, see SourceAddress
  int reactor = 0;
  absl::Status status;
};

// Makes the connections, and passes on what to do with them to the lanes.
// Thread: the one that called Start, for everything but the engine's callbacks.
// Lifetime: the destructor stops the engine and waits for its thread.
class LoadClient : public EventHandler {
 public:
  // The engine runs, on a thread of its own, when this returns.
  static absl::StatusOr<std::unique_ptr<LoadClient>> Start(const Plan& plan,
                                                           uint16_t port);
  ~LoadClient() override;

  // Begins one connection, from a source address to the server, on a reactor.
  // A failure is told by TakeFailures.
  void Dial(size_t source, int reactor);
  uint64_t dials_issued() const { return issued_; }
  uint64_t dials_failed() const;
  std::vector<DialFailure> TakeFailures();

  void StartHeartbeats(double per_second);
  void StopHeartbeats();
  bool heartbeats_stopped() const;  // on every lane
  void StartRollCall(size_t window);
  bool roll_call_sent() const;
  void StartClose();
  // Ends the engine. OK, or why it ended.
  absl::Status Stop();

  LaneCounts counts() const;
  void MergeRtt(examples::Histogram* paced,
                examples::Histogram* roll_call) const;

  // The engine's callbacks.
  Action OnBoot(Engine& engine) override;
  Action OnOpen(Connection& connection) override;
  Action OnTraffic(Connection& connection) override;
  void OnClose(Connection& connection, const CloseInfo& info) override;

 private:
  LoadClient(const Plan& plan, uint16_t port);
  void EngineThread(Options options);
  // Tells Start how it went; only the first call counts.
  void Started(const absl::Status& status);
  void DialFailed(size_t source, int reactor, absl::Status status);
  // Runs `task(lane, reactor, index)` on every lane's loop.
  template <typename Task>
  void OnEveryLane(Task task);

  const int reactors_;
  Address server_;
  std::vector<Address> sources_;  // parsed once, not at each dial
  std::vector<std::unique_ptr<Lane>> lanes_;
  uint64_t issued_ = 0;
  std::atomic<uint64_t> failed_{0};

  std::thread thread_;        // the engine lives on it
  Engine* engine_ = nullptr;  // good from Start to Stop
  std::mutex mutex_;          // guards what follows
  std::condition_variable changed_;
  std::optional<absl::Status> started_;
  bool release_ = false;  // the thread may destroy the engine
  absl::Status ended_;    // of Run
  std::vector<DialFailure> failures_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_LOAD_CLIENT_H_
