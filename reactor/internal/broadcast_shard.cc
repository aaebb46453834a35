#include "reactor/internal/broadcast_shard.h"

#include <algorithm>
#include <array>
#include <climits>
#include <string>
#include <utility>

#include "reactor/internal/clock.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
namespace {

// Of one send: more than a socket takes at once would only be queued.
constexpr size_t kMessagesPerSend = ReactorImpl::kMostShared;
constexpr size_t kBytesPerSend = size_t{64} << 10;
// Members that nothing is due to cost little, but not nothing: so many count as
// a send.
constexpr int kLooksPerSend = 64;
// Memberships of a removed group that end in one turn.
constexpr size_t kEndingsPerTurn = 4096;
// Entries of a list that keeps its room while it is empty.
constexpr size_t kKept = 4096;

uint32_t SlotOf(uint64_t key) { return static_cast<uint32_t>(key); }

}  // namespace

BroadcastShard::BroadcastShard(ReactorImpl& reactor, size_t index,
                               int sends_per_turn, BroadcastPace pace)
    : reactor_(reactor),
      index_(index),
      sends_per_turn_(sends_per_turn),
      pace_(pace) {}

BroadcastShard::~BroadcastShard() { *alive_ = false; }

// --- Members.

BroadcastShard::Part& BroadcastShard::PartFor(
    const std::shared_ptr<BroadcastGroup>& group) {
  GroupOnReactor& here = group->on(index_);
  if (here.part == GroupOnReactor::kNone) {
    if (free_parts_.empty()) {
      here.part = static_cast<uint32_t>(parts_.size());
      parts_.emplace_back();
    } else {
      here.part = free_parts_.back();
      free_parts_.pop_back();
    }
    parts_[here.part] = std::make_unique<Part>();
    parts_[here.part]->group = group;
    parts_[here.part]->counters = &here;
    ++live_parts_;
  }
  return *parts_[here.part];
}

uint32_t BroadcastShard::FindLink(uint32_t slot, uint32_t part) const {
  uint32_t link = slot < heads_.size() ? heads_[slot] : kNoLink;
  while (link != kNoLink && links_[link].part != part) link = links_[link].next;
  return link;
}

void BroadcastShard::Join(const std::shared_ptr<BroadcastGroup>& group,
                          const Connection& c) {
  GroupOnReactor& here = group->on(index_);
  if (here.ended) return;
  Part& part = PartFor(group);
  const uint64_t key = reactor_.KeyOf(c);
  const uint32_t slot = SlotOf(key);
  if (FindLink(slot, here.part) != kNoLink) return;
  if (heads_.size() <= slot) heads_.resize(slot + 1, kNoLink);
  if (free_links_ == kNoLink) {
    links_.push_back({0, 0, kNoLink});
    free_links_ = static_cast<uint32_t>(links_.size() - 1);
  }
  const uint32_t link = free_links_;
  // Nothing below throws.
  part.members.emplace_back(key, part.end, link);
  free_links_ = links_[link].next;
  links_[link] = {here.part, static_cast<uint32_t>(part.members.size() - 1),
                  heads_[slot]};
  heads_[slot] = link;
  ++live_links_;
  here.members.Set(part.members.size());
}

void BroadcastShard::Leave(BroadcastGroup& group, const Connection& c) {
  const uint32_t id = group.on(index_).part;
  if (id == GroupOnReactor::kNone) return;
  const uint32_t link = FindLink(SlotOf(reactor_.KeyOf(c)), id);
  if (link == kNoLink) return;
  Part& part = *parts_[id];
  const uint32_t index = links_[link].index;
  Member& member = part.members[index];
  reactor_.RefreshTick();
  if (!member.waits()) Serve(part, member, INT_MAX);
  if (member.waits()) {  // it would have been skipped, but for staying
    StopWaiting(part, member);
    Advance(part, member, DueTo(part, member), &part.counters->skipped);
  }
  RemoveMember(part, index);
}

void BroadcastShard::ConnectionEnds(const Connection& c) {
  const uint32_t slot = SlotOf(reactor_.KeyOf(c));
  while (slot < heads_.size() && heads_[slot] != kNoLink) {
    const Link link = links_[heads_[slot]];
    Part& part = *parts_[link.part];
    Member& member = part.members[link.index];
    if (member.waits()) StopWaiting(part, member);
    Advance(part, member, DueTo(part, member), &part.counters->dropped);
    RemoveMember(part, link.index);
  }
}

void BroadcastShard::Unlink(uint32_t slot, uint32_t link) {
  uint32_t* to = &heads_[slot];
  while (*to != link) to = &links_[*to].next;
  *to = links_[link].next;
  links_[link].next = free_links_;
  free_links_ = link;
  --live_links_;
}

