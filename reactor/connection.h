// Public header: one stream, as its handler meets it.
#ifndef SLUICE_REACTOR_CONNECTION_H_
#define SLUICE_REACTOR_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "reactor/address.h"
#include "reactor/close.h"
#include "reactor/connection_ref.h"
#include "reactor/payload.h"

namespace sluice {

class Connection;
class Reactor;
struct RateLimit;

namespace internal {
class ConnectionSlab;
class ReactorImpl;
struct ActiveState;
struct PeerBox;

// The user's object of a connection, with what is needed to destroy it.
struct ContextBase {
  virtual ~ContextBase() = default;
  virtual const void* type() const = 0;
};
template <typename T>
inline constexpr char kContextType = 0;
template <typename T>
struct ContextOf final : ContextBase {
  template <typename... A>
  explicit ContextOf(A&&... a) : value(std::forward<A>(a)...) {}
  const void* type() const override { return &kContextType<T>; }
  T value;
};

// Links of the timer wheel, and what a connection's deadline hangs on.
struct WheelNode {
  uint32_t deadline = 0;  // tick; 0: not in the wheel
  uint32_t next = 0;      // slots; see TimerWheel
  uint32_t previous = 0;
};
}  // namespace internal

// Holds reading on one connection back while it lives (Connection::PauseRead).
// Movable. Thread: any; harmless after the connection or the engine has ended.
class ReadPause {
 public:
  ReadPause() = default;
  // Pauses any connection. From another thread it takes effect when the loop
  // comes to it.
  explicit ReadPause(const ConnectionRef& ref);
  ReadPause(ReadPause&& other) noexcept
      : ref_(std::exchange(other.ref_, ConnectionRef())) {}
  ReadPause& operator=(ReadPause&& other) noexcept {
    if (this != &other) {
      Release();
      ref_ = std::exchange(other.ref_, ConnectionRef());
    }
    return *this;
  }
  ~ReadPause() { Release(); }
  void Release();

 private:
  ConnectionRef ref_;
};

// What Connection::NotifySent calls.
using SentCallback =
    absl::AnyInvocable<void(Connection&, const absl::Status&) &&>;

// One accepted or dialed stream.
// Thread: every method on the connection's loop; those that read or change its
//   bytes or its life check it.
// Lifetime: owned by its reactor, valid until its OnClose returns. Keep a
//   ConnectionRef, not a pointer.
// Errors: a peer's faults arrive in OnClose; Write answers a status and never
//   closes, calls back or blocks.
//
// 64 bytes, one cache line, is all an idle connection costs in user space:
//
//   | generation | fd | state | flags | listener | reason | error |
//   | activity | idle ticks | wheel deadline, next, previous | input |
//   | peer (IPv4 inline, others aside) | context | active state    |
//
// The active state (unread input, unsent output, pauses, limits of its own,
// close deadlines) exists only while there is something to hold.
class alignas(64) Connection {
 public:
  static constexpr size_t kAll = SIZE_MAX;

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // --- Input: bytes that arrived and were not consumed. Views are good until
  // the callback returns, or Discard or Read is called, whichever is first.

  // A view of the first `n` bytes, of all with kAll; empty if fewer are there.
  std::string_view Peek(size_t n = kAll);
  // The same, and consumes them (the view stays good, as above).
  std::string_view Next(size_t n = kAll);
  // Consumes up to `n` bytes; returns how many.
  size_t Discard(size_t n = kAll);
  // Copies and consumes up to out.size() bytes; returns how many.
  size_t Read(std::span<char> out);
  // Unconsumed bytes.
  size_t inbound() const;

  // --- Output. OK: all of it is ours to deliver, in the order of the calls.
  // FailedPrecondition: the connection is closing or closed.
  // ResourceExhausted: over ConnectionLimits::max_outbound, nothing was taken.
  // Inside a callback of this connection small writes are gathered and leave
  // in one system call when it returns.

  absl::Status Write(std::string_view bytes);
  absl::Status Write(std::span<const std::string_view> pieces);
  // From 16 KiB on it is held, not copied, until the kernel has taken it.
  absl::Status Write(Payload payload);
  // Accepted, not yet taken by the kernel.
  size_t outbound() const;

  // Calls `done` once: with OK when the kernel has taken all that was written
  // so far (which does not mean that the peer has it), or with Unavailable, and
  // why, when the connection ends first; then before OnClose. On the loop,
  // never inside this call, except that a connection whose OnClose has begun is
  // told at once. Costs memory until then.
  void NotifySent(SentCallback done);

  // Pauses reading on `source`, which may be on another loop, while the output
  // of this connection is above high water (ConnectionLimits::high_water), and
  // until it ends: a proxy that does so on both its sides holds no more than
  // that for either. Replaces an earlier source; an empty ref ends it. While
  // there is a source, the connection keeps its active state.
  void PauseWhileHigh(const ConnectionRef& source);

