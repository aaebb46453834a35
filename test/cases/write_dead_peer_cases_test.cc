// B49: no path to a peer that is gone raises SIGPIPE, and each ends in one
// OnClose.

#include <errno.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/broadcaster.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

std::vector<MatrixParam> DeadPeerCombinations() {
  std::vector<MatrixParam> all;
  for (MatrixParam param : LoopCombinations()) {
    for (const Family family : {Family::kTcp4, Family::kUnix}) {
      param.family = family;
      all.push_back(param);
    }
  }
  return all;
}

class WriteDeadPeerCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void SetUp() override { before_ = signal(SIGPIPE, SIG_DFL); }
  void TearDown() override { signal(SIGPIPE, before_); }

  // The peer goes before `act` runs, on the connection's loop, which has not
  // seen it yet. `queued` bytes were written before that.
  void WriteToTheDead(const std::function<void(Connection&)>& act,
                      size_t queued = 0) {
    RefHandler handler;
    handler.on_open = [](Connection& c) {
      c.Emplace<int>(0);
      return Action::kNone;
    };
    handler.on_close = [](Connection& c, const CloseInfo&) {
      EXPECT_EQ(++c.Get<int>(), 1) << "a second OnClose";
      EXPECT_EQ(c.Write("no").code(), absl::StatusCode::kFailedPrecondition);
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    Reactor& home = HomeOf(server, ref);
    if (queued > 0) {
      EXPECT_TRUE(ref.Write(Pattern(queued)).ok());
      TurnOver(home);
    }
    RunOn(home, [&] {
      client.CloseWithReset();
      act(*home.Find(ref));
    });
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(handler.closed, 1);
    EXPECT_EQ(ref.Write("no").code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  }

 private:
  sighandler_t before_ = SIG_DFL;
};

constexpr size_t kSizes[] = {1, 1000, size_t{2} << 20};

TEST_P(WriteDeadPeerCases, B49_TwoWrites) {
  for (const size_t size : kSizes) {
    WriteToTheDead([size](Connection& c) {
      (void)c.Write(std::string(size, 'x'));
      (void)c.Write(std::string(size, 'y'));
    });
  }
}

TEST_P(WriteDeadPeerCases, B49_WritesInTwoTurns) {
  WriteToTheDead([](Connection& c) {
    (void)c.Write("x");
    const absl::Status posted =
        c.ref().Post([](Connection& again) { (void)again.Write("y"); });
    EXPECT_TRUE(posted.ok());
  });
}

TEST_P(WriteDeadPeerCases, B49_GatherWrite) {
  for (const size_t size : kSizes) {
    const std::string bytes(size, 'x');
    WriteToTheDead([&bytes](Connection& c) {
      const std::vector<std::string_view> pieces(50, bytes);
      (void)c.Write(pieces);
      (void)c.Write(pieces);
    });
  }
}

TEST_P(WriteDeadPeerCases, B49_QueuedFlush) {
  const size_t queued = size_t{8} << 20;
  WriteToTheDead([](Connection& c) { EXPECT_GT(c.outbound(), 0u); }, queued);
  WriteToTheDead([](Connection& c) { (void)c.Write("more"); }, queued);
}

TEST_P(WriteDeadPeerCases, B49_CloseAndShutdown) {
  for (const size_t queued : {size_t{0}, size_t{8} << 20}) {
    for (const CloseMode mode :
         {CloseMode::kFlush, CloseMode::kNow, CloseMode::kReset}) {
      WriteToTheDead(
          [mode](Connection& c) {
            (void)c.Write("last words");
            c.Close(mode);
          },
          queued);
    }
    WriteToTheDead(
        [](Connection& c) {
          (void)c.Write("last words");
          c.ShutdownWrite();
        },
        queued);
  }
}

TEST_P(WriteDeadPeerCases, B49_SharedWrite) {
  for (const size_t size : kSizes) {
    const Payload payload(Pattern(size));
    WriteToTheDead([&payload](Connection& c) {
      (void)c.Write(payload);
      (void)c.Write(payload);
    });
  }
}

TEST_P(WriteDeadPeerCases, B49_Broadcast) {
  for (const size_t queued : {size_t{0}, size_t{8} << 20}) {
    std::unique_ptr<Broadcaster> broadcaster;
    WriteToTheDead(
        [&broadcaster](Connection& c) {
          broadcaster = *Broadcaster::Create(c.reactor().engine());
          GroupOptions options;
          options.max_backlog = size_t{64} << 20;
          EXPECT_TRUE(broadcaster->AddGroup("all", options).ok());
          EXPECT_TRUE(broadcaster->Join("all", c.ref()).ok());
          for (const char* message : {"1", "2"}) {
            EXPECT_TRUE(broadcaster->Publish("all", Payload(message)).ok());
          }
          broadcaster = nullptr;
        },
        queued);
  }
}

TEST_P(WriteDeadPeerCases, B49_ATicketForEach) {
  constexpr size_t kPeers = 10;
  for (const size_t size : {size_t{10}, size_t{100'000}}) {
    const std::string bytes(size, 'x');
    RefHandler handler;
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      for (const ConnectionRef& ref : handler.refs()) {
        for (int i = 0; i < 3; ++i) (void)ref.Write(bytes);
      }
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    std::vector<Client> peers;
    for (size_t i = 0; i < kPeers; ++i) {
      peers.push_back(Client::Connect(server.address()));
      (void)handler.WaitFor(i);
    }
    {
      LoopBlock block(HomeOf(server, handler.at(kPeers - 1)));
      for (size_t i = 0; i + 1 < kPeers; ++i) peers[i].CloseWithReset();
      EXPECT_TRUE(peers.back().SendAll("x"));
    }
    EXPECT_EQ(peers.back().ReadExactly(3 * size).size(), 3 * size);
    ASSERT_TRUE(WaitUntil([&] { return handler.closed == kPeers - 1; }));
    peers.back().Close();
    ASSERT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(handler.closed, static_cast<int>(kPeers));
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, WriteDeadPeerCases,
                         ::testing::ValuesIn(DeadPeerCombinations()),
                         MatrixName);

}  // namespace
}  // namespace sluice::test