// Of a member that nothing is due to. Whoever takes its place must not move
// from behind the cursor's path to the front of it or the other way round: the
// round would pass one over.
//
//   | done ... x ... y | cursor ... z |   x goes: y to x, z to y, cursor - 1
void BroadcastShard::RemoveMember(Part& part, size_t index) {
  std::vector<Member>& members = part.members;
  Unlink(SlotOf(members[index].key), members[index].link());
  const auto move = [&](size_t from, size_t to) {
    if (from == to) return;
    members[to] = members[from];
    links_[members[to].link()].index = static_cast<uint32_t>(to);
  };
  size_t hole = index;
  if (hole < part.cursor) {
    --part.cursor;
    move(part.cursor, hole);
    hole = part.cursor;
  }
  move(members.size() - 1, hole);
  members.pop_back();
  part.counters->members.Set(members.size());
  if (part.behind == 0) DropMessages(part, part.end);
  if (members.empty()) GiveMemoryBack(part);
}

// What a million members took is not kept for the next ten; what ten take is.
void BroadcastShard::GiveMemoryBack(Part& part) {
  if (part.members.capacity() > kKept) std::vector<Member>().swap(part.members);
  if (live_links_ > 0 || links_.capacity() <= kKept) return;
  std::vector<Link>().swap(links_);
  std::vector<uint32_t>().swap(heads_);
  free_links_ = kNoLink;
}

// --- Messages.

void BroadcastShard::Publish(const BroadcastMessageRef& message) {
  BroadcastGroup& group = *message->group();
  const uint32_t id = group.on(index_).part;
  if (id == GroupOnReactor::kNone || group.on(index_).ended) return;
  Part& part = *parts_[id];
  if (part.members.empty()) return;
  part.messages.push_back({message->payload(), message});
  ++part.end;
  part.behind = part.members.size() - part.waiting;
  if (part.behind == 0) {
    DropMessages(part, part.end);
  } else {
    Enqueue(id);
  }
}

void BroadcastShard::Enqueue(uint32_t part) {
  if (std::exchange(parts_[part]->queued, true)) return;
  due_.push_back(part);
}

void BroadcastShard::Advance(Part& part, Member& member, uint32_t messages,
                             Counter* as) {
  if (messages == 0) return;
  member.next += messages;
  as->Add(messages);
  if (member.next == part.end && !member.waits()) --part.behind;
}

// Those before number `before`. The newest stays for members that wait, but is
// not pending for their sake: they may never read.
void BroadcastShard::DropMessages(Part& part, uint32_t before) {
  const size_t keep = std::max<size_t>(part.end - before, part.waiting > 0);
  while (part.messages.size() > keep) part.messages.pop_front();
  if (before == part.end && !part.messages.empty()) {
    part.messages.back().pending = nullptr;
  }
}

bool BroadcastShard::Allowed() {
  if (!pace_.limited()) return true;
  const int64_t wait = pace_.Wait(PreciseNow());
  if (wait == 0) return true;
  paused_ = true;
  reactor_.RunAfter(std::chrono::nanoseconds(wait), [this, alive = alive_] {
    if (*alive) paused_ = false;
  });
  return false;
}

void BroadcastShard::Run() {
  int sends = sends_per_turn_;
  while (sends > 0 && !due_.empty() && Allowed()) {
    const uint32_t id = due_.front();
    due_.pop_front();
    Part& part = *parts_[id];
    part.queued = false;
    if (part.behind > 0) {
      // Paced, one at a time: the allowance may end with any of them.
      sends -= RunPart(part, pace_.limited() ? 1 : sends);
      if (part.behind > 0) Enqueue(id);
    }
    if (part.removed && part.behind == 0) {
      EndSome(id);
      return;
    }
  }
}

int BroadcastShard::RunPart(Part& part, int sends) {
  int done = 0;
  int looks = 0;
  while (part.behind > 0 && done < sends) {
    if (part.cursor == part.members.size()) {
      part.cursor = 0;
      DropMessages(part, part.round_end);
      part.round_end = part.end;
    }
    Member& member = part.members[part.cursor];
    if (DueTo(part, member) == 0 || member.waits()) {
      ++part.cursor;
      if (++looks % kLooksPerSend == 0) ++done;
      continue;
    }
    if (part.cursor + 4 < part.members.size()) {
      reactor_.Prefetch(part.members[part.cursor + 4].key);
    }
    done += Serve(part, member, sends - done);
    if (DueTo(part, member) == 0 || member.waits()) ++part.cursor;
  }
  if (part.behind == 0) DropMessages(part, part.end);
  return done;
}