  // --- Life.

  // Once called, no more OnTraffic comes and writes fail; OnClose follows, in
  // this turn at the earliest and never inside this call. A second call can
  // only make it quicker (kFlush, then kNow or kReset).
  void Close(CloseMode mode = CloseMode::kFlush);
  // As Close(kFlush), and OnClose is told `reason`.
  void CloseFor(CloseReason reason);
  // FIN after what is queued; reading goes on. Later writes fail.
  void ShutdownWrite();
  // True from accept until Close was called or the connection failed.
  bool open() const;

  // Reading stops until every pause is gone. RST is noticed meanwhile, and FIN
  // too once all bytes before it were delivered. What has already arrived in
  // this callback can still be read; if it is left unread, OnTraffic is called
  // for it again when the last pause goes.
  [[nodiscard]] ReadPause PauseRead();
  // Open, and neither a pause nor the rate limit holds.
  bool reading() const;

  // --- Limits of this connection alone, instead of the engine's
  // (ConnectionLimits). InvalidArgument: nothing has changed.

  // Ends the connection (kIdleTimeout) when no byte came or went for this
  // long; 0 turns it off. Never early, and at most about 0.1 s late. Costs no
  // memory, and traffic only stores the time. Longer than a year counts as one.
  void SetIdleTimeout(std::chrono::milliseconds timeout);
  // The same for read_timeout and write_timeout, counting from now on. Negative
  // is InvalidArgument. Costs the active state while it differs from the
  // engine's.
  absl::Status SetReadTimeout(std::chrono::milliseconds timeout);
  absl::Status SetWriteTimeout(std::chrono::milliseconds timeout);
  // Starts with a full burst; a pause that the limit before has caused ends.
  // Costs the active state.
  absl::Status SetRateLimit(const RateLimit& limit);

  // The handshake is over: ConnectionLimits::handshake_timeout no longer holds.
  void HandshakeDone();

  // Counts `n` messages that arrived against the rate limit; ForEachFrame does
  // so for each frame. True: go on. False, when the limit allows no further one
  // now: with kPause, handle those counted and leave the rest unread, OnTraffic
  // is called for it again; with kClose the connection has ended, because these
  // were too many. Always true while no limit is set.
  bool CountMessages(size_t n = 1);

  // --- Who and where.

  Address peer() const;   // good in OnClose too
  Address local() const;  // getsockname(2)
  int listener() const;   // index in Create's list; -1: dialed
  int fd() const { return fd_; }
  Reactor& reactor() const;
  ConnectionRef ref() const;

  // --- One object of the user's, destroyed after OnClose. 8 bytes while
  // unused.

  // Replaces (and destroys) an earlier one.
  template <typename T, typename... A>
  T& Emplace(A&&... arguments) {
    auto box =
        std::make_unique<internal::ContextOf<T>>(std::forward<A>(arguments)...);
    T& value = box->value;
    SetContext(std::move(box));
    return value;
  }
  // The object. Another type, or none, ends the program: a bug, not an input.
  template <typename T>
  T& Get() {
    return static_cast<internal::ContextOf<T>*>(
               CheckedContext(&internal::kContextType<T>))
        ->value;
  }
  bool has_context() const { return context_ != nullptr; }

 private:
  friend class internal::ReactorImpl;
  friend class internal::ConnectionSlab;
  Connection() = default;
  ~Connection() = default;

  void SetContext(std::unique_ptr<internal::ContextBase> context);
  internal::ContextBase* CheckedContext(const void* type) const;
  internal::ReactorImpl& impl() const;

  // Read by other threads to see whether a ref is stale; 0: free.
  std::atomic<uint32_t> generation_;
  int32_t fd_;
  uint8_t state_;  // internal::ConnectionState
  uint8_t armed_;  // what epoll was told; internal::Interest bits
  uint8_t flags_;  // internal::ConnectionFlag bits
  CloseReason reason_;
  uint16_t listener_;
  uint16_t error_;
  uint32_t activity_tick_;  // of the wheel, when bytes last came or went
  uint32_t idle_ticks_;     // 0: no idle timeout
  internal::WheelNode wheel_;
  uint32_t input_tick_;  // when bytes last came or reading began
  union {
    struct {
      uint32_t ip;    // network byte order
      uint16_t port;  // host byte order
    } peer4_;
    internal::PeerBox* peer_box_;  // kFlagPeerBoxed
  };
  internal::ContextBase* context_;
  internal::ActiveState* active_;
};
static_assert(sizeof(Connection) == 64);

}  // namespace sluice

#endif  // SLUICE_REACTOR_CONNECTION_H_
