// B27: answers from a thread pool to peers that are gone the moment they have
// them.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Submit(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> tasks_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

class ClosePoolCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(ClosePoolCases, B27_ShortConnectionsAnsweredByAPool) {
  constexpr int kClients = 4;
  constexpr int kConnections = 1250;  // each client
  const size_t fds = CountOpenFds();
  LifeHandler handler;
  {
    Pool pool(2);
    handler.on_traffic = [&pool](Connection& c) {
      pool.Submit([ref = c.ref(), request = std::string(c.Next())] {
        // The second half may find the peer gone.
        (void)ref.Write(request);
        (void)ref.Write(request);
      });
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        for (int j = 0; j < kConnections; ++j) {
          Client client = Client::Connect(server.address());
          ASSERT_TRUE(client.Echo("request")) << "connection " << j;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(server.stats().opened, server.stats().closed);
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  EXPECT_EQ(handler.opened, kClients * kConnections);
  handler.ExpectOrderlyEnd();
  EXPECT_EQ(CountOpenFds(), fds) << DescribeOpenFds();
}

std::vector<MatrixParam> UnixCombinations() {
  std::vector<MatrixParam> all = LoopCombinations();
  for (MatrixParam& param : all) param.family = Family::kUnix;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loops, ClosePoolCases,
                         ::testing::ValuesIn(UnixCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
