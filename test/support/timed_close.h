// Internal: when connections end, and why, by the server's own clock.
#ifndef SLUICE_TEST_SUPPORT_TIMED_CLOSE_H_
#define SLUICE_TEST_SUPPORT_TIMED_CLOSE_H_

#include <atomic>
#include <chrono>

#include "reactor/connection.h"
#include "test/support/ref_handler.h"

namespace sluice::test {

using Clock = std::chrono::steady_clock;

// Notes the last end. `began` is set by the test, before that from which a
// timeout counts.
class TimedCloseHandler : public RefHandler {
 public:
  std::atomic<Clock::time_point> began{Clock::time_point()};
  std::atomic<Clock::time_point> ended{Clock::time_point()};
  std::atomic<CloseReason> reason{CloseReason::kNone};

  void OnClose(Connection& c, const CloseInfo& info) override {
    ended = Clock::now();
    reason = info.reason;
    RefHandler::OnClose(c, info);
  }
  Clock::duration took() const { return ended.load() - began.load(); }
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_TIMED_CLOSE_H_
