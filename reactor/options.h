// Public header: every setting of an engine, each with its default, its unit
// and what follows from it.
#ifndef SLUICE_REACTOR_OPTIONS_H_
#define SLUICE_REACTOR_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reactor/address.h"
#include "reactor/buffer_budget.h"

namespace sluice {

// TCP keep-alive probes (tcp(7): TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT).
// They notice a dead peer only while nothing is unacknowledged; for data that
// is on its way set SocketOptions::user_timeout as well.
struct KeepAlive {
  std::chrono::seconds idle{600};     // before the first probe; 1 to 32,767
  std::chrono::seconds interval{30};  // between probes; 1 to 32,767
  int count = 5;  // unanswered probes until it is dead; 1 to 127
};

// Options of a socket by name, and two hooks for every option without a name.
// Options of TCP are left out on Unix sockets. What is set on a listening
// socket is inherited by the accepted ones (Linux copies it), so none of these
// costs a system call a connection, except after_accept.
struct SocketOptions {
  bool no_delay = true;                       // TCP_NODELAY
  std::optional<KeepAlive> keep_alive;        // SO_KEEPALIVE; off unless set
  std::chrono::milliseconds user_timeout{0};  // TCP_USER_TIMEOUT; 0: kernel's
  // SO_RCVBUF, SO_SNDBUF in bytes; 0 leaves the kernel's autotuning on (setting
  // them turns it off for the socket, tcp(7)).
  int receive_buffer = 0;
  int send_buffer = 0;
  // TCP_NOTSENT_LOWAT in bytes; 0: the kernel's (net.ipv4.tcp_notsent_lowat).
  // The kernel then takes no more output while so much of what it has is still
  // unsent: what waits for a slow peer waits here, where it is counted,
  // bounded and told of (ConnectionLimits), instead of in the kernel's memory.
  int not_sent_low_water = 0;
  // SO_LINGER in seconds. Unset is right nearly always: the engine flushes by
  // itself. 0 makes every close a reset. With more, close(2) waits inside the
  // loop until the peer has acknowledged (Linux does so on non-blocking sockets
  // too), and every connection of the reactor waits with it.
  std::optional<std::chrono::seconds> linger;
  std::string bind_to_device;  // SO_BINDTODEVICE, for example "eth0"
  // SO_REUSEADDR on listening sockets, and on dialed ones with a source port.
  bool reuse_address = true;

