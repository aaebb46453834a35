#include "reactor/close.h"

namespace sluice {

std::string_view CloseReasonName(CloseReason reason) {
  switch (reason) {
    case CloseReason::kNone:
      return "open";
    case CloseReason::kPeerClosed:
      return "closed by peer";
    case CloseReason::kReset:
      return "reset by peer";
    case CloseReason::kLocal:
      return "closed locally";
    case CloseReason::kIdleTimeout:
      return "idle timeout";
    case CloseReason::kReadTimeout:
      return "read timeout";
    case CloseReason::kWriteTimeout:
      return "write timeout";
    case CloseReason::kHandshakeTimeout:
      return "handshake timeout";
    case CloseReason::kSlowConsumer:
      return "slow consumer";
    case CloseReason::kMemoryPressure:
      return "memory pressure";
    case CloseReason::kProtocolError:
      return "protocol error";
    case CloseReason::kHandlerException:
      return "exception in handler";
    case CloseReason::kRateLimit:
      return "rate limit";
    case CloseReason::kDrain:
      return "drain deadline";
    case CloseReason::kShutdown:
      return "engine shutdown";
    case CloseReason::kError:
      return "socket error";
  }
  return "unknown";  // a value that is none of the enumerators
}

}  // namespace sluice
