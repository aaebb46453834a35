// gateway: signals as calls on a thread of their own.
#ifndef SLUICE_EXAMPLES_GATEWAY_SIGNAL_THREAD_H_
#define SLUICE_EXAMPLES_GATEWAY_SIGNAL_THREAD_H_

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace sluice::gateway {

// Waits for SIGINT, SIGTERM and SIGUSR1, which then interrupt nobody: what they
// call may lock, print and take its time, unlike a signal handler.
// Create it before other threads, so that those inherit the blocked signals (a
// WorkerPool's block them anyway, and may be there already).
// Lifetime: the destructor waits for the call that runs.
class SignalThread {
 public:
  // Calls `on_signal` with each signal, and with 0 every `period` (0: never).
  SignalThread(std::chrono::seconds period,
               std::function<void(int signal)> on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void Run();

  const std::chrono::seconds period_;
  const std::function<void(int)> on_signal_;
  sigset_t signals_;
  sigset_t before_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_SIGNAL_THREAD_H_
