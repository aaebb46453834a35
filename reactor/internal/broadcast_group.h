// Internal: a group of a Broadcaster, as all threads see it.
#ifndef SLUICE_REACTOR_INTERNAL_BROADCAST_GROUP_H_
#define SLUICE_REACTOR_INTERNAL_BROADCAST_GROUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reactor/broadcaster.h"
#include "reactor/internal/counters.h"
#include "reactor/payload.h"

namespace sluice::internal {

// What one reactor knows of a group; written on its loop.
struct alignas(64) GroupOnReactor {
  static constexpr uint32_t kNone = UINT32_MAX;

  Counter members;
  Counter delivered;
  Counter skipped;
  Counter dropped;
  Counter closed;
  uint32_t part = kNone;  // of the reactor's BroadcastShard; only its loop's
  bool ended = false;     // RemoveGroup has come by; only its loop's
  // [any] A Join was posted to it once: before, a message has no business here.
  std::atomic<bool> joined{false};
};

// Thread: any, but for what is a loop's own.
class BroadcastGroup {
 public:
  BroadcastGroup(GroupOptions options, size_t reactors)
      : options_(options), on_reactor_(reactors) {}

  const GroupOptions& options() const { return options_; }
  GroupOnReactor& on(size_t reactor) { return on_reactor_[reactor]; }

  // Counts `bytes` as pending, unless that makes more than max_pending. One
  // message is always taken.
  bool Reserve(size_t bytes) {
    size_t pending = pending_.load(std::memory_order_relaxed);
    do {
      if (pending != 0 && (bytes > options_.max_pending ||
                           pending > options_.max_pending - bytes)) {
        return false;
      }
    } while (!pending_.compare_exchange_weak(pending, pending + bytes));
    return true;
  }
  void Release(size_t bytes) { pending_.fetch_sub(bytes); }

  void CountPublished(int n) {
    published_.fetch_add(static_cast<uint64_t>(n), std::memory_order_relaxed);
  }

  GroupStats stats() const {
    GroupStats sum;
    sum.published = published_.load(std::memory_order_relaxed);
    sum.pending = pending_.load();
    for (const GroupOnReactor& part : on_reactor_) {
      sum.members += static_cast<size_t>(part.members.Get());
      sum.delivered += part.delivered.Get();
      sum.skipped += part.skipped.Get();
      sum.dropped += part.dropped.Get();
      sum.closed += part.closed.Get();
    }
    return sum;
  }

 private:
  const GroupOptions options_;
  std::atomic<uint64_t> published_{0};
  std::atomic<size_t> pending_{0};
  std::vector<GroupOnReactor> on_reactor_;
};

// A published message on its way to the reactors; pending until the last of
// them is done with it.
class BroadcastMessage {
 public:
  // Reserve has taken its bytes.
  BroadcastMessage(std::shared_ptr<BroadcastGroup> group, Payload payload)
      : group_(std::move(group)), payload_(std::move(payload)) {}
  ~BroadcastMessage() { group_->Release(payload_.size()); }
  BroadcastMessage(const BroadcastMessage&) = delete;
  BroadcastMessage& operator=(const BroadcastMessage&) = delete;

  const std::shared_ptr<BroadcastGroup>& group() const { return group_; }
  const Payload& payload() const { return payload_; }

 private:
  const std::shared_ptr<BroadcastGroup> group_;
  const Payload payload_;
};
using BroadcastMessageRef = std::shared_ptr<const BroadcastMessage>;

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_BROADCAST_GROUP_H_
