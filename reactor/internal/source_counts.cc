#include "reactor/internal/source_counts.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/hash/hash.h"
#include "reactor/internal/check.h"

namespace sluice::internal {
namespace {

// As in ::ffff:192.0.2.1, which never is an IPv6 peer here.
constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0,    0,
                                       0, 0, 0, 0, 0xff, 0xff};

// The address as in6_addr has it. The link of a link-local one stands in bytes
// 4 to 7, which are zero in its prefix.
using Bytes = std::array<unsigned char, 16>;

bool IsLinkLocal(const unsigned char* ip) {
  return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

}  // namespace

Source Source::Of(const PeerName& peer) {
  Bytes bytes{};
  if (peer.kind != PeerName::Kind::kIpv6) {
    std::memcpy(bytes.data(), kMapped, sizeof(kMapped));
    std::memcpy(bytes.data() + sizeof(kMapped), peer.ip, 4);
  } else if (IsLinkLocal(peer.ip)) {
    std::memcpy(bytes.data(), peer.ip, bytes.size());
    std::memcpy(bytes.data() + 4, &peer.scope_id, sizeof(peer.scope_id));
  } else {
    std::memcpy(bytes.data(), peer.ip, 8);
  }
  Source source;
  std::memcpy(&source.high, bytes.data(), 8);
  std::memcpy(&source.low, bytes.data() + 8, 8);
  return source;
}

std::string Source::ToString() const {
  Bytes bytes;
  std::memcpy(bytes.data(), &high, 8);
  std::memcpy(bytes.data() + 8, &low, 8);
  char text[INET6_ADDRSTRLEN] = "";
  if (std::memcmp(bytes.data(), kMapped, sizeof(kMapped)) == 0) {
    inet_ntop(AF_INET, bytes.data() + sizeof(kMapped), text, sizeof(text));
    return text;
  }
  if (!IsLinkLocal(bytes.data())) {
    inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
    return std::string(text) + "/64";
  }
  uint32_t scope_id;
  std::memcpy(&scope_id, bytes.data() + 4, sizeof(scope_id));
  std::memset(bytes.data() + 4, 0, sizeof(scope_id));
  inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  return std::string(text) + "%" + std::to_string(scope_id);
}

size_t SourceCounts::ShardOf(const Source& source) {
  // Not the low bits, by which the shard's own table goes.
  return absl::HashOf(source) >> 40 & (kShards - 1);
}

SourceCounts::Answer SourceCounts::TryTake(const Source& source,
                                           absl::FunctionRef<bool()> admit) {
  Shard& shard = shards_[ShardOf(source)];
  MutexLock lock(shard.mutex);
  const auto found = shard.counts.find(source);
  if (found != shard.counts.end() && found->second >= most_) {
    return Answer::kSourceFull;
  }
  if (!admit()) return Answer::kRefused;
  if (found != shard.counts.end()) {
    ++found->second;
  } else {
    shard.counts.emplace(source, 1);
  }
  return Answer::kTaken;
}

void SourceCounts::GiveBack(const Source& source) {
  Shard& shard = shards_[ShardOf(source)];
  MutexLock lock(shard.mutex);
  const auto found = shard.counts.find(source);
  SLUICE_CHECK(found != shard.counts.end(),
               "a source gives back more connections than it has");
  if (--found->second > 0) return;
  shard.counts.erase(found);
  // Erasing alone keeps the memory of a flood that is over.
  if (shard.counts.capacity() > kLoosest * (shard.counts.size() + 1)) {
    shard.counts.rehash(0);
  }
}

size_t SourceCounts::sources() const {
  size_t sum = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    sum += shard.counts.size();
  }
  return sum;
}

uint32_t SourceCounts::CountOf(const Source& source) const {
  const Shard& shard = shards_[ShardOf(source)];
  MutexLock lock(shard.mutex);
  const auto found = shard.counts.find(source);
  return found == shard.counts.end() ? 0 : found->second;
}

size_t SourceCounts::capacity() const {
  size_t sum = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    sum += shard.counts.capacity();
  }
  return sum;
}

}  // namespace sluice::internal
