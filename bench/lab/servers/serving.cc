#include "bench/lab/servers/serving.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

namespace sluice::lab {
namespace {

// True if `argument` is --NAME=NUMBER, which is then in *value.
bool TakeNumber(std::string_view argument, std::string_view name, long low,
                long high, long* value) {
  if (argument.substr(0, 2) != "--") return false;
  argument.remove_prefix(2);
  if (argument.substr(0, name.size()) != name) return false;
  argument.remove_prefix(name.size());
  if (argument.empty() || argument[0] != '=') return false;
  argument.remove_prefix(1);
  const char* end = argument.data() + argument.size();
  const auto [rest, error] = std::from_chars(argument.data(), end, *value);
  if (error == std::errc() && rest == end && *value >= low && *value <= high) {
    return true;
  }
  std::fprintf(stderr, "--%s=%s: must be a number from %ld to %ld\n",
               std::string(name).c_str(), argument.data(), low, high);
  std::exit(2);
}

}  // namespace

ServingOptions ParseServingOptions(int argc, char** argv) {
  ServingOptions options;
  for (int i = 1; i < argc; ++i) {
    long value = 0;
    if (TakeNumber(argv[i], "threads", 1, 1024, &value)) {
      options.threads = static_cast<int>(value);
    } else if (TakeNumber(argv[i], "message_bytes", 0, 65'536, &value)) {
      options.message_bytes = static_cast<size_t>(value);
    } else {
      std::fprintf(stderr, "%s: \"%s\" is no flag of a lab server\n", argv[0],
                   argv[i]);
      std::exit(2);
    }
  }
  return options;
}

bool TakeSwitch(const char* flag, std::vector<char*>* arguments) {
  const auto is_it = [flag](const char* argument) {
    return std::strcmp(argument, flag) == 0;
  };
  return std::erase_if(*arguments, is_it) > 0;
}

void StartServing() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) Die("prctl PR_SET_PDEATHSIG");
  signal(SIGPIPE, SIG_IGN);
}

int Listen(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("socket");
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    Die("setsockopt TCP_NODELAY");
  }
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    Die("setsockopt SO_REUSEPORT");
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    Die("bind to 127.0.0.1");
  }
  if (listen(fd, 4096) != 0) Die("listen on 127.0.0.1");
  return fd;
}

int PortOf(int listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) !=
      0) {
    Die("getsockname");
  }
  return ntohs(address.sin_port);
}

void SayReady(int port) {
  std::printf("ready %d\n", port);
  std::fflush(stdout);
}

void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

void ServeOnThreads(const ServingOptions& options,
                    const std::function<void(int listener)>& serve) {
  std::vector<int> listeners = {Listen(0)};
  const int port = PortOf(listeners[0]);
  for (int i = 1; i < options.threads; ++i) listeners.push_back(Listen(port));
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) {
    threads.emplace_back(
        [&serve, fd = listeners[static_cast<size_t>(i)]] { serve(fd); });
  }
  SayReady(port);
  serve(listeners[0]);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sluice::lab