// At most `sends` system calls, and says how many; at least 1, for the trouble.
int BroadcastShard::Serve(Part& part, Member& member, int sends) {
  Connection* const c = reactor_.FindKey(member.key);
  const size_t most = reactor_.MostOutbound();
  int done = 0;
  while (DueTo(part, member) > 0) {
    if (!reactor_.TakesOutput(*c)) {
      Advance(part, member, DueTo(part, member), &part.counters->dropped);
      break;
    }
    if (done == sends) return done;
    const size_t backlog = reactor_.Outbound(*c);
    // Without a backlog a message of any length goes.
    const size_t room =
        backlog == 0 ? SIZE_MAX : most - std::min(backlog, most);
    std::array<const Payload*, kMessagesPerSend> batch;
    const size_t due = DueTo(part, member);
    const auto first = part.messages.end() - static_cast<ptrdiff_t>(due);
    uint32_t count = 0;
    size_t bytes = 0;
    while (count < std::min<size_t>(due, kMessagesPerSend) &&
           bytes < kBytesPerSend) {
      const Payload& next = first[static_cast<ptrdiff_t>(count)].payload;
      if (bytes + next.size() > room) break;
      batch[count++] = &next;
      bytes += next.size();
    }
    if (backlog > part.group->options().max_backlog || count == 0) {
      ServeSlow(part, member, *c);
      break;
    }
    ++done;
    if (pace_.limited()) pace_.Sent(bytes, PreciseNow());
    const bool sent = reactor_.SendShared(*c, std::span(batch).first(count));
    Advance(part, member, count,
            sent ? &part.counters->delivered : &part.counters->dropped);
  }
  return std::max(done, 1);
}

void BroadcastShard::ServeSlow(Part& part, Member& member, Connection& c) {
  const uint32_t due = DueTo(part, member);
  switch (part.group->options().when_slow) {
    case WhenSlow::kSkip:
      Advance(part, member, due, &part.counters->skipped);
      return;
    case WhenSlow::kClose:
      part.counters->closed.Add(1);
      Advance(part, member, due, &part.counters->dropped);
      reactor_.CloseForLimit(
          c, CloseReason::kSlowConsumer,
          "a broadcast's max_backlog is " +
              std::to_string(part.group->options().max_backlog));
      return;
    case WhenSlow::kLatest:
      Advance(part, member, due - 1, &part.counters->skipped);
      member.link_and_waits |= 1;
      ++part.waiting;
      --part.behind;
      reactor_.TellDrained(c);
      return;
  }
}

void BroadcastShard::StopWaiting(Part& part, Member& member) {
  member.link_and_waits &= ~uint32_t{1};
  --part.waiting;
  ++part.behind;  // the newest, at least, is due to it
  if (DueTo(part, member) == 0) --member.next;  // 2^32 messages ago
}

void BroadcastShard::Drained(const Connection& c) {
  const uint32_t slot = SlotOf(reactor_.KeyOf(c));
  uint32_t link = slot < heads_.size() ? heads_[slot] : kNoLink;
  for (; link != kNoLink; link = links_[link].next) {
    const uint32_t id = links_[link].part;
    Part& part = *parts_[id];
    Member& member = part.members[links_[link].index];
    if (!member.waits()) continue;
    StopWaiting(part, member);
    Advance(part, member, DueTo(part, member) - 1, &part.counters->skipped);
    // If the cursor has passed it, this round is not the one that serves it.
    if (static_cast<int32_t>(part.round_end - member.next) > 0) {
      part.round_end = member.next;
    }
    Enqueue(id);
  }
}

// --- The end of a group.

void BroadcastShard::Remove(BroadcastGroup& group) {
  GroupOnReactor& here = group.on(index_);
  here.ended = true;
  if (here.part == GroupOnReactor::kNone) return;
  parts_[here.part]->removed = true;
  Enqueue(here.part);
}

void BroadcastShard::EndSome(uint32_t id) {
  Part& part = *parts_[id];
  for (size_t i = 0; i < kEndingsPerTurn && !part.members.empty(); ++i) {
    Member& member = part.members.back();
    if (member.waits()) {
      StopWaiting(part, member);
      Advance(part, member, DueTo(part, member), &part.counters->skipped);
    }
    RemoveMember(part, part.members.size() - 1);
  }
  if (!part.members.empty()) {
    Enqueue(id);
    return;
  }
  part.counters->part = GroupOnReactor::kNone;
  parts_[id] = nullptr;
  free_parts_.push_back(id);
  --live_parts_;
}

}  // namespace sluice::internal
