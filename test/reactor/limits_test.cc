// The bounds of Options and ConnectionLimits: connections, input, output.

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// --- max_connections

class MaxConnections : public ::testing::TestWithParam<MatrixParam> {
 protected:
  static constexpr size_t kMost = 5;

  Options MakeOptions(WhenFull when_full) {
    Options options = GetParam().MakeOptions();
    options.max_connections = kMost;
    options.when_full = when_full;
    return options;
  }
  // Counts how many are open at a time.
  MaxConnections() {
    handler_.on_open = [this](Connection&) {
      const size_t now = ++open_;
      size_t before = most_open_;
      while (now > before && !most_open_.compare_exchange_weak(before, now)) {
      }
      return Action::kNone;
    };
    handler_.on_traffic = EchoTraffic;
    handler_.on_close = [this](Connection&, const CloseInfo&) { --open_; };
  }

  LifeHandler handler_;
  std::atomic<size_t> open_{0};
  std::atomic<size_t> most_open_{0};
};

TEST_P(MaxConnections, TheOthersWaitAndAllAreServedInTheEnd) {
  TestServer server(handler_, {GetParam().Listen()},
                    MakeOptions(WhenFull::kWait));
  constexpr size_t kClients = 30;
  std::vector<Client> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(Client::Connect(server.address()));
    ASSERT_TRUE(clients.back().SendAll("x"));
  }
  ASSERT_TRUE(WaitUntil([&] { return open_ == kMost; }));
  // A connection that is answered makes room for another one.
  std::set<size_t> served;
  ASSERT_TRUE(WaitUntil([&] {
    for (size_t i = 0; i < kClients; ++i) {
      if (!clients[i].connected() || !clients[i].Readable(milliseconds(0))) {
        continue;
      }
      EXPECT_EQ(clients[i].ReadExactly(1), "x");
      clients[i].Close();
      served.insert(i);
    }
    return served.size() == kClients;
  })) << served.size()
      << " were served";
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(handler_.opened, static_cast<int>(kClients));
  EXPECT_EQ(most_open_, kMost);
  EXPECT_EQ(server.stats().rejected, 0u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(MaxConnections, WaitingCostsNoTurns) {
  TestServer server(handler_, {GetParam().Listen()},
                    MakeOptions(WhenFull::kWait));
  std::vector<Client> clients;
  for (size_t i = 0; i < 3 * kMost; ++i) {
    clients.push_back(Client::Connect(server.address()));
  }
  ASSERT_TRUE(WaitUntil([&] { return open_ == kMost; }));
  for (int i = 0; i < server.engine().reactors(); ++i) {
    TurnOver(server.engine().reactor(i));
  }
  std::this_thread::sleep_for(milliseconds(50));
  const uint64_t turns = server.stats().turns;
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(server.stats().turns - turns,
            4u * static_cast<uint64_t>(server.engine().reactors() + 1));
}

TEST_P(MaxConnections, TheOthersAreRejected) {
  TestServer server(handler_, {GetParam().Listen()},
                    MakeOptions(WhenFull::kReject));
  for (int round = 0; round < 3; ++round) {
    std::vector<Client> clients;
    for (size_t i = 0; i < kMost; ++i) {
      clients.push_back(Client::Connect(server.address()));
      ASSERT_TRUE(clients.back().Echo("x"));
    }
    for (size_t i = 0; i < 2 * kMost; ++i) {
      Client rejected = Client::Connect(server.address());
      int error = 0;
      EXPECT_EQ(rejected.ReadToEnd(&error), "");
    }
    for (Client& client : clients) EXPECT_TRUE(client.Echo("still here"));
    clients.clear();
    ASSERT_TRUE(server.WaitForNoConnections());
    const uint64_t rounds = static_cast<uint64_t>(round) + 1;
    EXPECT_EQ(server.stats().rejected, rounds * 2 * kMost);
    EXPECT_EQ(server.stats().opened, rounds * kMost);
  }
  EXPECT_EQ(most_open_, kMost);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

// Opening and closing from many threads: the bound holds and no place is lost.
TEST_P(MaxConnections, NoPlaceIsLostInAStorm) {
  for (const WhenFull when_full : {WhenFull::kWait, WhenFull::kReject}) {
    TestServer server(handler_, {GetParam().Listen()}, MakeOptions(when_full));
    const Address address = server.address();
    std::vector<std::thread> threads;
    std::atomic<int> served{0};
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 25; ++i) {
          Client client = Client::Connect(address);
          char byte = 'x';
          if (send(client.fd(), &byte, 1, MSG_NOSIGNAL) == 1) {
            if (client.Readable(kPatience) &&
                recv(client.fd(), &byte, 1, 0) == 1) {
              ++served;
            } else {
              EXPECT_EQ(when_full, WhenFull::kReject);
            }
          }
          if ((t + i) % 3 == 0) client.CloseWithReset();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(server.WaitForNoConnections());
    if (when_full == WhenFull::kWait) {
      EXPECT_EQ(served, 8 * 25);
    }
    // As many as ever fit.
    std::vector<Client> clients;
    for (size_t i = 0; i < kMost; ++i) {
      clients.push_back(Client::Connect(address));
      EXPECT_TRUE(clients.back().Echo("x"));
    }
    EXPECT_TRUE(server.StopAndDestroy().ok());
    EXPECT_LE(most_open_, kMost);
    handler_.over = false;
  }
}

std::vector<MatrixParam> AcceptCombinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.reactors != 2 && param.family != Family::kTcp6 &&
        param.trigger == Trigger::kLevel) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, MaxConnections,
                         ::testing::ValuesIn(AcceptCombinations()), MatrixName);

