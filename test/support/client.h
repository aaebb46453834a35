// Internal: a plain socket that talks to the engine under test.
#ifndef SLUICE_TEST_SUPPORT_CLIENT_H_
#define SLUICE_TEST_SUPPORT_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "reactor/address.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/wait.h"

namespace sluice::test {

struct ClientOptions {
  // SO_RCVBUF and SO_SNDBUF, set before connecting; 0: the kernel's choice.
  int receive_buffer = 0;
  int send_buffer = 0;
  Address source;                                 // bind here first; kNone: no
  std::chrono::milliseconds timeout = kPatience;  // of each call
};

// A blocking stream client. What does not work within the timeout fails the
// test with a message; the functions that return bool say so too.
// Thread: one at a time. Movable.
class Client {
 public:
  Client() = default;
  Client(Client&&) = default;
  Client& operator=(Client&&) = default;

  // Fails the test, and gives a client that is not connected, on any error.
  static Client Connect(const Address& address, ClientOptions options = {});
  // The same, but gives the errno in *error (0: none) and fails nothing.
  static Client TryConnect(const Address& address, int* error,
                           ClientOptions options = {});

  bool connected() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  Address local() const;  // getsockname(2)

  bool SendAll(std::string_view bytes);
  // Gives fewer bytes, and fails the test, on EOF, an error or the timeout.
  std::string ReadExactly(size_t count);
  // Everything up to a clean EOF. Fails the test on an error or the timeout.
  std::string ReadToEof();
  // Everything up to the end, whichever: *error is 0 for EOF, the errno
  // otherwise. Fails the test only on the timeout (*error is then ETIMEDOUT).
  std::string ReadToEnd(int* error);
  // SendAll and ReadExactly of the same bytes, for an echo server.
  bool Echo(std::string_view bytes);
  // True if something (bytes, EOF or an error) can be read within `timeout`.
  bool Readable(std::chrono::milliseconds timeout) const;

  bool ShutdownWrite();
  void Close() { fd_.Reset(); }
  // The peer gets RST (TCP), whatever is still under way.
  void CloseWithReset();

 private:
  // > 0: bytes read; 0: EOF; < 0: -errno, -ETIMEDOUT included.
  ssize_t ReadSome(char* out, size_t size);
  bool WaitFor(short events) const;

  internal::UniqueFd fd_;
  std::chrono::milliseconds timeout_ = kPatience;
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_CLIENT_H_
