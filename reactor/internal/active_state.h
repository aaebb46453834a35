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
#include "reactor/internal/rate_bucket.h"
#include "reactor/options.h"

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

// What epoll is told about a connection, and one thing that it is not told.
enum Interest : uint8_t {
  kInterestRead = 1 << 0,
  kInterestWrite = 1 << 1,
  kInterestHangup = 1 << 2,
  kInterestEdge = 1 << 3,
  // Reading is held back by the BufferBudget. Here and not in the active state:
  // this is no time to allocate one for each connection.
  kInterestHeldBack = 1 << 4,
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

// Bounds that a connection may have of its own.
struct Bounds {
  uint32_t read_ticks = 0;  // 0: never
  uint32_t write_ticks = 0;
  RateLimit bytes;  // bounds of input
  RateLimit messages;
  size_t read_most = SIZE_MAX;  // bytes at once
  WhenOverRate when_over = WhenOverRate::kPause;

  void SetRate(const sluice::RateLimit& limit);
  bool rate_limited() const { return bytes.limited() || messages.limited(); }
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

  bool rate_paused = false;  // the limit allows no more input now
  bool listed = false;       // in ReactorImpl's list of those with buffers
  uint32_t listed_next = 0;  // slots; 0: none
  uint32_t listed_previous = 0;
  uint32_t output_tick = 0;  // when output began to wait or last left
  uint32_t handshake = 0;    // tick at which it must be over; 0: it is
  RateBucket bytes;          // both zero when full
  RateBucket messages;
  std::unique_ptr<Bounds> own;

  // Something was charged that has not run in again.
  bool charged() const { return (bytes.full_at | messages.full_at) != 0; }
  bool idle() const {
    return in.size() == 0 && out.empty() && pauses == 0 && deadline == 0 &&
           unsent == 0 && dial == nullptr && watch == nullptr && !above_high &&
           !rate_paused && handshake == 0 && !charged() && own == nullptr;
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
