// Stop, Drain, and the signals that ask for it.
#include <event2/event.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/engine_impl.h"

namespace sluice::internal {
namespace {

constexpr std::chrono::milliseconds kLongestDrain =
    std::chrono::hours(24 * 365);

}  // namespace

void EngineImpl::Stop() {
  stop_requested_.store(true);
  accepting_.store(false);
  (void)main_->Post([this] { BeginStop(CloseReason::kShutdown); });
}

void EngineImpl::BeginStop(CloseReason reason) {
  if (phase_.load() == Phase::kStopping) return;
  phase_.store(Phase::kStopping);
  StopAccepting();
  Task stop_reactors = [this, reason] {
    for (const auto& reactor : reactors_) {
      if (merged()) {
        reactor->BeginStop(reason);
      } else {
        (void)reactor->Post(
            [r = reactor.get(), reason] { r->BeginStop(reason); });
      }
    }
  };
  if (hand_off_ != nullptr) {
    hand_off_->Finish(std::move(stop_reactors));
  } else {
    std::move(stop_reactors)();
  }
}

void EngineImpl::ReactorEnded() {
  if (--reactors_running_ == 0) main_->Quit();
}

void EngineImpl::Drain(std::chrono::milliseconds deadline) {
  accepting_.store(false);
  (void)main_->Post([this, deadline] { BeginDrain(deadline); });
}

void EngineImpl::BeginDrain(std::chrono::milliseconds deadline) {
  Phase running = Phase::kRunning;
  if (!phase_.compare_exchange_strong(running, Phase::kDraining)) return;
  StopAccepting();
  main_->Guard("OnDrain", [this] { handler_.OnDrain(*this); });
  main_->RunAfter(std::min(deadline, kLongestDrain),
                  [this] { BeginStop(CloseReason::kDrain); });
  CheckDrained();
}

void EngineImpl::CheckDrained() {
  if (phase_.load() == Phase::kDraining && places_.taken() == 0) {
    BeginStop(CloseReason::kDrain);
  }
}

// A place was given back, and so many are still taken.
void EngineImpl::CheckDrainedAfter(size_t left) {
  if (left == 0 && phase_.load() == Phase::kDraining) {
    (void)main_->Post([this] { CheckDrained(); });
  }
}

void EngineImpl::HandleSignals() {
  for (int number : {SIGINT, SIGTERM}) {
    event* e =
        evsignal_new(main_->embedded_base().base(), number, OnSignal, this);
    SLUICE_CHECK(e != nullptr && event_add(e, nullptr) == 0,
                 "libevent takes no signal");
    signal_events_.push_back(e);
    main_->embedded_base().CountAsOurs(1);
  }
}

void EngineImpl::OnSignal(int, short, void* self) {
  static_cast<EngineImpl*>(self)->Stop();
}

}  // namespace sluice::internal
