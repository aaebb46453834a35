// Internal: how a dial ended.
#ifndef SLUICE_TEST_SUPPORT_DIAL_RESULT_H_
#define SLUICE_TEST_SUPPORT_DIAL_RESULT_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/wait.h"

namespace sluice::test {

inline bool Contains(const absl::Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

// Waits for the end of one dial. Destroyed uncalled counts as well.
class DialResult {
 public:
  DialDone Done() {
    return [shared = shared_, guard = Guard{shared_}](
               absl::StatusOr<Connection*> result) mutable {
      EXPECT_TRUE(!result.ok() || (*result)->reactor().InLoop());
      shared->status = result.status();
      ++shared->calls;
      shared->called.Set();
    };
  }
  // The status of the dial, once `done` was called.
  absl::Status Wait() {
    if (!shared_->called.Wait()) {
      return absl::DeadlineExceededError("done was not called");
    }
    return shared_->status;
  }
  int calls() const { return shared_->calls; }
  bool destroyed() const { return shared_->destroyed; }

 private:
  struct Shared {
    Event called;
    absl::Status status;
    std::atomic<int> calls{0};
    std::atomic<bool> destroyed{false};
  };
  struct Guard {
    explicit Guard(std::shared_ptr<Shared> s) : shared(std::move(s)) {}
    Guard(Guard&&) = default;
    ~Guard() {
      if (shared) shared->destroyed = true;
    }
    std::shared_ptr<Shared> shared;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_DIAL_RESULT_H_
