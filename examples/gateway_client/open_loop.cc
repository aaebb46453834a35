#include "examples/gateway_client/open_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::gateway {
namespace {

// Turns before the loop looks at answers again.
constexpr int kMostAtOnce = 256;

}  // namespace

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

void OpenLoop::Start(Reactor& reactor, const Schedule& schedule, Turn turn) {
  reactor_ = &reactor;
  schedule_ = schedule;
  turn_ = std::move(turn);
  if (schedule.per_second > 0) RunDue();
}

void OpenLoop::Stop() {
  if (reactor_ != nullptr) reactor_->Cancel(timer_);
  timer_ = TimerId();
}

void OpenLoop::RunDue() {
  for (int i = 0; i < kMostAtOnce && schedule_.DueAt(next_) <= NowNs(); ++i) {
    turn_(next_++);
  }
  const int64_t wait = std::max<int64_t>(0, schedule_.DueAt(next_) - NowNs());
  timer_ =
      reactor_->RunAfter(std::chrono::nanoseconds(wait), [this] { RunDue(); });
}

}  // namespace sluice::gateway
