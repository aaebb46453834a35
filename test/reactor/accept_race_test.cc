// wrap: accept4
// An acceptor stands between having reserved and accept4's answer, which is
// that nobody is there: what it held meanwhile goes where it is wanted.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/test_server.h"

extern "C" {
int __real_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
}

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Holds one call of accept4, on whichever reactor it comes first.
class HeldAccept {
 public:
  HeldAccept() { held_ = this; }
  ~HeldAccept() { held_ = nullptr; }  // the engine has ended

  [[nodiscard]] bool WaitUntilHeld() { return entered_.Wait(); }
  // It empties its queue, closes who was in it, and answers EAGAIN.
  void Release() { release_.Set(); }

  static int Call(int fd, sockaddr* address, socklen_t* length, int flags) {
    HeldAccept* const held = held_;
    if (held == nullptr || !held->armed_.exchange(false)) {
      return __real_accept4(fd, address, length, flags);
    }
    held->entered_.Set();
    EXPECT_TRUE(held->release_.Wait());
    for (int i = 0; i < 1000; ++i) {
      const int one = __real_accept4(fd, nullptr, nullptr, flags);
      if (one < 0) break;
      close(one);
    }
    errno = EAGAIN;
    return -1;
  }

 private:
  static inline std::atomic<HeldAccept*> held_{nullptr};
  std::atomic<bool> armed_{true};
  Event entered_;
  Event release_;
};

Options TwoAcceptors() {
  Options options = TestOptions(2);
  options.accept_mode = AcceptMode::kReusePort;
  return options;
}

bool Answered(const Client& client) {
  char byte;
  return recv(client.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

class AcceptRace : public ::testing::Test {
 protected:
  AcceptRace() { handler_.on_traffic = EchoTraffic; }

  // One for the reactor that is held, and then so many that the kernel, which
  // chooses, gives the other reactor some. That one needs time to come to rest;
  // if it gets too little, it serves one without having waited.
  std::vector<Client> Connect(TestServer& server) {
    std::vector<Client> clients;
    clients.push_back(Client::Connect(server.address()));
    EXPECT_TRUE(held_.WaitUntilHeld());
    for (int i = 0; i < 40; ++i) {
      clients.push_back(Client::Connect(server.address()));
      EXPECT_TRUE(clients.back().SendAll("x"));
    }
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(server.stats().opened, 0u);
    return clients;
  }
  void ExpectOneIsServed(TestServer& server,
                         const std::vector<Client>& clients) {
    EXPECT_TRUE(WaitUntil(
        [&] { return std::any_of(clients.begin(), clients.end(), Answered); }));
    EXPECT_EQ(server.stats().opened, 1u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler_.ExpectOrderlyEnd();
  }

  LifeHandler handler_;
  HeldAccept held_;
};

TEST_F(AcceptRace, ATokenThatWasNotNeededGoesToWhoWaits) {
  ListenerSpec spec("tcp://127.0.0.1:0");
  spec.options.accept_rate = 0.001;
  spec.options.accept_burst = 1;
  TestServer server(handler_, {spec}, TwoAcceptors());
  const std::vector<Client> clients = Connect(server);
  held_.Release();
  ExpectOneIsServed(server, clients);
}

TEST_F(AcceptRace, SoDoesAPlaceOfTheListener) {
  ListenerSpec spec("tcp://127.0.0.1:0");
  spec.options.max_connections = 1;
  TestServer server(handler_, {spec}, TwoAcceptors());
  const std::vector<Client> clients = Connect(server);
  held_.Release();
  ExpectOneIsServed(server, clients);
}

TEST_F(AcceptRace, SoDoesAPlaceOfTheEngine) {
  Options options = TwoAcceptors();
  options.max_connections = 1;
  TestServer server(handler_, {"tcp://127.0.0.1:0"}, options);
  const std::vector<Client> clients = Connect(server);
  held_.Release();
  ExpectOneIsServed(server, clients);
}

// What an acceptor holds is no connection that a drain has to wait for.
TEST_F(AcceptRace, ADrainEndsWithThePlaceThatWasNotNeeded) {
  std::atomic<bool> draining{false};
  handler_.on_drain = [&](Engine&) { draining = true; };
  TestServer server(handler_, {"tcp://127.0.0.1:0"}, TwoAcceptors());
  Client client = Client::Connect(server.address());
  ASSERT_TRUE(held_.WaitUntilHeld());
  server.engine().Drain(std::chrono::hours(1));
  ASSERT_TRUE(WaitUntil([&] { return draining.load(); }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(server.run_returned());
  held_.Release();
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_TRUE(server.StopAndDestroy().ok());
  EXPECT_EQ(handler_.opened, 0);
}

}  // namespace
}  // namespace sluice::test

int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return sluice::test::HeldAccept::Call(fd, address, length, flags);
}
