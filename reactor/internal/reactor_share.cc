// Output that connections share: payloads that are held instead of copied, and
// the hooks of broadcasts.
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "reactor/internal/broadcast_shard.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
absl::Status ReactorImpl::Write(Connection& c, Payload payload) {
  if (payload.size() < kDirectBytes) {
    const std::string_view bytes = payload.view();
    return Write(c, std::span(&bytes, 1));
  }
  if (absl::Status s = CheckWrite(c, payload.size()); !s.ok()) return s;
  RefreshTick();
  const Payload* const one = &payload;
  if (!SendShared(c, std::span(&one, 1))) {
    return absl::FailedPreconditionError("the connection has failed");
  }
  return absl::OkStatus();
}

bool ReactorImpl::SendShared(Connection& c,
                             std::span<const Payload* const> payloads) {
  const size_t corked =
      in_callback_ == &c ? std::exchange(cork_size_, 0) : size_t{0};
  ssize_t n = 0;
  if (c.active_ == nullptr || c.active_->out.empty()) {
    std::array<iovec, kMostShared + 1> pieces;
    size_t count = 0;
    if (corked > 0) pieces[count++] = {cork_.get(), corked};
    for (const Payload* payload : payloads) {
      const std::string_view bytes = payload->view();
      pieces[count++] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
    n = Send(c, std::span(pieces).first(count));
  }
  size_t sent = n > 0 ? static_cast<size_t>(n) : 0;
  const size_t cork_sent = std::min(sent, corked);
  if (n < 0) {
    if (corked > 0) Activate(c).unsent += corked;
    return false;
  }
  if (cork_sent < corked) {
    Activate(c).out.Append(pool_,
                           {cork_.get() + cork_sent, corked - cork_sent});
  }
  sent -= cork_sent;
  for (const Payload* payload : payloads) {
    const size_t gone = std::min(sent, payload->size());
    sent -= gone;
    if (gone < payload->size()) Activate(c).out.Append(pool_, *payload, gone);
  }
  if (in_callback_ != &c && c.active_ != nullptr &&
      (!(c.armed_ & kInterestWrite) || HasNews(c))) {
    MarkDirty(c);
  }
  return true;
}

void ReactorImpl::AddShard(std::shared_ptr<BroadcastShard> shard) {
  shards_.push_back(std::move(shard));
}

bool ReactorImpl::ShardsDue() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->Due(); });
}

void ReactorImpl::RunShards() {
  RefreshTick();
  for (const auto& shard : shards_) {
    if (shard->Due()) shard->Run();
  }
  std::erase_if(shards_, [](const auto& shard) { return shard->done(); });
}

void ReactorImpl::TellShardsDrained(const Connection& c) {
  c.active_->group_waits = false;
  for (const auto& shard : shards_) shard->Drained(c);
}

void ReactorImpl::TellShardsEnded(const Connection& c) {
  for (const auto& shard : shards_) shard->ConnectionEnds(c);
}

}  // namespace sluice::internal
