// wrap: accept4 getpeername
// Cases of accepting: what went wrong elsewhere and must not here.

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
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
#include "test/support/process_info.h"
#include "test/support/test_server.h"

extern "C" {
int __real_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __real_getpeername(int fd, sockaddr* address, socklen_t* length);
int __wrap_getpeername(int fd, sockaddr* address, socklen_t* length);
}

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr char kTcp[] = "tcp://127.0.0.1:0";

// What accept4 does instead, while there is one; called on loops.
class AcceptHook {
 public:
  using Function = std::function<int(const std::function<int()>& real)>;

  explicit AcceptHook(Function function) {
    std::lock_guard<std::mutex> lock(mutex_);
    function_ = std::move(function);
    calls = 0;
  }
  ~AcceptHook() {
    std::lock_guard<std::mutex> lock(mutex_);
    function_ = nullptr;
  }

  static int Call(const std::function<int()>& real) {
    ++calls;
    // Held meanwhile: the hook never ends under a call's feet.
    std::lock_guard<std::mutex> lock(mutex_);
    return function_ ? function_(real) : real();
  }

  static inline std::atomic<int> calls{0};

 private:
  static inline std::mutex mutex_;
  static inline Function function_;
};

std::atomic<bool> getpeername_fails{false};

int FailWith(int error) {
  errno = error;
  return -1;
}

// Counts the lines an engine logs.
Options CountingOptions(int reactors, std::atomic<int>& lines) {
  Options options = TestOptions(reactors);
  options.log = [&lines](LogLevel, std::string_view) { ++lines; };
  return options;
}

// The share of one CPU that the process uses while nothing happens for a while.
double CpuShareOver(milliseconds window) {
  const auto cpu = ProcessCpuTime();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(window);
  return std::chrono::duration<double>(ProcessCpuTime() - cpu) /
         std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       start);
}

TEST(AcceptCases, B03_TransientErrorsNeverEndTheListener) {
  for (const int reactors : {1, 2}) {
    for (const AcceptMode mode :
         {AcceptMode::kHandOff, AcceptMode::kReusePort}) {
      LambdaHandler handler;
      handler.on_traffic = EchoTraffic;
      std::atomic<int> lines{0};
      Options options = CountingOptions(reactors, lines);
      options.accept_mode = mode;
      TestServer server(handler, {kTcp}, options);
      int failures = 0;
      for (const int error :
           {ECONNABORTED, EINTR, EPROTO, ENETDOWN, EHOSTUNREACH, ENOPROTOOPT,
            EHOSTDOWN, ENONET, EOPNOTSUPP, ENETUNREACH, ENOBUFS, ENOMEM}) {
        std::atomic<int> left{3};
        AcceptHook hook([&](const std::function<int()>& real) {
          return left.fetch_sub(1) > 0 ? FailWith(error) : real();
        });
        Client client = Client::Connect(server.address());
        EXPECT_TRUE(client.Echo("x")) << std::strerror(error);
        EXPECT_LE(left, 0) << std::strerror(error);
        failures += 3;
      }
      EXPECT_EQ(server.stats().accept_errors, static_cast<uint64_t>(failures));
      EXPECT_EQ(server.stats().accept_fd_limit, 0u);
    }
  }
}

TEST(AcceptCases, B03_APermanentErrorIsReportedOnceAndDoesNotSpin) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  std::atomic<int> lines{0};
  TestServer server(handler, {kTcp, kTcp}, CountingOptions(2, lines));
  const int lines_before = lines;
  Client good = Client::Connect(server.address(0));
  EXPECT_TRUE(good.Echo("x"));
  AcceptHook hook([](const std::function<int()>&) { return FailWith(EBADF); });
  Client waiting = Client::Connect(server.address(0));
  ASSERT_TRUE(WaitUntil([&] { return lines > lines_before; }))
      << "not reported";
  const int calls = AcceptHook::calls;
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LE(AcceptHook::calls - calls, 20) << "calls of accept4 in 500 ms";
  EXPECT_LE(lines - lines_before, 2);
  // The rest goes on.
  EXPECT_TRUE(good.Echo("y"));
}

