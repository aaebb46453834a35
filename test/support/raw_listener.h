// Internal: a plain listening socket for the engine to dial.
#ifndef SLUICE_TEST_SUPPORT_RAW_LISTENER_H_
#define SLUICE_TEST_SUPPORT_RAW_LISTENER_H_

#include <string>
#include <string_view>
#include <vector>

#include "reactor/address.h"
#include "reactor/internal/unique_fd.h"

namespace sluice::test {

// Thread: the test's. What does not work fails the test.
class RawListener {
 public:
  enum Kind {
    kListen,
    kOnlyBind,   // the port is taken, connecting to it is refused
    kFullQueue,  // TCP: listening, and its queue is full: SYNs are dropped
  };
  explicit RawListener(std::string_view address, Kind kind = kListen);
  ~RawListener();
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  const Address& address() const { return address_; }
  int fd() const { return fd_.get(); }
  // Waits for a connection; *peer is who it is from.
  internal::UniqueFd Accept(Address* peer = nullptr);

 private:
  internal::UniqueFd fd_;
  Address address_;
  std::vector<internal::UniqueFd> fillers_;
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_RAW_LISTENER_H_
