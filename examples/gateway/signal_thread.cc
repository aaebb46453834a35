#include "examples/gateway/signal_thread.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace sluice::gateway {

SignalThread::SignalThread(std::chrono::seconds period,
                           std::function<void(int)> on_signal)
    : period_(period), on_signal_(std::move(on_signal)) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread([this] { Run(); });
}

SignalThread::~SignalThread() {
  stop_.store(true);
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalThread::Run() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point next = Clock::now() + period_;
  for (;;) {
    int signal = 0;
    if (period_.count() == 0) {
      signal = sigwaitinfo(&signals_, nullptr);
    } else {
      const auto left = std::max<std::chrono::nanoseconds>(
          next - Clock::now(), std::chrono::nanoseconds(0));
      const timespec wait{
          .tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
          .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
      signal = sigtimedwait(&signals_, nullptr, &wait);
    }
    if (stop_.load()) return;
    if (signal > 0) {
      on_signal_(signal);
    } else if (period_.count() != 0 && Clock::now() >= next) {
      next += period_;
      on_signal_(0);
    }
  }
}

}  // namespace sluice::gateway
