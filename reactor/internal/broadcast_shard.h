// Internal: what a Broadcaster has on one reactor.
#ifndef SLUICE_REACTOR_INTERNAL_BROADCAST_SHARD_H_
#define SLUICE_REACTOR_INTERNAL_BROADCAST_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "reactor/connection.h"
#include "reactor/internal/broadcast_group.h"
#include "reactor/internal/broadcast_pace.h"

namespace sluice::internal {

class ReactorImpl;

// For each group a part: its members on this reactor in a dense list, and the
// messages that some of them have not got yet.
//
//   messages    |  7  |  8  |  9  |                    end = 10
//   members     | next 10 | next 10 | next 7 | next 7 | next 10 |
//                 .- had their turn -.  ^ cursor        '- joined since
//
// The cursor goes round and round; whom it meets gets everything that is due to
// it, in one send. When it has come round, what was there when it set out is
// done. So a member costs the number of its next message, not a queue, and
// messages that come faster than the cursor goes round leave together.
//
// A member is found through the chain of its connection's memberships (`links`,
// whose heads are by slot), which is how a connection that ends leaves.
// Thread: the reactor's.
class BroadcastShard {
 public:
  BroadcastShard(ReactorImpl& reactor, size_t index, int sends_per_turn,
                 BroadcastPace pace);
  ~BroadcastShard();
  BroadcastShard(const BroadcastShard&) = delete;
  BroadcastShard& operator=(const BroadcastShard&) = delete;

  void Join(const std::shared_ptr<BroadcastGroup>& group, const Connection& c);
  void Leave(BroadcastGroup& group, const Connection& c);
  void Publish(const BroadcastMessageRef& message);
  void Remove(BroadcastGroup& group);
  // No more groups will come: done() once those there are have ended.
  void End() { ending_ = true; }
  bool done() const { return ending_ && live_parts_ == 0; }

  // --- For the reactor.
  // Is there something that Run could do now?
  bool Due() const { return !due_.empty() && !paused_; }
  void Run();  // a slice
  // Before OnClose.
  void ConnectionEnds(const Connection& c);
  // A connection that a member waits for (WhenSlow::kLatest) has no more
  // output.
  void Drained(const Connection& c);

 private:
  struct Member {
    Member(uint64_t connection_key, uint32_t first_message, uint32_t link)
        : key(connection_key), next(first_message), link_and_waits(link << 1) {}
    uint32_t link() const { return link_and_waits >> 1; }
    // For its output to leave; it wants the newest message only.
    bool waits() const { return (link_and_waits & 1) != 0; }

    uint64_t key;   // of the connection
    uint32_t next;  // number of the first message it has not got
    uint32_t link_and_waits;
  };
  static_assert(sizeof(Member) == 16);

  struct Link {
    uint32_t part;
    uint32_t index;  // of the member
    uint32_t next;   // of the same connection, or of the free ones
  };

  struct Message {
    Payload payload;
    BroadcastMessageRef pending;  // unset once only waiting members want it
  };

  struct Part {
    std::shared_ptr<BroadcastGroup> group;
    GroupOnReactor* counters;
    std::vector<Member> members;
    // Numbers end - messages.size() to end - 1; they wrap round.
    std::deque<Message> messages;
    uint32_t end = 0;
    uint32_t round_end = 0;  // `end` when the cursor last set out
    size_t cursor = 0;
    size_t behind = 0;    // members that something is due to and do not wait
    size_t waiting = 0;   // members that do
    bool queued = false;  // in due_
    bool removed = false;
  };

  static constexpr uint32_t kNoLink = UINT32_MAX >> 1;

  static uint32_t DueTo(const Part& part, const Member& member) {
    return part.end - member.next;
  }
  Part& PartFor(const std::shared_ptr<BroadcastGroup>& group);
  uint32_t FindLink(uint32_t slot, uint32_t part) const;
  void Enqueue(uint32_t part);
  // At most `sends`, how many is returned.
  int RunPart(Part& part, int sends);
  int Serve(Part& part, Member& member, int sends);
  void ServeSlow(Part& part, Member& member, Connection& c);
  // It has got so many more, or will not get them.
  void Advance(Part& part, Member& member, uint32_t messages, Counter* as);
  void StopWaiting(Part& part, Member& member);
  void DropMessages(Part& part, uint32_t before);
  void GiveMemoryBack(Part& part);
  void RemoveMember(Part& part, size_t index);
  void Unlink(uint32_t slot, uint32_t link);
  void EndSome(uint32_t part);
  bool Allowed();

  ReactorImpl& reactor_;
  const size_t index_;  // of the reactor
  const int sends_per_turn_;
  BroadcastPace pace_;
  bool paused_ = false;  // a timer runs until the pace allows more
  bool ending_ = false;
  size_t live_parts_ = 0;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<uint32_t> free_parts_;
  std::vector<Link> links_;
  size_t live_links_ = 0;
  uint32_t free_links_ = kNoLink;
  std::vector<uint32_t> heads_;  // of the chain of each slot
  std::deque<uint32_t> due_;     // parts, in turn
  // Lives as long as the shard: what a timer asks before it touches it.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_BROADCAST_SHARD_H_