TEST(AcceptCases, B01_TheSystemsLimitIsSurvived) {
  for (const int reactors : {1, 2}) {
    LambdaHandler handler;
    handler.on_traffic = EchoTraffic;
    std::atomic<int> lines{0};
    TestServer server(handler, {kTcp}, CountingOptions(reactors, lines));
    Client good = Client::Connect(server.address());
    EXPECT_TRUE(good.Echo("x"));
    std::vector<Client> waiting;
    {
      AcceptHook hook(
          [](const std::function<int()>&) { return FailWith(ENFILE); });
      for (int i = 0; i < 10; ++i) {
        waiting.push_back(Client::Connect(server.address()));
      }
      ASSERT_TRUE(
          WaitUntil([&] { return server.stats().accept_fd_limit > 0; }));
      const int lines_before = lines;
      const int calls = AcceptHook::calls;
      const double share = CpuShareOver(milliseconds(1000));
      EXPECT_LT(share, 0.2);
      EXPECT_LE(lines - lines_before, 10);
      EXPECT_LE(AcceptHook::calls - calls, 400) << "accept4 in one second";
      EXPECT_TRUE(good.Echo("y"));
    }
    // Once there is room it goes on, for those who still wait and the next.
    Client next = Client::Connect(server.address());
    EXPECT_TRUE(next.Echo("z"));
    EXPECT_EQ(server.stats().accept_fd_limit, server.stats().accept_errors);
  }
}

// A client that has sent RST before it was accepted.
TEST(AcceptCases, B04_ADeadClientComesAndGoesWithItsAddress) {
  for (const bool named : {true, false}) {
    LifeHandler handler;
    std::mutex mutex;
    std::vector<std::string> opened;
    std::vector<std::string> closed;
    handler.on_open = [&](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex);
      opened.push_back(c.peer().ToString());
      return Action::kNone;
    };
    handler.on_traffic = EchoTraffic;
    handler.on_close = [&](Connection& c, const CloseInfo&) {
      std::lock_guard<std::mutex> lock(mutex);
      closed.push_back(c.peer().ToString());
    };
    getpeername_fails = !named;
    {
      TestServer server(handler, {kTcp}, TestOptions(1));
      std::string dead;
      {
        LoopBlock block(server.engine().reactor(0));
        Client client = Client::Connect(server.address());
        dead = client.local().ToString();
        client.CloseWithReset();
      }
      // It is accepted in order, so when this one talks the first is through.
      Client client = Client::Connect(server.address());
      EXPECT_TRUE(client.Echo("x"));
      const std::string alive = client.local().ToString();
      client.Close();
      EXPECT_TRUE(server.WaitForNoConnections());
      std::lock_guard<std::mutex> lock(mutex);
      std::vector<std::string> expected = {alive};
      if (opened.size() > 1) expected.insert(expected.begin(), dead);
      EXPECT_EQ(opened, expected);
      std::sort(expected.begin(), expected.end());
      std::sort(closed.begin(), closed.end());
      EXPECT_EQ(closed, expected);
      EXPECT_EQ(server.stats().opened, server.stats().closed);
    }
    getpeername_fails = false;
    handler.ExpectOrderlyEnd();
  }
}

TEST(AcceptCases, B05_NothingOpensInTheBatchAfterStop) {
  LifeHandler handler;
  handler.on_open = [](Connection& c) {
    c.reactor().engine().Stop();
    return Action::kNone;
  };
  TestServer server(handler, {kTcp}, TestOptions(1));
  std::vector<Client> clients;
  {
    LoopBlock block(server.engine().reactor(0));
    for (int i = 0; i < 10; ++i) {
      clients.push_back(Client::Connect(server.address()));
    }
  }
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_EQ(handler.opened, 1);
  handler.ExpectOrderlyEnd();
}

