#include "examples/push/topics.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::push {

absl::StatusOr<std::unique_ptr<Topics>> Topics::Create(
    Engine& engine, const TopicsOptions& options) {
  if (options.max_topics == 0) {
    return absl::InvalidArgumentError(
        "TopicsOptions::max_topics is 0; it must be at least 1");
  }
  auto broadcaster = Broadcaster::Create(engine, options.broadcaster);
  if (!broadcaster.ok()) return broadcaster.status();
  return std::unique_ptr<Topics>(
      new Topics(*std::move(broadcaster), options.max_topics, options.group));
}

Topics::Topics(std::unique_ptr<Broadcaster> broadcaster, size_t max_topics,
               const GroupOptions& group)
    : max_topics_(max_topics),
      group_(group),
      broadcaster_(std::move(broadcaster)) {}

// --- Subscribers.

absl::StatusOr<Topic*> Topics::Subscribe(std::string_view name,
                                         const ConnectionRef& ref) {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::StatusOr<Topic*> topic = FindOrAdd(name);
  if (!topic.ok()) return topic;
  if (absl::Status s = broadcaster_->Join(name, ref); !s.ok()) return s;
  if ((*topic)->subscribers++ == 0) idle_.erase((*topic)->idle);
  return topic;
}

absl::StatusOr<Topic*> Topics::FindOrAdd(std::string_view name) {
  if (const auto found = topics_.find(name); found != topics_.end()) {
    return &found->second;
  }
  if (topics_.size() >= max_topics_) {
    if (absl::Status s = MakeRoom(); !s.ok()) return s;
  }
  if (absl::Status s = broadcaster_->AddGroup(name, group_); !s.ok()) return s;
  Topic& topic = topics_[std::string(name)];
  topic.name = name;
  topic.idle = idle_.insert(idle_.end(), &topic);
  return &topic;
}

absl::Status Topics::MakeRoom() {
  if (idle_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", topics_.size(),
                     " topics with subscribers, and no more are allowed"));
  }
  const std::string name = idle_.front()->name;
  if (absl::Status s = broadcaster_->RemoveGroup(name); !s.ok()) return s;
  idle_.pop_front();
  topics_.erase(name);
  ++made_room_;
  return absl::OkStatus();
}

absl::Status Topics::Leave(const Topic& topic, const ConnectionRef& ref) {
  // A name never changes, and the topic stays: no need to lock.
  return broadcaster_->Leave(topic.name, ref);
}

void Topics::Unsubscribed(Topic* topic) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--topic->subscribers > 0) return;
  topic->idle = idle_.insert(idle_.end(), topic);
}

// --- Messages.

absl::StatusOr<size_t> Topics::Publish(std::string_view name, Payload message) {
  size_t subscribers = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = topics_.find(name);
    if (found == topics_.end()) return 0;
    subscribers = found->second.subscribers;
  }
  absl::Status s = broadcaster_->Publish(name, std::move(message));
  // It had no subscribers, and made room meanwhile.
  if (absl::IsNotFound(s)) return 0;
  if (!s.ok()) return s;
  return subscribers;
}

// --- Counters.

absl::StatusOr<TopicCounts> Topics::Counts(std::string_view name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = topics_.find(name);
  if (found == topics_.end()) {
    return absl::NotFoundError("nobody has subscribed to it");
  }
  const absl::StatusOr<GroupStats> stats = broadcaster_->stats(name);
  if (!stats.ok()) return stats.status();
  return TopicCounts{.name = found->first,
                     .subscribers = found->second.subscribers,
                     .group = *stats};
}

std::vector<TopicCounts> Topics::All() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<TopicCounts> all;
  for (const auto& [name, topic] : topics_) {
    const absl::StatusOr<GroupStats> stats = broadcaster_->stats(name);
    all.push_back({.name = name,
                   .subscribers = topic.subscribers,
                   .group = stats.ok() ? *stats : GroupStats()});
  }
  return all;
}

uint64_t Topics::made_room() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return made_room_;
}

}  // namespace sluice::push
