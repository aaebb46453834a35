// push: the topics, and who has subscribed to how many.
#ifndef SLUICE_EXAMPLES_PUSH_TOPICS_H_
#define SLUICE_EXAMPLES_PUSH_TOPICS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/broadcaster.h"
#include "reactor/connection_ref.h"
#include "reactor/engine.h"

namespace sluice::push {

struct TopicsOptions {
  size_t max_topics = 10'000;  // at least 1
  GroupOptions group;          // of each topic
  BroadcasterOptions broadcaster;
};

// A topic that has, or has had, a subscriber. Good as long as one of its
// subscribers is not through with it (Unsubscribed); what is in it belongs to
// Topics.
struct Topic {
  std::string name;
  size_t subscribers = 0;
  std::list<Topic*>::iterator idle;  // while there are none
};

struct TopicCounts {
  std::string name;
  size_t subscribers = 0;
  GroupStats group;
};

// A topic becomes a group of the Broadcaster with its first subscriber. It
// stays when the last one has gone, with its counters, until its place is
// needed: the one that has been without subscribers the longest makes room for
// a new name. So names that were misspelt, or used once, cost a bounded amount,
// and nobody is refused unless max_topics have subscribers now.
//
// Whatever makes or removes a group, or changes whether it may be removed, does
// so under one mutex: nobody can join a group that is on its way out.
// Publishing holds it for a look-up only.
// Thread: any.
// Lifetime: must end before the engine.
class Topics {
 public:
  static absl::StatusOr<std::unique_ptr<Topics>> Create(
      Engine& engine, const TopicsOptions& options);

  // ResourceExhausted: every place is taken. Unavailable: the engine stops.
  absl::StatusOr<Topic*> Subscribe(std::string_view name,
                                   const ConnectionRef& ref);
  // A connection that lives; one that ends leaves by itself.
  absl::Status Leave(const Topic& topic, const ConnectionRef& ref);
  // ... then, or when its connection has ended. `topic` is not to be used by it
  // again.
  void Unsubscribed(Topic* topic);

  // How many have subscribed to it; with 0 the message has gone nowhere.
  // ResourceExhausted: GroupOptions::max_pending. Unavailable: as above.
  absl::StatusOr<size_t> Publish(std::string_view name, Payload message);

  // NotFound: it never had a subscriber, or made room for another one.
  absl::StatusOr<TopicCounts> Counts(std::string_view name) const;
  std::vector<TopicCounts> All() const;  // by name
  uint64_t made_room() const;            // topics that did

 private:
  Topics(std::unique_ptr<Broadcaster> broadcaster, size_t max_topics,
         const GroupOptions& group);

  absl::StatusOr<Topic*> FindOrAdd(std::string_view name);  // mutex_ held
  absl::Status MakeRoom();                                  // mutex_ held

  const size_t max_topics_;
  const GroupOptions group_;
  const std::unique_ptr<Broadcaster> broadcaster_;
  mutable std::mutex mutex_;  // guards what follows, and the Topic objects
  std::map<std::string, Topic, std::less<>> topics_;
  std::list<Topic*> idle_;  // without subscribers, the longest first
  uint64_t made_room_ = 0;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_TOPICS_H_
