// The floor (bench/raw_epoll.h), one loop a thread. It always answers a whole
// read at once.
//   --share_table       with one thread: another one sleeps beside it, so that
//                       the descriptor table is shared as in any larger program
//   --accept_and_close  no echo: whoever connects is closed at once
//   --fan_out           what one connection sends goes to all of its loop
#include "bench/raw_epoll.h"

#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "bench/lab/servers/serving.h"

int main(int argc, char** argv) {
  using namespace sluice::lab;
  using sluice::bench::RawEpollMode;
  std::vector<char*> arguments(argv, argv + argc);
  const bool share_table = TakeSwitch("--share_table", &arguments);
  RawEpollMode mode = RawEpollMode::kEcho;
  if (TakeSwitch("--accept_and_close", &arguments)) {
    mode = RawEpollMode::kAcceptAndClose;
  }
  if (TakeSwitch("--fan_out", &arguments)) mode = RawEpollMode::kFanOut;
  const ServingOptions options =
      ParseServingOptions(static_cast<int>(arguments.size()), arguments.data());
  StartServing();
  if (share_table) std::thread([] { pause(); }).detach();
  ServeOnThreads(options, [mode](int listener) {
    const auto failure = sluice::bench::RunRawEpoll(listener, mode);
    errno = failure.error;
    Die(failure.call);
  });
}
