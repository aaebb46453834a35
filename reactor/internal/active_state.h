// Internal: what a connection holds only while it has something to hold.
#ifndef SLUICE_REACTOR_INTERNAL_ACTIVE_STATE_H_
#define SLUICE_REACTOR_INTERNAL_ACTIVE_STATE_H_

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/in_buffer.h"
#include "reactor/internal/out_queue.h"

namespace sluice::internal {

enum class ConnectionState : uint8_t {
  kFree,       // not in use
  kDialing,    // connect(2) is under way; the handler knows nothing yet
  kOpen,       // serving
  kFlushing,   // Close(kFlush): output is still leaving, input is thrown away
  kLingering,  // our FIN is out, waiting for the peer's
  kMarked,     // done: OnClose at the end of this turn
  kClosed,     // OnClose is running or has run
};

inline ConnectionState StateOf(uint8_t state) {
  return static_cast<ConnectionState>(state);
}

enum ConnectionFlag : uint8_t {
  kFlagPeerBoxed = 1 << 0,      // IPv6 peer, in a PeerBox
  kFlagPeerUnix = 1 << 1,       // Unix peer
  kFlagOpened = 1 << 2,         // OnOpen has been called
  kFlagFinSeen = 1 << 3,        // the peer will send no more
  kFlagFinSent = 1 << 4,        // shutdown(SHUT_WR) was done
  kFlagShutdownWrite = 1 << 5,  // ... is wanted once the output has left
  kFlagDirty = 1 << 6,          // in ReactorImpl::dirty_
  kFlagReadyAgain = 1 << 7,     // in ReactorImpl::ready_again_
};

// What epoll is told about a connection.
enum Interest : uint8_t {
  kInterestRead = 1 << 0,
  kInterestWrite = 1 << 1,
  kInterestHangup = 1 << 2,
  kInterestEdge = 1 << 3,
};

inline uint32_t EpollEvents(uint8_t interest) {
  uint32_t events = 0;
  if (interest & kInterestRead) events |= EPOLLIN;
  if (interest & kInterestWrite) events |= EPOLLOUT;
  if (interest & kInterestHangup) events |= EPOLLRDHUP;
  if (interest & kInterestEdge) events |= EPOLLET;
  return events;
}

// A connect(2) under way.
struct DialState {
  std::string address;
  std::function<absl::Status(int fd)> after_connect;
  DialDone done;
};

// Who wants to know what becomes of the output.
struct OutputWatch {
  struct Mark {
    uint64_t at;  // told when so many bytes were taken
    SentCallback done;
  };
  uint64_t taken = 0;     // by the kernel, since the watch began
  std::list<Mark> marks;  // in the order of `at`; no memory while empty
  ConnectionRef source;   // paused while the output is above high water
  ReadPause source_pause;

  bool empty() const { return marks.empty() && source == ConnectionRef(); }
};

struct ActiveState {
  InBuffer in;
  OutQueue out;
  uint32_t pauses = 0;
  uint32_t deadline = 0;   // tick: end of dialing, flushing, lingering
  size_t thrown_away = 0;  // input since Close(kFlush)
  size_t unsent = 0;       // dropped output, for CloseInfo
  std::unique_ptr<DialState> dial;
  std::unique_ptr<OutputWatch> watch;
  bool above_high = false;   // OnHighWater was called, OnLowWater not yet
  bool tell_again = false;   // input waits since the last pause went
  bool group_waits = false;  // a broadcast, for the output to have left

  bool idle() const {
    return in.size() == 0 && out.empty() && pauses == 0 && deadline == 0 &&
           unsent == 0 && dial == nullptr && watch == nullptr && !above_high;
  }
};

// A peer that does not fit inline.
struct PeerBox {
  unsigned char ip[16];
  uint32_t scope_id;
  uint16_t port;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_ACTIVE_STATE_H_
