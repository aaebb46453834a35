// Asio, without Boost: one io_context a thread (concurrency hint 1, so it takes
// no locks), one session a connection.
#include <algorithm>
#include <asio.hpp>
#include <memory>
#include <utility>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

using asio::ip::tcp;

ServingOptions g_options;

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}

  void Read() {
    // Waits first and reads then, so that an idle session has no buffer.
    socket_.async_wait(
        tcp::socket::wait_read,
        [self = shared_from_this()](const asio::error_code& error) {
          if (!error) self->OnReadable();
        });
  }

 private:
  static constexpr size_t kBufferBytes = size_t{64} << 10;

  void OnReadable() {
    thread_local const std::unique_ptr<char[]> buffer =
        std::make_unique<char[]>(kBufferBytes);
    asio::error_code error;
    const size_t got =
        socket_.read_some(asio::buffer(buffer.get(), kBufferBytes), error);
    if (error == asio::error::would_block) return Read();
    if (error) return;
    const size_t piece =
        g_options.message_bytes == 0 ? got : g_options.message_bytes;
    for (size_t at = 0; at < got; at += piece) {
      const size_t size = std::min(piece, got - at);
      const size_t put =
          socket_.write_some(asio::buffer(buffer.get() + at, size), error);
      if (error && error != asio::error::would_block) return;
      if (put < size) {
        return WriteRest(buffer.get() + at + put, got - at - put);
      }
    }
    Read();
  }

  void WriteRest(const char* data, size_t size) {
    unsent_.assign(data, size);
    asio::async_write(
        socket_, asio::buffer(unsent_),
        [self = shared_from_this()](const asio::error_code& error, size_t) {
          if (!error) self->Read();
        });
  }

  tcp::socket socket_;
  std::string unsent_;
};

void Accept(tcp::acceptor& acceptor) {
  acceptor.async_accept(
      [&acceptor](const asio::error_code& error, tcp::socket socket) {
        if (!error) {
          socket.non_blocking(true);
          std::make_shared<Session>(std::move(socket))->Read();
        }
        Accept(acceptor);
      });
}

void Serve(int fd) {
  asio::io_context context(1);
  tcp::acceptor acceptor(context, tcp::v4(), fd);
  Accept(acceptor);
  context.run();
}

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  g_options = ParseServingOptions(argc, argv);
  StartServing();
  ServeOnThreads(g_options, Serve);
}