  // Called with the descriptor after the options above and before bind (for a
  // dialed socket: before connect). A status other than OK is the result of
  // Create, or of the dial.
  std::function<absl::Status(int fd)> before_bind;
  // Called on the connection's reactor with each accepted (or connected)
  // descriptor, before OnOpen. A status other than OK closes the connection
  // without OnOpen and is counted.
  std::function<absl::Status(int fd)> after_accept;
};

// What happens to a connection beyond max_connections.
enum class WhenFull : uint8_t {
  kWait,    // it stays in the kernel's queue until another one ends
  kReject,  // it is accepted and closed at once, without OnOpen
};

struct ListenOptions {
  // listen(2)'s backlog. 0 or less: net.core.somaxconn, which also caps it.
  int backlog = 0;
  // Connections of this listener at a time, besides Options::max_connections,
  // which holds as well; if only one of the two waits, it comes first. 0: no
  // bound of its own.
  size_t max_connections = 0;
  WhenFull when_full = WhenFull::kWait;
  // Connections accepted a second, those that are rejected included; beyond it
  // they wait in the kernel's queue. 0: no limit, otherwise 0.001 to 1e9.
  double accept_rate = 0;
  // How many may come at once after a quiet time. 0: a tenth of accept_rate,
  // but at least 1; otherwise 1 to 1e12.
  double accept_burst = 0;
  SocketOptions socket;
};

// What accept_burst comes to.
double AcceptBurstOf(const ListenOptions& options);

// One address to listen on, "tcp://:9000" (see Address), with its options.
struct ListenerSpec {
  ListenerSpec(std::string listen_address, ListenOptions listen_options = {})
      : address(std::move(listen_address)),
        options(std::move(listen_options)) {}
  ListenerSpec(const char* listen_address) : address(listen_address) {}
  std::string address;
  ListenOptions options;
};

// How connections reach the reactors.
enum class AcceptMode : uint8_t {
  // The main reactor accepts and hands each descriptor to a reactor by
  // Options::load_balancing. Even and predictable.
  kHandOff,
  // Every reactor accepts on a SO_REUSEPORT socket of its own; the kernel
  // spreads by a hash of the addresses, unevenly while connections are few.
  // Unix sockets have no such thing and are handed off in this mode too.
  kReusePort,
};

enum class LoadBalancing : uint8_t {
  kRoundRobin,
  kLeastConnections,
  kSourceAddressHash,  // of the host without the port; Unix peers: round robin
};

// When readiness is told, epoll(7).
enum class Trigger : uint8_t {
  kLevel,  // one read an event
  // Read until the socket is empty or Options::edge_chunk bytes were read; the
  // rest follows after the other connections had their turn.
  kEdge,
};

// Which table of open files a reactor's thread uses.
enum class FdTables : uint8_t {
  kShared,  // the process's, as every program expects
  // One of its own for each reactor (unshare(CLONE_FILES), see unshare(2)).
  // RLIMIT_NOFILE then holds for each reactor instead of for the process, the
  // table never stalls while it grows, and each system call on a connection
  // saves about 25 ns. The price: a descriptor that another thread opens later
  // (a reopened log file, a database connection) does not exist in a handler's
  // thread, one opened before Run stays open in every reactor until Run
  // returns, and an engine created later cannot be posted to from it (Post and
  // ConnectionRef answer FailedPrecondition). For handlers that talk to their
  // connections and the worker pool.
  kPerReactor,
};

// Where the reactors' threads run.
struct CpuPinning {
  enum class Mode : uint8_t {
    kAuto,  // one CPU each from the allowed set, if there are enough of them
    kOff,
    kList,  // cpus[i % size] for reactor i
  };
  Mode mode = Mode::kAuto;
  std::vector<int> cpus;  // for kList; each must be allowed (sched_getaffinity)
};

// What happens to a write beyond ConnectionLimits::max_outbound.
enum class WhenOverflow : uint8_t {
  kClose,   // the connection ends with CloseReason::kSlowConsumer
  kRefuse,  // the write takes nothing and answers ResourceExhausted
};

// What happens to a connection that sends more than its RateLimit.
enum class WhenOverRate : uint8_t {
  // Reading stops until the limit allows another byte and message. FIN and RST
  // are noticed meanwhile; what was left unread is told again (see
  // Connection::PauseRead).
  kPause,
  kClose,  // it ends at once with CloseReason::kRateLimit
};

// How much a peer may send us: so many a second, and so many at once. Both
// bounds hold if both are set. Rates: 0 (none) or 0.001 to 1e9; the burst that
// belongs to a rate: 1 to 1e15.
//
// Over any time t no more than burst + rate * t messages are handled, or that
// many bytes and one read more: a read takes at most byte_burst. Pauses end in
// steps of 32 ms, so a burst of less than 0.1 s of the rate keeps the peer
// below its rate.
//
// Costs no timer, and memory (the connection's active state) only until a burst
// could be had again.
struct RateLimit {
  double bytes_per_second = 0;
  double byte_burst = 0;
  // What a message is, Connection::CountMessages says; ForEachFrame calls it
  // for each frame.
  double messages_per_second = 0;
  double message_burst = 0;
  WhenOverRate when_over = WhenOverRate::kPause;
};

// Bounds that hold for every connection, accepted or dialed. Durations: at most
// 24 days; timeouts end the connection, never early and at most about 0.1 s
// late, and cost no memory unless it says so.
struct ConnectionLimits {
  // Unread bytes the engine keeps for a handler that does not consume them.
  // At the bound it stops reading; it goes on when the handler has consumed.
  size_t max_inbound = size_t{4} << 20;
  // Bytes accepted by Write that the kernel has not taken yet. 0: no bound.
  size_t max_outbound = size_t{64} << 20;
  WhenOverflow when_overflow = WhenOverflow::kClose;
  // Output above high_water is told to the handler (EventHandler::OnHighWater),
  // and when low_water is reached again that is (OnLowWater). high_water 0: 1
  // MiB, or half of max_outbound if that is less. low_water unset: half of
  // high_water.
  size_t high_water = 0;
  std::optional<size_t> low_water;
  // No byte in or out for this long ends the connection. 0: never. The
  // handler may change it for one connection (Connection::SetIdleTimeout).
  std::chrono::milliseconds idle_timeout{0};
  // No byte came for this long although reading was wanted (no pause of any
  // kind, max_inbound not reached, no FIN yet): kReadTimeout. 0: never.
  std::chrono::milliseconds read_timeout{0};
  // Output waited and the kernel took none of it for this long: kWriteTimeout.
  // 0: never. Once Close(kFlush) was called flush_timeout takes its place.
  std::chrono::milliseconds write_timeout{0};
  // From OnOpen until Connection::HandshakeDone: kHandshakeTimeout. 0: never.
  // Costs the connection's active state until then.
  std::chrono::milliseconds handshake_timeout{0};
  RateLimit rate_limit;
  // CloseMode::kFlush: how long the peer may take to read what is queued.
  std::chrono::milliseconds flush_timeout{10'000};
  // CloseMode::kFlush, after our FIN: how long, and for how many bytes, input
  // is thrown away while the peer's FIN is awaited.
  std::chrono::milliseconds linger_timeout{2'000};
  size_t linger_bytes = size_t{4} << 20;
};

// What the two marks come to.
size_t HighWaterOf(const ConnectionLimits& limits);
size_t LowWaterOf(const ConnectionLimits& limits);

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

struct Options {
  // Reactors that serve connections. 0: one for each CPU this process may run
  // on (sched_getaffinity, so cpusets and taskset count). At most 1024. With
  // one reactor and shared tables it runs in the thread that called Run;
  // otherwise each has a thread and the caller's is the main reactor.
  int reactors = 0;
  AcceptMode accept_mode = AcceptMode::kHandOff;
  LoadBalancing load_balancing = LoadBalancing::kRoundRobin;
  Trigger trigger = Trigger::kLevel;
  size_t edge_chunk = size_t{1} << 20;  // bytes a turn and connection; >= 1
  FdTables fd_tables = FdTables::kShared;
  CpuPinning pinning;

  // Of all listeners together. 0: as many as descriptors allow.
  size_t max_connections = 0;
  WhenFull when_full = WhenFull::kWait;
  // Connections at a time from one source: an IPv4 address, or an IPv6 prefix
  // of 64 bits, since one customer usually has as much and could come from
  // 2^64 addresses (a link-local address counts as a whole). One too many is
  // accepted and closed at once, without OnOpen. 0: no bound. Unix peers and
  // dialed connections do not count.
  size_t max_connections_per_source = 0;
  ConnectionLimits limits;
  // A bound for what all connections buffer together; engines that share it
  // are bounded together. Unset: none.
  std::shared_ptr<BufferBudget> buffer_budget;

  // Bytes read at once; one such buffer a reactor. 1 KiB to 16 MiB.
  size_t read_buffer = size_t{64} << 10;
  int accept_batch = 64;  // accepts before the loop looks at other events; >= 1
  std::chrono::milliseconds tick{0};  // EventHandler::OnTick; 0: never

  // Free buffers a reactor keeps; what is above goes back to the system.
  size_t pool_keep_bytes = size_t{1} << 20;

  // SIGINT and SIGTERM call Stop while Run runs. Off: signals are not touched.
  bool handle_signals = false;
  // Create raises the soft RLIMIT_NOFILE to the hard one, as Go's runtime does.
  // Turn it off in a process that uses select(2).
  bool raise_fd_limit = true;

  // Where warnings go (an accept error, a failed pin, an exception). Called
  // from any thread, at most a few lines a second. Unset: standard error.
  std::function<void(LogLevel, std::string_view)> log;
};

// Checks every field that can be wrong by itself. The error names the field,
// its value and what is allowed.
absl::Status ValidateOptions(const Options& options);

// The same for the options of a listener and of a socket. Listening and dialing
// do it themselves.
absl::Status ValidateListenOptions(const ListenOptions& options);
absl::Status ValidateSocketOptions(const SocketOptions& options);

// The same for a rate limit; fields are named as in RateLimit.
absl::Status ValidateRateLimit(const RateLimit& limit);

// For Engine::Dial.
struct DialOptions {
  std::chrono::milliseconds timeout{10'000};  // until connected; > 0
  // Bind here first, with IP_BIND_ADDRESS_NO_PORT if the port is 0, so that the
  // kernel shares ports between destinations (ip(7)). kNone: kernel's choice.
  Address source;
  SocketOptions socket;
  int reactor = -1;  // index; -1: by Options::load_balancing
};

}  // namespace sluice

#endif  // SLUICE_REACTOR_OPTIONS_H_