// --- max_inbound, max_outbound

class DataLimits : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void Start(Options options) {
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{GetParam().Listen()}, options);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    ClientOptions small;
    small.receive_buffer = 4096;
    client_ = Client::Connect(server_->address(), small);
    ref_ = handler_.WaitFor(0);
  }
  ~DataLimits() override { server_.reset(); }

  // Runs on the connection, and waits for it.
  void OnConnection(std::function<void(Connection&)> function) {
    Event done;
    const absl::Status posted = ref_.Post([&](Connection& c) {
      function(c);
      done.Set();
    });
    ASSERT_TRUE(posted.ok()) << posted.ToString();
    ASSERT_TRUE(done.Wait());
  }
  // What the connection keeps, as soon as it does not grow any more.
  size_t SettledInbound() {
    size_t inbound = 0;
    for (int same = 0; same < 5;) {
      std::this_thread::sleep_for(milliseconds(20));
      size_t now = 0;
      OnConnection([&](Connection& c) { now = c.inbound(); });
      same = now == inbound ? same + 1 : 0;
      inbound = now;
    }
    return inbound;
  }

  RefHandler handler_;
  std::unique_ptr<TestServer> server_;
  Client client_;
  ConnectionRef ref_;
};

TEST_P(DataLimits, InputStopsAtTheBoundAndGoesOn) {
  constexpr size_t kBytes = size_t{4} << 20;
  for (const size_t limit :
       {size_t{64} << 10, size_t{100'000}, size_t{1} << 20}) {
    SCOPED_TRACE(limit);
    RefHandler handler;
    std::string all;  // the loop's
    std::atomic<size_t> most{0};
    std::atomic<size_t> total{0};
    handler.on_traffic = [&](Connection& c) {
      if (c.inbound() > most) most = c.inbound();
      return Action::kNone;
    };
    Options options = GetParam().MakeOptions();
    options.limits.max_inbound = limit;
    options.read_buffer = 16 << 10;
    options.reactors = 1;
    TestServer server(handler, {GetParam().Listen()}, options);
    Reactor& loop = server.engine().reactor(0);
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    std::string stream(kBytes, '\0');
    for (size_t i = 0; i < kBytes; ++i) {
      stream[i] = static_cast<char>('a' + (i * 7 >> 5) % 23);
    }
    std::thread sender([&] { EXPECT_TRUE(client.SendAll(stream)); });
    ASSERT_TRUE(WaitUntil([&] { return most >= limit; })) << most;
    TurnOver(loop);
    // Full: nothing is read, and the loop does not turn.
    const uint64_t bytes_in = server.stats().bytes_in;
    const uint64_t turns = server.stats().turns;
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(server.stats().bytes_in, bytes_in);
    EXPECT_LE(server.stats().turns - turns, 5u);
    EXPECT_EQ(bytes_in, limit);
    // Consumed from outside of OnTraffic, in bits and as a whole in turn.
    bool whole = false;
    while (total < kBytes) {
      const size_t before = total;
      RunOn(loop, [&] {
        Connection* c = loop.Find(ref);
        ASSERT_NE(c, nullptr);
        all +=
            whole ? c->Next() : c->Next(std::min<size_t>(c->inbound(), 1000));
        total = all.size();
      });
      whole = !whole;
      if (total == before) std::this_thread::yield();
      if (HasFailure()) break;
    }
    sender.join();
    EXPECT_TRUE(all == stream);
    EXPECT_EQ(most, limit) << "more than the bound was kept";
  }
}

// A bound below the size of a read holds, too.
TEST_P(DataLimits, ABoundBelowTheReadBuffer) {
  Options options = GetParam().MakeOptions();
  options.limits.max_inbound = 1000;
  options.read_buffer = 64 << 10;
  std::atomic<size_t> most{0};
  handler_.on_traffic = [&](Connection& c) {
    most = std::max<size_t>(most, c.inbound());
    return Action::kNone;
  };
  Start(options);
  const std::string stream(10'000, 'x');
  ASSERT_TRUE(client_.SendAll(stream));
  EXPECT_EQ(SettledInbound(), 1000u);
  size_t consumed = 0;
  while (consumed < stream.size() && !HasFailure()) {
    size_t now = 0;
    ASSERT_TRUE(WaitUntil([&] {
      OnConnection([&](Connection& c) { now = c.Discard(); });
      return now > 0;
    }));
    consumed += now;
  }
  EXPECT_EQ(consumed, stream.size());
  EXPECT_LE(most, 1000u);
}

// A handler that takes only whole messages, of just what fits.
TEST_P(DataLimits, AMessageOfTheBoundsSizeFits) {
  constexpr size_t kMessage = 50'000;
  Options options = GetParam().MakeOptions();
  options.limits.max_inbound = kMessage;
  handler_.on_traffic = [&](Connection& c) {
    while (c.inbound() >= kMessage) {
      EXPECT_TRUE(c.Write(c.Next(kMessage).substr(0, 1)).ok());
    }
    return Action::kNone;
  };
  Start(options);
  for (int i = 0; i < 5; ++i) {
    const std::string letter(1, static_cast<char>('a' + i));
    ASSERT_TRUE(client_.SendAll(std::string(kMessage, letter[0])));
    EXPECT_EQ(client_.ReadExactly(1), letter);
  }
  // Several at once.
  std::string many;
  for (int i = 0; i < 20; ++i) {
    many += std::string(kMessage, static_cast<char>('a' + i));
  }
  ASSERT_TRUE(client_.SendAll(many));
  EXPECT_EQ(client_.ReadExactly(20), "abcdefghijklmnopqrst");
}

TEST_P(DataLimits, APeerThatEndsAtTheBoundIsNoticed) {
  Options options = GetParam().MakeOptions();
  options.limits.max_inbound = 4096;
  options.read_buffer = 4096;
  std::atomic<size_t> kept{0};
  handler_.on_traffic = [&](Connection& c) {
    kept = c.inbound();
    return Action::kNone;
  };
  Start(options);
  ASSERT_TRUE(client_.SendAll(std::string(4096, 'x')));
  ASSERT_TRUE(WaitUntil([&] { return kept == 4096; }));
  ASSERT_TRUE(client_.ShutdownWrite());
  // All bytes before the FIN were delivered: it is told without another read.
  EXPECT_TRUE(WaitUntil([&] { return handler_.peer_shutdowns == 1; }));
  EXPECT_EQ(client_.ReadToEof(), "");
  EXPECT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
}

constexpr size_t kPiece = size_t{64} << 10;
constexpr size_t kMostOut = size_t{1} << 20;

TEST_P(DataLimits, OutputBeyondTheBoundIsRefused) {
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = kMostOut;
  options.limits.when_overflow = WhenOverflow::kRefuse;
  Start(options);
  const std::string piece(kPiece, 'o');
  size_t accepted = 0;
  OnConnection([&](Connection& c) {
    bool refused = false;
    for (int i = 0; i < 1000; ++i) {
      const size_t before = c.outbound();
      const absl::Status wrote = c.Write(piece);
      if (wrote.ok()) {
        accepted += kPiece;
      } else {
        refused = true;
        EXPECT_EQ(wrote.code(), absl::StatusCode::kResourceExhausted);
        EXPECT_EQ(c.outbound(), before) << "something was taken";
      }
      EXPECT_LE(c.outbound(), kMostOut);
    }
    EXPECT_TRUE(refused);
    EXPECT_TRUE(c.open());
    // What fits is still taken, to the last byte and no further.
    const size_t room = kMostOut - c.outbound();
    if (room > 0) {
      EXPECT_TRUE(c.Write(std::string(room, 'o')).ok());
    }
    accepted += room;
    EXPECT_FALSE(c.Write("o").ok());
    EXPECT_TRUE(c.Write("").ok()) << "nothing always fits";
    const std::vector<std::string_view> pieces = {"o", "o"};
    EXPECT_EQ(c.Write(pieces).code(), absl::StatusCode::kResourceExhausted);
  });
  // Never more than the kernel's share on top of the bound.
  EXPECT_LT(accepted, size_t{32} << 20);
  const std::string got = client_.ReadExactly(accepted);
  EXPECT_EQ(got.size(), accepted);
  EXPECT_EQ(got.find_first_not_of('o'), std::string::npos);
  // With the queue gone writes are taken again.
  ASSERT_TRUE(WaitUntil([&] {
    size_t left = 1;
    OnConnection([&](Connection& c) { left = c.outbound(); });
    return left == 0;
  }));
  OnConnection([&](Connection& c) { EXPECT_TRUE(c.Write("again").ok()); });
  EXPECT_EQ(client_.ReadExactly(5), "again");
  EXPECT_EQ(handler_.closed, 0);
}

TEST_P(DataLimits, OutputBeyondTheBoundClosesTheConnection) {
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = kMostOut;
  options.limits.when_overflow = WhenOverflow::kClose;
  std::atomic<CloseReason> reason{CloseReason::kNone};
  std::atomic<size_t> unsent{0};
  handler_.on_close = [&](Connection&, const CloseInfo& info) {
    reason = info.reason;
    unsent = info.unsent_bytes;
  };
  Start(options);
  const std::string piece(kPiece, 'o');
  size_t accepted = 0;
  OnConnection([&](Connection& c) {
    absl::Status wrote;
    for (int i = 0; i < 1000 && wrote.ok(); ++i) {
      wrote = c.Write(piece);
      if (wrote.ok()) accepted += kPiece;
    }
    EXPECT_EQ(wrote.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(c.open());
    EXPECT_EQ(c.Write("more").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(handler_.closed, 0) << "a write called back";
  });
  ASSERT_TRUE(WaitUntil([&] { return handler_.closed == 1; }));
  EXPECT_EQ(reason.load(), CloseReason::kSlowConsumer);
  EXPECT_LE(unsent, kMostOut);
  int error = 0;
  const std::string got = client_.ReadToEnd(&error);
  // What the kernel had taken; the rest is told.
  EXPECT_LE(got.size(), accepted - unsent);
  EXPECT_EQ(got.find_first_not_of('o'), std::string::npos);
  EXPECT_TRUE(server_->WaitForNoConnections());
  EXPECT_TRUE(
      WaitUntil([&] { return server_->stats().buffers_outstanding == 0; }));
}

// One write that could never fit.
TEST_P(DataLimits, AWriteLargerThanTheBound) {
  for (const WhenOverflow policy :
       {WhenOverflow::kRefuse, WhenOverflow::kClose}) {
    RefHandler handler;
    std::atomic<CloseReason> reason{CloseReason::kNone};
    handler.on_traffic = [](Connection& c) {
      c.Discard();
      EXPECT_EQ(c.Write(std::string(kMostOut + 1, 'o')).code(),
                absl::StatusCode::kResourceExhausted);
      return Action::kNone;
    };
    handler.on_close = [&](Connection&, const CloseInfo& info) {
      reason = info.reason;
    };
    Options options = GetParam().MakeOptions();
    options.limits.max_outbound = kMostOut;
    options.limits.when_overflow = policy;
    TestServer server(handler, {GetParam().Listen()}, options);
    Client client = Client::Connect(server.address());
    ASSERT_TRUE(client.SendAll("x"));
    if (policy == WhenOverflow::kClose) {
      ASSERT_TRUE(WaitUntil([&] { return handler.closed == 1; }));
      EXPECT_EQ(reason.load(), CloseReason::kSlowConsumer);
    } else {
      ASSERT_TRUE(WaitUntil([&] { return handler.traffic == 1; }));
      EXPECT_FALSE(client.Readable(milliseconds(50)));
      EXPECT_EQ(handler.closed, 0);
    }
  }
}

// 0: no bound.
TEST_P(DataLimits, WithoutABoundEverythingIsTaken) {
  Options options = GetParam().MakeOptions();
  options.limits.max_outbound = 0;
  Start(options);
  constexpr size_t kBytes = size_t{70} << 20;  // the default would be 64 MiB
  const std::string piece(size_t{1} << 20, 'o');
  OnConnection([&](Connection& c) {
    for (size_t i = 0; i < kBytes; i += piece.size()) {
      ASSERT_TRUE(c.Write(piece).ok());
    }
  });
  EXPECT_EQ(handler_.closed, 0);
  EXPECT_EQ(client_.ReadExactly(1), "o");
}

INSTANTIATE_TEST_SUITE_P(
    Some, DataLimits,
    ::testing::Values(
        MatrixParam{Family::kTcp4, 1},
        MatrixParam{Family::kTcp4, 2, AcceptMode::kReusePort, Trigger::kEdge},
        MatrixParam{Family::kUnix, 1, AcceptMode::kHandOff, Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
