// Internal: a handler that checks how a run ends.
#ifndef SLUICE_TEST_SUPPORT_LIFE_HANDLER_H_
#define SLUICE_TEST_SUPPORT_LIFE_HANDLER_H_

#include <atomic>

#include "gtest/gtest.h"
#include "test/support/lambda_handler.h"

namespace sluice::test {

// A handler that sees any callback after OnShutdown, and any connection that
// was still open then.
class LifeHandler : public LambdaHandler {
 public:
  std::atomic<bool> over{false};
  std::atomic<int> late{0};
  std::atomic<int> open_at_shutdown{-1};

  Action OnOpen(Connection& c) override {
    Check();
    return LambdaHandler::OnOpen(c);
  }
  Action OnTraffic(Connection& c) override {
    Check();
    return LambdaHandler::OnTraffic(c);
  }
  Action OnPeerShutdown(Connection& c) override {
    Check();
    return LambdaHandler::OnPeerShutdown(c);
  }
  void OnClose(Connection& c, const CloseInfo& info) override {
    Check();
    LambdaHandler::OnClose(c, info);
  }
  void OnTick(Reactor& reactor) override {
    Check();
    LambdaHandler::OnTick(reactor);
  }
  void OnShutdown(Engine& engine) override {
    Check();
    open_at_shutdown = opened - closed;
    LambdaHandler::OnShutdown(engine);
    over = true;
  }

  void ExpectOrderlyEnd() const {
    EXPECT_EQ(shutdowns, 1);
    EXPECT_EQ(late, 0) << "callbacks after OnShutdown";
    EXPECT_EQ(open_at_shutdown, 0) << "connections open at OnShutdown";
    EXPECT_EQ(opened, closed);
  }

 private:
  void Check() {
    if (over) ++late;
  }
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_LIFE_HANDLER_H_
