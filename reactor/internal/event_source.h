// Internal: a descriptor in a loop's epoll set that is not a connection.
#ifndef SLUICE_REACTOR_INTERNAL_EVENT_SOURCE_H_
#define SLUICE_REACTOR_INTERNAL_EVENT_SOURCE_H_

#include <cstdint>

namespace sluice::internal {

// A listener, the end of a descriptor channel. Lives longer than its
// registration (ReactorImpl::AddSource, RemoveSource).
class EventSource {
 public:
  virtual void OnReady(uint32_t events) = 0;

 protected:
  ~EventSource() = default;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_EVENT_SOURCE_H_
