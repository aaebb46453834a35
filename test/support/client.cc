#include "test/support/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>

#include "gtest/gtest.h"

namespace sluice::test {
namespace {

// SO_SNDTIMEO bounds a blocking connect(2), on Unix sockets too, where a full
// backlog cannot be waited for with poll(2).
int ConnectWithin(int fd, const sockaddr_storage& address, socklen_t length,
                  std::chrono::milliseconds timeout) {
  timeval limit;
  limit.tv_sec = timeout.count() / 1000;
  limit.tv_usec = timeout.count() % 1000 * 1000;
  if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
    return errno;
  }
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) !=
         0) {
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EINPROGRESS ? ETIMEDOUT : errno;
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return errno;
  return 0;
}

}  // namespace

Client Client::TryConnect(const Address& address, int* error,
                          ClientOptions options) {
  Client client;
  client.timeout_ = options.timeout;
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  if (length == 0) {
    *error = EINVAL;
    return client;
  }
  internal::UniqueFd fd(
      socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *error = fd ? 0 : errno;
  const auto set = [&](int name, int value) {
    if (*error == 0 && value > 0 &&
        setsockopt(fd.get(), SOL_SOCKET, name, &value, sizeof(value)) != 0) {
      *error = errno;
    }
  };
  set(SO_RCVBUF, options.receive_buffer);
  set(SO_SNDBUF, options.send_buffer);
  if (*error == 0 && options.source.family() != Address::Family::kNone) {
    sockaddr_storage source;
    const socklen_t size = options.source.ToSockaddr(&source);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&source), size) != 0) {
      *error = errno;
    }
  }
  if (*error == 0) {
    *error = ConnectWithin(fd.get(), storage, length, options.timeout);
  }
  if (*error == 0) client.fd_ = std::move(fd);
  // Where nobody listens, the kernel may pick the very port that is dialed as
  // the local one, and the socket is connected to itself (tcp(7) allows it).
  if (*error == 0 && address.is_ip() && client.local() == address) {
    *error = ECONNREFUSED;
    client.fd_.Reset();
  }
  return client;
}

Client Client::Connect(const Address& address, ClientOptions options) {
  int error = 0;
  Client client = TryConnect(address, &error, options);
  EXPECT_EQ(error, 0) << "connecting to " << address.ToString() << ": "
                      << std::strerror(error);
  return client;
}

Address Client::local() const {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  if (getsockname(fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    ADD_FAILURE() << "getsockname: " << std::strerror(errno);
    return Address();
  }
  return Address::FromSockaddr(reinterpret_cast<const sockaddr*>(&storage),
                               length);
}

bool Client::WaitFor(short events) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd entry = {fd(), events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call says why
  }
}

bool Client::SendAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!WaitFor(POLLOUT)) {
        ADD_FAILURE() << "the peer takes nothing: " << bytes.size()
                      << " bytes are left to send";
        return false;
      }
    } else if (errno != EINTR) {
      ADD_FAILURE() << "send: " << std::strerror(errno) << " with "
                    << bytes.size() << " bytes left";
      return false;
    }
  }
  return true;
}

ssize_t Client::ReadSome(char* out, size_t size) {
  for (;;) {
    const ssize_t got = recv(fd(), out, size, 0);
    if (got >= 0) return got;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return -errno;
    if (!WaitFor(POLLIN)) return -ETIMEDOUT;
  }
}

std::string Client::ReadExactly(size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t got = ReadSome(bytes.data() + have, count - have);
    if (got > 0) {
      have += static_cast<size_t>(got);
      continue;
    }
    ADD_FAILURE() << "after " << have << " of " << count << " bytes: "
                  << (got == 0 ? "EOF" : std::strerror(static_cast<int>(-got)));
    break;
  }
  bytes.resize(have);
  return bytes;
}

std::string Client::ReadToEnd(int* error) {
  std::string bytes;
  char block[16384];
  for (;;) {
    const ssize_t got = ReadSome(block, sizeof(block));
    if (got > 0) {
      bytes.append(block, static_cast<size_t>(got));
      continue;
    }
    *error = static_cast<int>(-got);
    EXPECT_NE(*error, ETIMEDOUT)
        << "neither EOF nor an error after " << bytes.size() << " bytes";
    return bytes;
  }
}

std::string Client::ReadToEof() {
  int error = 0;
  std::string bytes = ReadToEnd(&error);
  EXPECT_EQ(error, 0) << std::strerror(error) << " after " << bytes.size()
                      << " bytes, not EOF";
  return bytes;
}

bool Client::Echo(std::string_view bytes) {
  return SendAll(bytes) && ReadExactly(bytes.size()) == bytes;
}

bool Client::Readable(std::chrono::milliseconds timeout) const {
  pollfd entry = {fd(), POLLIN, 0};
  int ready;
  do {
    ready = poll(&entry, 1, static_cast<int>(timeout.count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool Client::ShutdownWrite() {
  const bool done = shutdown(fd(), SHUT_WR) == 0;
  EXPECT_TRUE(done) << "shutdown: " << std::strerror(errno);
  return done;
}

void Client::CloseWithReset() {
  const linger reset = {1, 0};
  EXPECT_EQ(setsockopt(fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0)
      << std::strerror(errno);
  fd_.Reset();
}

}  // namespace sluice::test
