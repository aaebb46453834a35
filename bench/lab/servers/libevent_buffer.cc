// libevent's bufferevents: input moves to output as a chain of buffers, without
// copying, or message by message through evbuffer_remove_buffer.
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

ServingOptions g_options;

void OnRead(bufferevent* client, void*) {
  evbuffer* input = bufferevent_get_input(client);
  if (g_options.message_bytes == 0) {
    bufferevent_write_buffer(client, input);
    return;
  }
  while (evbuffer_get_length(input) >= g_options.message_bytes) {
    evbuffer_remove_buffer(input, bufferevent_get_output(client),
                           g_options.message_bytes);
  }
}

void OnEvent(bufferevent* client, short what, void*) {
  if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) bufferevent_free(client);
}

void OnAccept(evconnlistener* listener, int fd, sockaddr*, int, void*) {
  bufferevent* client = bufferevent_socket_new(
      evconnlistener_get_base(listener), fd, BEV_OPT_CLOSE_ON_FREE);
  if (client == nullptr) Die("bufferevent_socket_new");
  bufferevent_setcb(client, OnRead, nullptr, OnEvent, nullptr);
  bufferevent_enable(client, EV_READ | EV_WRITE);
}

void Serve(int fd) {
  event_config* config = event_config_new();
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_base* base = event_base_new_with_config(config);
  event_config_free(config);
  if (base == nullptr) Die("event_base_new_with_config");
  if (evconnlistener_new(base, OnAccept, nullptr, LEV_OPT_CLOSE_ON_EXEC, 0,
                         fd) == nullptr) {
    Die("evconnlistener_new");
  }
  event_base_dispatch(base);
}

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  g_options = ParseServingOptions(argc, argv);
  StartServing();
  ServeOnThreads(g_options, Serve);
}
