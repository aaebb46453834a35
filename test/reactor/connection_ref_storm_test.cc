// Tickets in eight threads against connections that come and go.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

struct Tally {
  std::atomic<int64_t> submitted{0};
  std::atomic<int64_t> accepted{0};
  std::atomic<int64_t> ran{0};
  std::atomic<int64_t> destroyed{0};
  std::atomic<int64_t> wrong{0};
};

// What a posted function holds: tells when it is destroyed.
struct Ticket {
  explicit Ticket(Tally& t) : tally(t) { ++tally.submitted; }
  ~Ticket() { ++tally.destroyed; }
  Tally& tally;
};

void Harass(RefHandler& handler, Tally& tally, unsigned seed, int calls) {
  std::mt19937 random(seed);
  for (int i = 0; i < calls; ++i) {
    const size_t count = handler.size();
    // Mostly young connections, sometimes one long dead.
    const size_t back = random() % (random() % 4 == 0 ? count : 50);
    const ConnectionRef ref = handler.at(back < count ? count - 1 - back : 0);
    absl::Status status;
    switch (random() % 16) {
      case 0:
        status = ref.Close(static_cast<CloseMode>(random() % 3));
        break;
      case 1:
      case 2:
        status = ref.Wake();
        break;
      case 3:
      case 4:
      case 5: {
        status =
            ref.Post([ticket = std::make_unique<Ticket>(tally)](Connection& c) {
              if (!c.reactor().InLoop()) ++ticket->tally.wrong;
              ++ticket->tally.ran;
            });
        if (status.ok()) ++tally.accepted;
        break;
      }
      default:
        status = ref.Write(std::string(random() % 200, 'x'));
    }
    if (!status.ok() && status.code() != absl::StatusCode::kNotFound) {
      ++tally.wrong;
      ADD_FAILURE() << status.ToString();
      return;
    }
  }
}

class ConnectionRefStorm : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(ConnectionRefStorm, EightThreadsAgainstClosingConnections) {
  RefHandler handler;
  Tally tally;
  {
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<Client> clients;
    clients.push_back(Client::Connect(server.address()));
    (void)handler.WaitFor(0);
    const int calls = kSanitized ? 3000 : 20'000;
    std::atomic<int> running{8};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        Harass(handler, tally, t, calls);
        --running;
      });
    }
    std::mt19937 random(99);
    while (running > 0) {
      clients.push_back(Client::Connect(server.address()));
      if (clients.size() > 60) {
        const size_t victim = random() % clients.size();
        if (random() % 2 == 0) clients[victim].CloseWithReset();
        clients.erase(clients.begin() + static_cast<ptrdiff_t>(victim));
      }
    }
    for (std::thread& thread : threads) thread.join();
    clients.clear();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_TRUE(WaitUntil([&] { return tally.destroyed == tally.submitted; }))
        << tally.destroyed << " of " << tally.submitted;
    EXPECT_TRUE(
        WaitUntil([&] { return server.stats().buffers_outstanding == 0; }));
    const EngineStats stats = server.stats();
    EXPECT_EQ(stats.opened, stats.closed);
    EXPECT_LE(tally.ran, tally.accepted);
    // Writes, wakes and closes that came too late are counted there too.
    EXPECT_GE(static_cast<int64_t>(stats.posts_dropped),
              tally.accepted - tally.ran);
    for (const ConnectionRef& ref : handler.refs()) {
      EXPECT_EQ(ref.Wake().code(), absl::StatusCode::kNotFound);
    }
  }
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(handler.opened, handler.closed);
}

std::vector<MatrixParam> StormCombinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.accept != AcceptMode::kHandOff) continue;
    if (param.family == Family::kTcp6 || param.reactors == 4) continue;
    some.push_back(param);
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, ConnectionRefStorm,
                         ::testing::ValuesIn(StormCombinations()), MatrixName);

// The same while the engine stops under their hands.
TEST(ConnectionRefAtStop, EightThreadsWhileTheEngineStops) {
  for (int round = 0; round < 12; ++round) {
    RefHandler handler;
    Tally tally;
    TestServer server(handler, {"tcp://127.0.0.1:0"},
                      TestOptions(1 + round % 3));
    std::vector<Client> clients;
    for (size_t i = 0; i < 8; ++i) {
      clients.push_back(Client::Connect(server.address()));
      (void)handler.WaitFor(i);
    }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const ConnectionRef ref = handler.at(t);
        for (;;) {
          const absl::Status status =
              ref.Post([ticket = std::make_unique<Ticket>(tally)](Connection&) {
                ++ticket->tally.ran;
              });
          if (status.code() == absl::StatusCode::kUnavailable) return;
          if (status.code() == absl::StatusCode::kNotFound) {
            std::this_thread::yield();  // until the engine is gone, too
            continue;
          }
          EXPECT_TRUE(status.ok()) << status.ToString();
        }
      });
    }
    ASSERT_TRUE(WaitUntil([&] { return tally.ran > 100; }));
    EXPECT_TRUE(server.StopAndDestroy().ok());
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(tally.destroyed, tally.submitted);
    EXPECT_EQ(handler.opened, handler.closed);
  }
}

}  // namespace
}  // namespace sluice::test