TEST(AcceptCases, B05_NothingOpensInTheBatchBeyondTheMaximum) {
  LifeHandler handler;
  Options options = TestOptions(1);
  options.max_connections = 1;
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {kTcp}, options);
  std::vector<Client> clients;
  {
    LoopBlock block(server.engine().reactor(0));
    for (int i = 0; i < 10; ++i) {
      clients.push_back(Client::Connect(server.address()));
    }
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    // Each is served when the one before has gone, never two at once.
    EXPECT_TRUE(clients[i].Echo("x")) << "client " << i;
    TurnOver(server.engine().reactor(0));
    EXPECT_EQ(handler.opened, static_cast<int>(i) + 1);
    clients[i].Close();
  }
  EXPECT_TRUE(server.WaitForNoConnections());
}

// A cap on the accepts of a batch must come back for the rest by itself.
TEST(AcceptCases, B07_ABacklogIsEmptiedWithoutTheNextClient) {
  for (const Trigger trigger : {Trigger::kLevel, Trigger::kEdge}) {
    for (const AcceptMode mode :
         {AcceptMode::kHandOff, AcceptMode::kReusePort}) {
      for (const int batch : {1, 8}) {
        LifeHandler handler;
        Options options = TestOptions(1);
        options.trigger = trigger;
        options.accept_mode = mode;
        options.accept_batch = batch;
        ListenOptions listen;
        listen.backlog = 128;
        TestServer server(handler, {{kTcp, listen}}, options);
        std::vector<Client> clients;
        {
          LoopBlock block(server.engine().reactor(0));
          for (int i = 0; i < 50; ++i) {
            clients.push_back(Client::Connect(server.address()));
          }
          EXPECT_EQ(handler.opened, 0);
        }
        EXPECT_TRUE(WaitUntil([&] { return handler.opened == 50; }))
            << handler.opened << " of 50";
      }
    }
  }
}

TEST(AcceptCases, B119_BigDescriptorNumbersWork) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const int reactors : {1, 2}) {
    for (const rlim_t wanted : {rlim_t{1100}, rlim_t{70'000}}) {
      // As far beyond 16 bits as this machine lets us, if not that far.
      const int lowest =
          static_cast<int>(std::min(wanted, limit.rlim_max - 100));
      std::atomic<int> smallest{INT32_MAX};
      AcceptHook hook([&](const std::function<int()>& real) {
        const int fd = real();
        if (fd < 0) return fd;
        const int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
        const int error = errno;
        close(fd);
        return moved >= 0 ? moved : FailWith(error);
      });
      LifeHandler handler;
      handler.on_open = [&](Connection& c) {
        if (c.fd() < smallest) smallest = c.fd();
        return Action::kNone;
      };
      handler.on_traffic = EchoTraffic;
      TestServer server(handler, {kTcp}, TestOptions(reactors));
      std::vector<Client> clients;
      for (int i = 0; i < 20; ++i) {
        clients.push_back(Client::Connect(server.address()));
        EXPECT_TRUE(clients.back().Echo("x"));
      }
      for (Client& client : clients) {
        EXPECT_TRUE(client.Echo(std::string(100'000, 'y')));
        client.Close();
      }
      EXPECT_TRUE(server.WaitForNoConnections());
      EXPECT_GE(smallest, lowest);
      EXPECT_TRUE(server.StopAndDestroy().ok());
      handler.ExpectOrderlyEnd();
    }
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace sluice::test

extern "C" int __wrap_accept4(int fd, sockaddr* address, socklen_t* length,
                              int flags) {
  return sluice::test::AcceptHook::Call(
      [=] { return __real_accept4(fd, address, length, flags); });
}

extern "C" int __wrap_getpeername(int fd, sockaddr* address,
                                  socklen_t* length) {
  if (sluice::test::getpeername_fails) {
    return sluice::test::FailWith(ENOTCONN);
  }
  return __real_getpeername(fd, address, length);
}
