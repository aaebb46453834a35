#include "reactor/internal/load_balancer.h"

#include <string_view>

#include "absl/hash/hash.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {

uint64_t HostHash(const PeerName& peer) {
  const size_t size = peer.kind == PeerName::Kind::kIpv4 ? 4 : sizeof(peer.ip);
  return absl::HashOf(
      absl::string_view(reinterpret_cast<const char*>(peer.ip), size));
}

int LoadBalancer::FirstWithRoom(int from, int reactors,
                                absl::FunctionRef<size_t(int)> load) {
  for (int i = 0; i < reactors; ++i) {
    const int candidate = (from + i) % reactors;
    if (load(candidate) != kFull) return candidate;
  }
  return kNone;
}

int LoadBalancer::Pick(const PeerName& peer, int reactors,
                       absl::FunctionRef<size_t(int)> load) {
  const bool has_host =
      peer.kind == PeerName::Kind::kIpv4 || peer.kind == PeerName::Kind::kIpv6;
  if (policy_ == LoadBalancing::kSourceAddressHash && has_host) {
    const uint64_t n = static_cast<uint64_t>(reactors);
    return FirstWithRoom(static_cast<int>(HostHash(peer) % n), reactors, load);
  }
  // Least connections walks from where round robin would go on, so that equal
  // loads are spread too.
  int picked = FirstWithRoom(next_, reactors, load);
  if (picked == kNone) return kNone;
  if (policy_ == LoadBalancing::kLeastConnections) {
    size_t least = load(picked);
    for (int i = 1; i < reactors && least > 0; ++i) {
      const int candidate = (next_ + i) % reactors;
      const size_t candidate_load = load(candidate);
      if (candidate_load < least) {
        least = candidate_load;
        picked = candidate;
      }
    }
  }
  next_ = (picked + 1) % reactors;
  return picked;
}

}  // namespace sluice::internal
