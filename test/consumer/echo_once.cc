// An echo server as a user would write it, from installed headers only. A
// client in a thread sends one message, and the server ends when it came back.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

namespace {

class Echo : public sluice::EventHandler {
  sluice::Action OnTraffic(sluice::Connection& connection) override {
    const absl::Status written = connection.Write(connection.Next());
    return written.ok() ? sluice::Action::kNone : sluice::Action::kClose;
  }
};

// True if `message` came back from `address` as it was sent.
bool EchoOnce(const sluice::Address& address, std::string_view message) {
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  std::string reply;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 &&
      send(fd, message.data(), message.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(message.size()) &&
      shutdown(fd, SHUT_WR) == 0) {
    char buffer[256];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      reply.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return reply == message;
}

}  // namespace

int main() {
  Echo echo;
  absl::StatusOr<std::unique_ptr<sluice::Engine>> engine =
      sluice::Engine::Create(echo, {"tcp://127.0.0.1:0"});
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  // The socket listens from Create on, so the client need not wait.
  bool echoed = false;
  std::thread client([&] {
    echoed = EchoOnce((*engine)->bound()[0], "hello, sluice");
    (*engine)->Stop();
  });
  const absl::Status status = (*engine)->Run();
  client.join();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  if (!echoed) std::fprintf(stderr, "the message did not come back\n");
  return status.ok() && echoed ? 0 : 1;
}
