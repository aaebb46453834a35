// Internal: sockets from addresses and options.
#ifndef SLUICE_REACTOR_INTERNAL_SOCKET_H_
#define SLUICE_REACTOR_INTERNAL_SOCKET_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/address.h"
#include "reactor/internal/unique_fd.h"
#include "reactor/options.h"

namespace sluice::internal {

// Sets everything in `options` except the hooks and reuse_address; what is
// TCP's or IP's only on IP sockets. The error names the option, its value and
// the errno text.
absl::Status ApplySocketOptions(int fd, Address::Family family,
                                const SocketOptions& options);

// A bound, listening socket (non-blocking, close-on-exec).
struct BoundSocket {
  UniqueFd fd;
  Address address;  // the real one: port 0 replaced
  // Unix path sockets: which file is ours, to remove no other one, and whose
  // it is, so that a forked child removes nothing.
  dev_t device = 0;
  ino_t inode = 0;
  pid_t owner = 0;
};

// Binds and listens. `reuse_port` sets SO_REUSEPORT (IP only).
//
// Dual stack: [::] with IPV6_V6ONLY off, or 0.0.0.0 where the kernel has no
// IPv6. Every other IPv6 socket gets IPV6_V6ONLY on. That is set after
// before_bind: the address alone decides.
//
// Errors start with "listen on <address>". An address in use is AlreadyExists,
// one that this machine does not have FailedPrecondition.
//
// Unix paths: a socket file that nobody listens on any more is replaced; a live
// one is AlreadyExists; a file of another kind is FailedPrecondition and left
// as it is. Never does a failed call change the file.
absl::StatusOr<BoundSocket> Listen(const Address& address,
                                   const ListenOptions& options,
                                   bool reuse_port);

// Removes the file of a Unix path socket if it still is the one we made. Call
// it before `fd` is closed: until then its inode number cannot be given to the
// file of another process. Does nothing for other sockets and in a forked
// child.
void RemoveSocketFile(const BoundSocket& socket);

// InvalidArgument if these two ends cannot meet: no host or no port to dial, a
// source of another family or of a Unix socket.
absl::Status CheckDial(const Address& address, const Address& source);

// A non-blocking, close-on-exec socket with options applied, before_bind called
// and bound to the source, if there is one, then connect(2): EINPROGRESS is OK.
// ResourceExhausted when no local port is left (EADDRNOTAVAIL), and it says so.
// InvalidArgument: see CheckDial. A source with a port gets SO_REUSEADDR
// (reuse_address), so that the port serves several destinations. A Unix
// listener whose queue is full is Unavailable at once: the kernel has no
// EINPROGRESS for it.
absl::StatusOr<UniqueFd> StartConnect(const Address& address,
                                      const DialOptions& options);

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_SOCKET_H_
