// Internal: which reactor gets the next connection.
#ifndef SLUICE_REACTOR_INTERNAL_LOAD_BALANCER_H_
#define SLUICE_REACTOR_INTERNAL_LOAD_BALANCER_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "reactor/internal/accepted_socket.h"
#include "reactor/options.h"

namespace sluice::internal {

// A hash of the host alone: ports and the Unix name do not count.
uint64_t HostHash(const PeerName& peer);

// Thread: one.
class LoadBalancer {
 public:
  static constexpr int kNone = -1;
  static constexpr size_t kFull = SIZE_MAX;

  explicit LoadBalancer(LoadBalancing policy) : policy_(policy) {}

  // Of reactors 0 ... `reactors` - 1. load(i) is the number of connections of
  // reactor i, or kFull if it takes no more; such a reactor is passed over, by
  // hashing to the next one with room. kNone if all are full.
  int Pick(const PeerName& peer, int reactors,
           absl::FunctionRef<size_t(int)> load);

 private:
  static int FirstWithRoom(int from, int reactors,
                           absl::FunctionRef<size_t(int)> load);

  const LoadBalancing policy_;
  int next_ = 0;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_LOAD_BALANCER_H_
