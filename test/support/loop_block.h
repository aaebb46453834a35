// Internal: holds a loop still, so that the order of events is certain.
#ifndef SLUICE_TEST_SUPPORT_LOOP_BLOCK_H_
#define SLUICE_TEST_SUPPORT_LOOP_BLOCK_H_

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "gtest/gtest.h"
#include "reactor/reactor.h"
#include "test/support/wait.h"

namespace sluice::test {

// The reactor stands inside a posted task from the constructor's return until
// Release or the destructor. What happens meanwhile is seen in one batch.
// Thread: the test's, never the loop's own.
class LoopBlock {
 public:
  explicit LoopBlock(Reactor& reactor) {
    const absl::Status posted = reactor.Post([shared = shared_] {
      shared->entered.Set();
      if (!shared->release.Wait(std::chrono::minutes(10))) std::abort();
    });
    EXPECT_TRUE(posted.ok()) << posted.ToString();
    EXPECT_TRUE(!posted.ok() || shared_->entered.Wait())
        << "the loop does not come to its tasks";
  }
  ~LoopBlock() { Release(); }
  LoopBlock(const LoopBlock&) = delete;
  LoopBlock& operator=(const LoopBlock&) = delete;

  void Release() { shared_->release.Set(); }

 private:
  struct Shared {
    Event entered;
    Event release;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// Runs `function` on the reactor and returns when it has run.
template <typename Function>
void RunOn(Reactor& reactor, Function function) {
  auto done = std::make_shared<Event>();
  const absl::Status posted =
      reactor.Post([done, function = std::move(function)]() mutable {
        function();
        done->Set();
      });
  ASSERT_TRUE(posted.ok()) << posted.ToString();
  ASSERT_TRUE(done->Wait()) << "the loop does not come to its tasks";
}

// Returns when the reactor has come round: everything that was there before the
// call has been dealt with, what it marked for closing has been closed.
inline void TurnOver(Reactor& reactor) {
  RunOn(reactor, [] {});
  RunOn(reactor, [] {});
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_LOOP_BLOCK_H_
