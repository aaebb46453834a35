// Internal: pools for tests.
#ifndef SLUICE_TEST_WORKER_POOL_POOL_SUPPORT_H_
#define SLUICE_TEST_WORKER_POOL_POOL_SUPPORT_H_

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"
#include "test/support/wait.h"
#include "worker_pool/worker_pool.h"

namespace sluice::test {

// Options that do not log.
inline WorkerPoolOptions PoolOptions(int threads, size_t queue = 10'000) {
  WorkerPoolOptions options;
  options.threads = threads;
  options.queue = queue;
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

inline std::unique_ptr<WorkerPool> MakePool(WorkerPoolOptions options) {
  absl::StatusOr<std::unique_ptr<WorkerPool>> pool =
      WorkerPool::Create(std::move(options));
  EXPECT_TRUE(pool.ok()) << pool.status().ToString();
  return pool.ok() ? *std::move(pool) : nullptr;
}

// Holds workers of a pool inside a job each, so that what is submitted
// meanwhile waits. Lifetime: Release, or the destructor, before the pool's end.
class WorkerBlock {
 public:
  // Returns when `workers` of them stand.
  explicit WorkerBlock(WorkerPool& pool, int workers = 1) {
    for (int i = 0; i < workers; ++i) {
      const absl::Status submitted = pool.Submit([shared = shared_] {
        ++shared->standing;
        EXPECT_TRUE(shared->release.Wait(std::chrono::minutes(10)));
      });
      EXPECT_TRUE(submitted.ok()) << submitted.ToString();
    }
    EXPECT_TRUE(WaitUntil([&] { return shared_->standing == workers; }));
  }
  ~WorkerBlock() { Release(); }
  WorkerBlock(const WorkerBlock&) = delete;
  WorkerBlock& operator=(const WorkerBlock&) = delete;

  void Release() { shared_->release.Set(); }

 private:
  struct Shared {
    std::atomic<int> standing{0};
    Event release;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// An engine, and clients whose tickets are known.
class ConnectedServer {
 public:
  explicit ConnectedServer(int connections, int reactors = 1)
      : server_(handler_, {UniqueUnixAddress()}, TestOptions(reactors)) {
    EXPECT_TRUE(server_.created().ok()) << server_.created().ToString();
    for (int i = 0; i < connections; ++i) {
      clients_.push_back(Client::Connect(server_.address()));
      refs_.push_back(handler_.WaitFor(static_cast<size_t>(i)));
    }
  }

  TestServer& server() { return server_; }
  Reactor& loop(int index = 0) { return server_.engine().reactor(index); }
  const std::vector<ConnectionRef>& refs() const { return refs_; }
  ConnectionRef ref(size_t index = 0) const { return refs_.at(index); }
  Client& client(size_t index = 0) { return clients_.at(index); }

  // Ends every connection; their tickets stay in refs().
  void CloseClients() {
    clients_.clear();
    EXPECT_TRUE(server_.WaitForNoConnections());
  }

 private:
  RefHandler handler_;
  TestServer server_;
  std::vector<Client> clients_;
  std::vector<ConnectionRef> refs_;
};

// What every pool's counters add up to once it is quiet.
inline void ExpectBalanced(const WorkerPoolStats& s) {
  EXPECT_EQ(s.queued, 0u);
  EXPECT_EQ(s.running, 0u);
  EXPECT_EQ(s.submitted, s.done + s.cancelled);
  EXPECT_LE(s.exceptions, s.done);
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_WORKER_POOL_POOL_SUPPORT_H_
