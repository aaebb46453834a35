// libuv: uv_read_start, and uv_try_write with uv_write for what did not fit, as
// its users do who want it fast.
#include <uv.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

ServingOptions g_options;

struct Loop {
  uv_loop_t loop;
  uv_tcp_t listener;
  // Lent to every read: what is not sent at once is copied.
  std::unique_ptr<char[]> buffer = std::make_unique<char[]>(kBufferBytes);
};

struct Rest {
  uv_write_t request;
  char data[];
};

void OnClosed(uv_handle_t* client) {
  delete reinterpret_cast<uv_tcp_t*>(client);
}
void End(uv_stream_t* client) {
  auto* handle = reinterpret_cast<uv_handle_t*>(client);
  if (!uv_is_closing(handle)) uv_close(handle, OnClosed);
}

void OnWritten(uv_write_t* request, int status) {
  uv_stream_t* client = request->handle;
  std::free(request->data);
  if (status < 0) End(client);
}

void Send(uv_stream_t* client, char* data, size_t size) {
  uv_buf_t piece = uv_buf_init(data, static_cast<unsigned>(size));
  const int put = uv_try_write(client, &piece, 1);
  if (put == static_cast<int>(size)) return;
  if (put < 0 && put != UV_EAGAIN) {
    End(client);
    return;
  }
  const size_t sent = put > 0 ? static_cast<size_t>(put) : 0;
  auto* rest = static_cast<Rest*>(std::malloc(sizeof(Rest) + size - sent));
  std::memcpy(rest->data, data + sent, size - sent);
  rest->request.data = rest;
  piece = uv_buf_init(rest->data, static_cast<unsigned>(size - sent));
  uv_write(&rest->request, client, &piece, 1, OnWritten);
}

void OnAlloc(uv_handle_t* client, size_t, uv_buf_t* buffer) {
  auto* loop = static_cast<Loop*>(client->loop->data);
  *buffer = uv_buf_init(loop->buffer.get(), kBufferBytes);
}

void OnRead(uv_stream_t* client, ssize_t got, const uv_buf_t* buffer) {
  if (got < 0) {
    End(client);
    return;
  }
  const auto bytes = static_cast<size_t>(got);
  const size_t piece =
      g_options.message_bytes == 0 ? bytes : g_options.message_bytes;
  for (size_t at = 0; at < bytes; at += piece) {
    Send(client, buffer->base + at, std::min(piece, bytes - at));
  }
}

void OnConnection(uv_stream_t* listener, int status) {
  if (status < 0) return;
  auto* client = new uv_tcp_t;
  uv_tcp_init(listener->loop, client);
  auto* stream = reinterpret_cast<uv_stream_t*>(client);
  if (uv_accept(listener, stream) != 0) {
    End(stream);
    return;
  }
  uv_read_start(stream, OnAlloc, OnRead);
}

void Serve(int fd) {
  Loop loop;
  if (uv_loop_init(&loop.loop) != 0) Die("uv_loop_init");
  loop.loop.data = &loop;
  uv_tcp_init(&loop.loop, &loop.listener);
  if (uv_tcp_open(&loop.listener, fd) != 0) Die("uv_tcp_open");
  if (uv_listen(reinterpret_cast<uv_stream_t*>(&loop.listener), 4096,
                OnConnection) != 0) {
    Die("uv_listen");
  }
  uv_run(&loop.loop, UV_RUN_DEFAULT);
}

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  g_options = ParseServingOptions(argc, argv);
  StartServing();
  ServeOnThreads(g_options, Serve);
}
