// Internal: a handler that hands out tickets.
#ifndef SLUICE_TEST_SUPPORT_REF_HANDLER_H_
#define SLUICE_TEST_SUPPORT_REF_HANDLER_H_

#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "test/support/lambda_handler.h"
#include "test/support/wait.h"

namespace sluice::test {

// Hands out the tickets of the connections that have opened, in order.
class RefHandler : public LambdaHandler {
 public:
  Action OnOpen(Connection& c) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      refs_.push_back(c.ref());
    }
    return LambdaHandler::OnOpen(c);
  }
  std::vector<ConnectionRef> refs() {
    std::lock_guard<std::mutex> lock(mutex_);
    return refs_;
  }
  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return refs_.size();
  }
  ConnectionRef at(size_t index) {
    std::lock_guard<std::mutex> lock(mutex_);
    return refs_.at(index);
  }
  // The ticket of the connection number `index`, when it has opened.
  ConnectionRef WaitFor(size_t index) {
    EXPECT_TRUE(WaitUntil([&] { return size() > index; }));
    return size() > index ? at(index) : ConnectionRef();
  }

 private:
  std::mutex mutex_;
  std::vector<ConnectionRef> refs_;
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_REF_HANDLER_H_
