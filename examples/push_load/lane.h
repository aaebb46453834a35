// push_load: the subscribers on one reactor.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_LANE_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_LANE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/push_load/messages.h"
#include "examples/push_load/receipts.h"
#include "examples/push_load/settings.h"
#include "reactor/engine.h"

namespace sluice::push {

// What a lane, or all of them together, has counted.
struct LaneCounts {
  uint64_t subscribed = 0;  // has had its "OK SUB"
  uint64_t failed = 0;      // could not connect
  uint64_t lost = 0;        // connections that should have stayed
  uint64_t received = 0;    // messages, each as it should be
  uint64_t missed = 0;      // of those that came before one that was received
  uint64_t wrong = 0;       // lines that are not the next message
  uint64_t done = 0;        // subscribers that have received the last message

  LaneCounts& operator+=(const LaneCounts& other);
};

// Thread: [any] counts; Start and what subscribers call on the lane's loop;
//   the rest once the engine has ended.
// Lifetime: as long as the engine.
class Lane {
 public:
  // Connections begin, begin + 1, ... end - 1.
  Lane(const LoadSettings& settings, const Messages& messages, int index,
       uint64_t begin, uint64_t end);

  void Start(Engine& engine);

  LaneCounts counts() const;
  const Receipts& receipts() const { return receipts_; }
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  friend class Subscriber;
  using Count = std::atomic<uint64_t>;
  // Written by the loop only.
  static void Add(Count& count, uint64_t n = 1) {
    count.store(count.load(std::memory_order_relaxed) + n,
                std::memory_order_release);
  }
  void DialSome();
  void DialOver();  // connected and subscribed, or failed
  void DialFailed(const absl::Status& status);
  void Trouble(std::string what);

  const LoadSettings& settings_;
  const Messages& messages_;
  const int index_;
  Engine* engine_ = nullptr;
  uint64_t next_;
  const uint64_t end_;
  uint64_t dialing_ = 0;
  Receipts receipts_;
  std::vector<std::string> troubles_;  // the first ones, in words
  Count subscribed_{0}, failed_{0}, lost_{0};
  Count received_{0}, missed_{0}, wrong_{0}, done_{0};
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_LANE_H_
