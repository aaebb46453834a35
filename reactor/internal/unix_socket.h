// Internal: listening on Unix sockets, and the files that they leave behind.
#ifndef SLUICE_REACTOR_INTERNAL_UNIX_SOCKET_H_
#define SLUICE_REACTOR_INTERNAL_UNIX_SOCKET_H_

#include "absl/status/status.h"
#include "reactor/address.h"
#include "reactor/internal/socket.h"

namespace sluice::internal {

// Binds socket->fd to the Unix `address` and listens, under the rules that
// Listen (socket.h) states for files. Fills in the rest of *socket.
absl::Status ListenOnUnix(const Address& address, int backlog,
                          BoundSocket* socket);

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_UNIX_SOCKET_H_
