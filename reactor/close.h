// Public header: how a connection ends, and how its handler is told.
#ifndef SLUICE_REACTOR_CLOSE_H_
#define SLUICE_REACTOR_CLOSE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// How Connection::Close ends a connection.
enum class CloseMode : uint8_t {
  // Send what is queued (at most ConnectionLimits::flush_timeout), then FIN,
  // then throw away what the peer still sends until its FIN, within
  // ConnectionLimits::linger_timeout and linger_bytes. The last part is what
  // keeps the tail of the answer alive: closing a socket that has unread bytes
  // makes Linux send RST, and the peer's kernel then drops what it has not yet
  // read.
  kFlush,
  // Drop what is queued and close at the end of this turn of the loop.
  kNow,
  // As kNow, and the peer gets RST instead of FIN (SO_LINGER {1, 0}).
  kReset,
};

// Why a connection ended.
enum class CloseReason : uint8_t {
  kNone,              // still open
  kPeerClosed,        // the peer's FIN, and nothing was left to send
  kReset,             // the peer's RST, or a write to a peer that is gone
  kLocal,             // Connection::Close, or Action::kClose
  kIdleTimeout,       // no byte in or out for the idle timeout
  kReadTimeout,       // no byte in for the read timeout
  kWriteTimeout,      // the peer did not take the output in time
  kHandshakeTimeout,  // Connection::HandshakeDone was not called in time
  kSlowConsumer,      // output above ConnectionLimits::max_outbound
  kMemoryPressure,    // it held the most while the BufferBudget was exceeded
  kProtocolError,     // a decoder refused the input
  kHandlerException,  // an exception left a callback
  kRateLimit,         // more input than the limit allows
  kDrain,             // Engine::Drain's deadline passed
  kShutdown,          // Engine::Stop, or Action::kShutdown
  kError,             // any other error of the socket; see error
};
inline constexpr size_t kCloseReasons =
    static_cast<size_t>(CloseReason::kError) + 1;

// "idle timeout", "reset by peer", ...: for logs. Never fails.
std::string_view CloseReasonName(CloseReason reason);

// What OnClose is told.
struct CloseInfo {
  CloseReason reason = CloseReason::kNone;
  int error = 0;            // errno of the socket, 0 if there was none
  size_t unsent_bytes = 0;  // accepted by Write, never taken by the kernel
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_CLOSE_H_
