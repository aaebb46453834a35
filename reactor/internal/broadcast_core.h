// Internal: what the threads that call a Broadcaster share.
#ifndef SLUICE_REACTOR_INTERNAL_BROADCAST_CORE_H_
#define SLUICE_REACTOR_INTERNAL_BROADCAST_CORE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/broadcaster.h"
#include "reactor/internal/broadcast_group.h"
#include "reactor/internal/broadcast_pace.h"
#include "reactor/internal/broadcast_shard.h"
#include "reactor/internal/mutex.h"

namespace sluice::internal {

class EngineImpl;
class Mailbox;
class ReactorImpl;

// Names, and the posts to the shards. Posts hold shards and groups alive, not
// this.
// Thread: any.
class BroadcastCore {
 public:
  // The options have been checked.
  BroadcastCore(EngineImpl& engine, const BroadcasterOptions& options,
                double pages_per_second);

  absl::Status PostShards();  // first
  void End();                 // last

  absl::Status AddGroup(std::string_view name, const GroupOptions& options)
      SLUICE_EXCLUDES(mutex_);
  absl::Status RemoveGroup(std::string_view name) SLUICE_EXCLUDES(mutex_);
  absl::Status Join(std::string_view name, const ConnectionRef& ref);
  absl::Status Leave(std::string_view name, const ConnectionRef& ref);
  absl::Status Publish(std::string_view name, Payload message);
  absl::StatusOr<GroupStats> stats(std::string_view name) const;

 private:
  using GroupRef = std::shared_ptr<BroadcastGroup>;

  absl::StatusOr<GroupRef> Find(std::string_view name) const
      SLUICE_EXCLUDES(mutex_);
  struct Membership {
    GroupRef group;
    size_t reactor;  // of the connection
  };
  absl::StatusOr<Membership> Find(std::string_view name,
                                  const ConnectionRef& ref) const;
  absl::Status PostRemoval(const GroupRef& group);

  EngineImpl& engine_;
  std::vector<ReactorImpl*> reactors_;
  std::vector<std::shared_ptr<BroadcastShard>> shards_;
  absl::flat_hash_map<const Mailbox*, size_t> by_mailbox_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, GroupRef> groups_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_BROADCAST_CORE_H_
