#include "reactor/internal/broadcast_core.h"

#include <utility>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
namespace {

absl::Status Ending() { return absl::UnavailableError("the engine stops"); }

absl::Status NoGroup(std::string_view name) {
  return absl::NotFoundError("there is no group \"" + std::string(name) + "\"");
}

}  // namespace

BroadcastCore::BroadcastCore(EngineImpl& engine,
                             const BroadcasterOptions& options,
                             double pages_per_second)
    : engine_(engine) {
  const int count = engine_.reactors();
  for (int i = 0; i < count; ++i) {
    auto& reactor = static_cast<ReactorImpl&>(engine_.reactor(i));
    const size_t index = reactors_.size();
    reactors_.push_back(&reactor);
    by_mailbox_[reactor.mailbox()] = index;
    shards_.push_back(std::make_shared<BroadcastShard>(
        reactor, index, options.sends_per_turn,
        BroadcastPace(options.sends_per_second, pages_per_second / count,
                      options.sends_per_turn)));
  }
}

absl::Status BroadcastCore::PostShards() {
  for (size_t i = 0; i < shards_.size(); ++i) {
    absl::Status s =
        reactors_[i]->Post([reactor = reactors_[i], shard = shards_[i]] {
          reactor->AddShard(shard);
        });
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

void BroadcastCore::End() {
  MutexLock lock(mutex_);
  for (const auto& [name, group] : groups_) (void)PostRemoval(group);
  // Where a reactor has ended, so have its connections and groups.
  for (size_t i = 0; i < shards_.size(); ++i) {
    (void)reactors_[i]->Post([shard = shards_[i]] { shard->End(); });
  }
}

// --- Groups.

absl::StatusOr<BroadcastCore::GroupRef> BroadcastCore::Find(
    std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = groups_.find(ToAbsl(name));
  if (found == groups_.end()) return NoGroup(name);
  return found->second;
}

absl::Status BroadcastCore::AddGroup(std::string_view name,
                                     const GroupOptions& options) {
  if (engine_.ending()) return Ending();
  if (name.empty()) return absl::InvalidArgumentError("a group without a name");
  if (options.when_slow > WhenSlow::kLatest) {
    return absl::InvalidArgumentError(
        "GroupOptions::when_slow is " +
        std::to_string(static_cast<int>(options.when_slow)) +
        ", which is none of its values");
  }
  if (options.max_pending == 0) {
    return absl::InvalidArgumentError(
        "GroupOptions::max_pending is 0; it must be at least 1");
  }
  MutexLock lock(mutex_);
  const bool added =
      groups_
          .try_emplace(std::string(name), std::make_shared<BroadcastGroup>(
                                              options, reactors_.size()))
          .second;
  return added ? absl::OkStatus()
               : absl::AlreadyExistsError("there is a group \"" +
                                          std::string(name) + "\" already");
}

absl::Status BroadcastCore::RemoveGroup(std::string_view name) {
  if (engine_.ending()) return Ending();
  MutexLock lock(mutex_);
  const auto found = groups_.find(ToAbsl(name));
  if (found == groups_.end()) return NoGroup(name);
  if (absl::Status s = PostRemoval(found->second); !s.ok()) return s;
  groups_.erase(found);
  return absl::OkStatus();
}

// Where a reactor has ended, so have its connections.
absl::Status BroadcastCore::PostRemoval(const GroupRef& group) {
  absl::Status first;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const absl::Status s = reactors_[i]->Post(
        [shard = shards_[i], group] { shard->Remove(*group); });
    if (i == 0) first = s;
  }
  return first;
}

absl::StatusOr<GroupStats> BroadcastCore::stats(std::string_view name) const {
  const absl::StatusOr<GroupRef> group = Find(name);
  if (!group.ok()) return group.status();
  return (*group)->stats();
}

// --- Members.

absl::StatusOr<BroadcastCore::Membership> BroadcastCore::Find(
    std::string_view name, const ConnectionRef& ref) const {
  if (engine_.ending()) return Ending();
  absl::StatusOr<GroupRef> group = Find(name);
  if (!group.ok()) return group.status();
  const Mailbox* mailbox = ReactorImpl::MailboxOf(ref);
  if (mailbox == nullptr) return absl::NotFoundError("no connection");
  const auto reactor = by_mailbox_.find(mailbox);
  if (reactor == by_mailbox_.end()) {
    return absl::InvalidArgumentError(
        "the connection belongs to another engine");
  }
  return Membership{*std::move(group), reactor->second};
}

absl::Status BroadcastCore::Join(std::string_view name,
                                 const ConnectionRef& ref) {
  const absl::StatusOr<Membership> in = Find(name, ref);
  if (!in.ok()) return in.status();
  in->group->on(in->reactor).joined.store(true, std::memory_order_relaxed);
  return ReactorImpl::PostTo(
      ref, [shard = shards_[in->reactor], group = in->group](Connection& c) {
        shard->Join(group, c);
        return true;
      });
}

absl::Status BroadcastCore::Leave(std::string_view name,
                                  const ConnectionRef& ref) {
  const absl::StatusOr<Membership> in = Find(name, ref);
  if (!in.ok()) return in.status();
  return ReactorImpl::PostTo(
      ref, [shard = shards_[in->reactor], group = in->group](Connection& c) {
        shard->Leave(*group, c);
        return true;
      });
}

absl::Status BroadcastCore::Publish(std::string_view name, Payload message) {
  if (message.empty()) return absl::InvalidArgumentError("an empty message");
  const absl::StatusOr<GroupRef> group = Find(name);
  if (!group.ok()) return group.status();
  if (engine_.ending()) return Ending();
  const size_t bytes = message.size();
  if (!(*group)->Reserve(bytes)) {
    return absl::ResourceExhaustedError(
        std::to_string(bytes) + " bytes on top of " +
        std::to_string((*group)->stats().pending) +
        " that wait to be dealt out are more than GroupOptions::max_pending, " +
        std::to_string((*group)->options().max_pending));
  }
  const auto shared =
      std::make_shared<const BroadcastMessage>(*group, std::move(message));
  bool posted = false;
  (*group)->CountPublished(1);  // before anybody can have it
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!(*group)->on(i).joined.load(std::memory_order_relaxed)) continue;
    const absl::Status s = reactors_[i]->Post(
        [shard = shards_[i], shared] { shard->Publish(shared); });
    // One that has ended since has no members any more.
    if (!s.ok() && !posted) {
      (*group)->CountPublished(-1);
      return s;
    }
    posted = true;
  }
  return absl::OkStatus();
}

}  // namespace sluice::internal
