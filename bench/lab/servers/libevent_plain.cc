// libevent's plain events: one persistent read event a connection, read and
// write by the program itself.
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

ServingOptions g_options;

class Loop {
 public:
  Loop() : base_(NewBase()) {
    if (base_ == nullptr) Die("event_base_new_with_config");
  }

  void Run(int listener) {
    event* accept =
        event_new(base_, listener, EV_READ | EV_PERSIST, &Loop::OnAccept, this);
    if (accept == nullptr || event_add(accept, nullptr) != 0) Die("event_add");
    event_base_dispatch(base_);
  }

 private:
  struct Client {
    Loop* loop;
    event* readable;
    event* writable;
    std::string unsent;
  };

  // Each loop is one thread's.
  static event_base* NewBase() {
    event_config* config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_base* base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
  }

  static void OnAccept(int listener, short, void* loop) {
    for (;;) {
      const int fd =
          accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN) Die("accept4");
        return;
      }
      auto* client = new Client{static_cast<Loop*>(loop), nullptr, nullptr, {}};
      client->readable = event_new(client->loop->base_, fd,
                                   EV_READ | EV_PERSIST, &Loop::OnRead, client);
      if (client->readable == nullptr ||
          event_add(client->readable, nullptr) != 0) {
        Die("event_add");
      }
    }
  }

  static void OnRead(int fd, short, void* arg) {
    auto* client = static_cast<Client*>(arg);
    char* buffer = client->loop->buffer_.get();
    const ssize_t got = read(fd, buffer, kBufferBytes);
    if (got <= 0) {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) End(client, fd);
      return;
    }
    const auto bytes = static_cast<size_t>(got);
    const size_t piece =
        g_options.message_bytes == 0 ? bytes : g_options.message_bytes;
    for (size_t at = 0; at < bytes; at += piece) {
      const size_t size = std::min(piece, bytes - at);
      const ssize_t put = write(fd, buffer + at, size);
      if (put == static_cast<ssize_t>(size)) continue;
      if (put < 0 && errno != EAGAIN && errno != EINTR) {
        End(client, fd);
        return;
      }
      Keep(client, fd, buffer + at + std::max<ssize_t>(put, 0),
           bytes - at - static_cast<size_t>(std::max<ssize_t>(put, 0)));
      return;
    }
  }

  static void Keep(Client* client, int fd, const char* data, size_t size) {
    client->unsent.assign(data, size);
    event_del(client->readable);
    if (client->writable == nullptr) {
      client->writable =
          event_new(client->loop->base_, fd, EV_WRITE | EV_PERSIST,
                    &Loop::OnWritable, client);
    }
    if (event_add(client->writable, nullptr) != 0) Die("event_add");
  }

  static void OnWritable(int fd, short, void* arg) {
    auto* client = static_cast<Client*>(arg);
    const ssize_t put = write(fd, client->unsent.data(), client->unsent.size());
    if (put < 0) {
      if (errno != EAGAIN && errno != EINTR) End(client, fd);
      return;
    }
    client->unsent.erase(0, static_cast<size_t>(put));
    if (!client->unsent.empty()) return;
    event_del(client->writable);
    if (event_add(client->readable, nullptr) != 0) Die("event_add");
  }

  static void End(Client* client, int fd) {
    event_free(client->readable);
    if (client->writable != nullptr) event_free(client->writable);
    delete client;
    close(fd);
  }

  event_base* const base_;
  const std::unique_ptr<char[]> buffer_ =
      std::make_unique<char[]>(kBufferBytes);
};

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  g_options = ParseServingOptions(argc, argv);
  StartServing();
  ServeOnThreads(g_options, [](int listener) { Loop().Run(listener); });
}
