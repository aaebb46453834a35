// wrap: epoll_ctl
// Options::max_connections_per_source.

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/client.h"
#include "test/support/life_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

extern "C" {
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
}

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

// While set, no connection is taken into an epoll set: sources have no
// generation in the upper half of their key, connections have.
std::atomic<bool> epoll_is_full{false};

class SourceLimit : public ::testing::TestWithParam<MatrixParam> {
 protected:
  static constexpr size_t kMost = 3;

  SourceLimit() {
    handler_.on_traffic = EchoTraffic;
    handler_.on_open = [this](Connection& c) {
      const size_t now = ++open_[LastByteOf(c)];
      size_t before = most_;
      while (now > before && !most_.compare_exchange_weak(before, now)) {
      }
      return Action::kNone;
    };
    handler_.on_close = [this](Connection& c, const CloseInfo&) {
      --open_[LastByteOf(c)];
    };
  }
  // Which source of From it is; 0 for a Unix peer.
  static size_t LastByteOf(const Connection& c) {
    const Address peer = c.peer();
    return peer.is_ip() ? static_cast<unsigned char>(peer.ip_bytes().back())
                        : 0;
  }

  Options MakeOptions() {
    Options options = GetParam().MakeOptions();
    options.max_connections_per_source = kMost;
    options.log = [this](LogLevel, std::string_view line) {
      std::lock_guard<std::mutex> lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }
  std::vector<std::string> Lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }
  // From 127.0.0.<source>, or ::1.
  static Client From(int source, const Address& address) {
    ClientOptions options;
    if (address.family() == Address::Family::kIpv4) {
      options.source =
          Address::Parse("tcp://127.0.0." + std::to_string(source) + ":0")
              .value();
    }
    return Client::Connect(address, options);
  }
  static bool Served(Client& client) {
    char byte = 'x';
    return send(client.fd(), &byte, 1, MSG_NOSIGNAL) == 1 &&
           client.Readable(kPatience) && recv(client.fd(), &byte, 1, 0) == 1;
  }
  static std::vector<Client> Fill(int source, const Address& address,
                                  size_t count = kMost) {
    std::vector<Client> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(From(source, address));
      EXPECT_TRUE(clients.back().Echo("x")) << i;
    }
    return clients;
  }

  LifeHandler handler_;
  std::array<std::atomic<size_t>, 256> open_{};
  std::atomic<size_t> most_{0};
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class Ipv4SourceLimit : public SourceLimit {};
class LostOnItsWay : public SourceLimit {};

TEST_P(SourceLimit, OneTooManyIsRejectedWithItsName) {
  TestServer server(handler_, {GetParam().Listen()}, MakeOptions());
  const Address address = server.address();
  for (uint64_t round = 1; round <= 3; ++round) {
    std::vector<Client> clients = Fill(1, address);
    for (uint64_t i = 1; i <= 4; ++i) {
      Client rejected = From(1, address);
      int error = 0;
      EXPECT_EQ(rejected.ReadToEnd(&error), "");
      EXPECT_EQ(server.stats().rejected_per_source, 4 * (round - 1) + i);
      EXPECT_EQ(server.stats().rejected, 4 * (round - 1) + i);
      EXPECT_EQ(server.stats().connections, kMost);
    }
    for (Client& client : clients) EXPECT_TRUE(client.Echo("still here"));
    // Who goes makes room for just one.
    clients[0].Close();
    ASSERT_TRUE(
        WaitUntil([&] { return server.stats().connections == kMost - 1; }));
    clients[0] = From(1, address);
    EXPECT_TRUE(clients[0].Echo("x"));
    clients.clear();
    ASSERT_TRUE(server.WaitForNoConnections());
  }
  const std::string name =
      address.family() == Address::Family::kIpv4 ? "127.0.0.1" : "::/64";
  EXPECT_THAT(Lines(), testing::Contains(HasSubstr(
                           "a connection from " + name +
                           " was rejected: it has max_connections_per_source, "
                           "3")));
  EXPECT_EQ(server.stats().opened, server.stats().closed);
  EXPECT_EQ(most_, kMost);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(Ipv4SourceLimit, EachSourceHasItsOwn) {
  TestServer server(handler_, {GetParam().Listen(), GetParam().Listen()},
                    MakeOptions());
  std::vector<std::vector<Client>> all;
  // Over both listeners: it is the engine's bound.
  for (int source = 1; source <= 5; ++source) {
    all.push_back(Fill(source, server.address(0), 2));
    all.push_back(Fill(source, server.address(1), 1));
  }
  for (int source = 1; source <= 5; ++source) {
    for (const size_t listener : {size_t{0}, size_t{1}}) {
      Client rejected = From(source, server.address(listener));
      EXPECT_FALSE(Served(rejected));
    }
  }
  EXPECT_EQ(server.stats().rejected_per_source, 10u);
  EXPECT_EQ(server.stats().connections, 15u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

TEST_P(Ipv4SourceLimit, B89_TheCountNeverGoesWrong) {
  Options options = MakeOptions();
  options.max_connections_per_source = 1;
  TestServer server(handler_, {GetParam().Listen()}, options);
  std::vector<Client> first = Fill(1, server.address(), 1);
  for (uint64_t i = 1; i <= 5; ++i) {
    Client rejected = From(1, server.address());
    EXPECT_FALSE(Served(rejected));
    EXPECT_EQ(server.stats().rejected, i);
    EXPECT_EQ(server.stats().connections, 1u);
  }
  EXPECT_EQ(handler_.closed, 0);
  first.clear();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_EQ(server.stats().opened, 1u);
  EXPECT_EQ(server.stats().closed, 1u);
  std::vector<Client> second = Fill(1, server.address(), 1);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

// With the other bounds, of either policy, from many threads and sources.
TEST_P(Ipv4SourceLimit, NoPlaceIsLostInAStorm) {
  for (const WhenFull policy : {WhenFull::kWait, WhenFull::kReject}) {
    Options options = MakeOptions();
    options.max_connections = 8;
    options.when_full = policy;
    ListenerSpec spec(GetParam().Listen());
    spec.options.max_connections = 7;
    spec.options.when_full = policy;
    TestServer server(handler_, {spec}, options);
    const Address address = server.address();
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          Client client = From(1 + (t + i) % 3, address);
          (void)Served(client);
          if ((t + i) % 4 != 0) client.CloseWithReset();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(server.stats().accepted,
              server.stats().opened + server.stats().rejected);
    if (policy == WhenFull::kWait) {
      EXPECT_EQ(server.stats().rejected, server.stats().rejected_per_source);
    }
    std::vector<Client> one = Fill(1, address);
    std::vector<Client> two = Fill(2, address);
    std::vector<Client> three = Fill(3, address, 1);
    EXPECT_EQ(server.stats().connections, 7u);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    EXPECT_LE(most_, kMost);
    handler_.over = false;
  }
}

// Accepted, counted, and then it does not come to be after all.
TEST_P(Ipv4SourceLimit, ARefusedOneGivesItsPlaceBack) {
  std::atomic<bool> refuse{true};
  ListenerSpec spec(GetParam().Listen());
  spec.options.max_connections = kMost;
  spec.options.when_full = WhenFull::kReject;
  spec.options.socket.after_accept = [&](int) {
    return refuse ? absl::UnavailableError("not now") : absl::OkStatus();
  };
  TestServer server(handler_, {spec}, MakeOptions());
  const auto expect_refusals = [&] {
    const uint64_t before = server.stats().rejected;
    for (uint64_t i = 1; i <= 2 * kMost; ++i) {
      Client refused = From(1, server.address());
      EXPECT_FALSE(Served(refused));
      ASSERT_TRUE(server.WaitForNoConnections());
      EXPECT_EQ(server.stats().rejected, before + i);
    }
    EXPECT_EQ(server.stats().rejected_per_source, 0u);
  };
  expect_refusals();
  refuse = false;
  epoll_is_full = true;
  expect_refusals();
  epoll_is_full = false;
  std::vector<Client> in = Fill(1, server.address());
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

// What is on its way when the engine stops.
TEST_P(Ipv4SourceLimit, StopInTheMiddleOfAFlood) {
  for (int round = 0; round < 5; ++round) {
    TestServer server(handler_, {GetParam().Listen()}, MakeOptions());
    const Address address = server.address();
    std::vector<std::thread> threads;
    std::atomic<bool> over{false};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 1000 && !over; ++i) {
          ClientOptions options;
          options.source =
              Address::Parse("tcp://127.0.0." + std::to_string(1 + t) + ":0")
                  .value();
          int error = 0;
          Client client = Client::TryConnect(address, &error, options);
          // No port stays behind in TIME_WAIT: other tests want some.
          if (error == 0) client.CloseWithReset();
        }
      });
    }
    EXPECT_TRUE(WaitUntil([&] { return server.stats().opened > 20; }));
    server.Stop();
    EXPECT_TRUE(server.WaitForRun().ok());
    over = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(server.stats().connections, 0u);
    EXPECT_EQ(server.stats().opened, server.stats().closed);
    EXPECT_TRUE(server.StopAndDestroy().ok());
    handler_.over = false;
  }
}

// Descriptors that a full table could not take are closed: what was counted
// for them is given back.
TEST_P(LostOnItsWay, GivesItsPlaceBack) {
  if (kTsan) GTEST_SKIP() << "no tables of their own there";
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  Options options = MakeOptions();
  options.raise_fd_limit = false;
  ListenerSpec spec(GetParam().Listen());
  spec.options.max_connections = kMost;
  spec.options.when_full = WhenFull::kReject;
  {
    TestServer server(handler_, {spec}, options);
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    const int reactors = server.engine().reactors();
    std::vector<std::vector<internal::UniqueFd>> fillers(
        static_cast<size_t>(reactors));
    for (int i = 0; i < reactors; ++i) {
      auto* mine = &fillers[static_cast<size_t>(i)];
      RunOn(server.engine().reactor(i), [mine] {
        for (int k = 0; k < 1000; ++k) {
          internal::UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
          if (!fd) break;
          mine->push_back(std::move(fd));
        }
      });
    }
    for (uint64_t i = 1; i <= 2 * kMost; ++i) {
      Client lost = From(1, server.address());
      EXPECT_FALSE(Served(lost));
      ASSERT_TRUE(server.WaitForNoConnections());
      EXPECT_EQ(server.stats().rejected, i);
    }
    EXPECT_EQ(server.stats().rejected_per_source, 0u);
    EXPECT_THAT(Lines(), testing::Contains(HasSubstr("were lost")));
    for (int i = 0; i < reactors; ++i) {
      auto* mine = &fillers[static_cast<size_t>(i)];
      RunOn(server.engine().reactor(i), [mine] { mine->clear(); });
    }
    std::vector<Client> in = Fill(1, server.address());
    Client rejected = From(1, server.address());
    EXPECT_FALSE(Served(rejected));
    EXPECT_EQ(server.stats().rejected_per_source, 1u);
    in.clear();
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Dialed connections do not count, those that they arrive as do.
TEST_P(SourceLimit, DialedOnesDoNotCount) {
  TestServer server(handler_, {GetParam().Listen()}, MakeOptions());
  std::atomic<int> connected{0};
  for (size_t i = 0; i < kMost; ++i) {
    DialOptions options;
    const absl::Status dialed = server.engine().Dial(
        server.address(), options, [&](absl::StatusOr<Connection*> c) {
          EXPECT_TRUE(c.ok()) << c.status();
          ++connected;
        });
    EXPECT_TRUE(dialed.ok()) << dialed;
  }
  EXPECT_TRUE(WaitUntil([&] {
    return connected == static_cast<int>(kMost) &&
           server.stats().opened == 2 * kMost;
  }));
  EXPECT_EQ(server.stats().rejected, 0u);
  Client rejected = From(1, server.address());
  EXPECT_FALSE(Served(rejected));
  EXPECT_EQ(server.stats().rejected_per_source, 1u);
  EXPECT_TRUE(server.StopAndDestroy().ok());
}

class UnixSourceLimit : public SourceLimit {};

TEST_P(UnixSourceLimit, UnixPeersDoNotCount) {
  TestServer server(handler_, {GetParam().Listen()}, MakeOptions());
  std::vector<Client> clients = Fill(1, server.address(), 4 * kMost);
  EXPECT_EQ(server.stats().rejected, 0u);
  EXPECT_EQ(server.stats().connections, 4 * kMost);
  clients.clear();
  EXPECT_TRUE(server.WaitForNoConnections());
  EXPECT_TRUE(server.StopAndDestroy().ok());
  handler_.ExpectOrderlyEnd();
}

std::vector<MatrixParam> Combinations(std::vector<Family> families) {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.reactors == 2 || param.trigger != Trigger::kLevel) continue;
    for (const Family family : families) {
      if (param.family == family) some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Some, SourceLimit,
                         ::testing::ValuesIn(Combinations({Family::kTcp4,
                                                           Family::kTcp6})),
                         MatrixName);
INSTANTIATE_TEST_SUITE_P(Some, Ipv4SourceLimit,
                         ::testing::ValuesIn(Combinations({Family::kTcp4})),
                         MatrixName);
INSTANTIATE_TEST_SUITE_P(
    Some, LostOnItsWay,
    ::testing::Values(
        MatrixParam{.reactors = 1, .fd_tables = FdTables::kPerReactor},
        MatrixParam{.reactors = 4, .fd_tables = FdTables::kPerReactor}),
    MatrixName);
INSTANTIATE_TEST_SUITE_P(Some, UnixSourceLimit,
                         ::testing::ValuesIn(Combinations({Family::kUnix})),
                         MatrixName);

}  // namespace
}  // namespace sluice::test

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD && event->data.u64 >> 32 != 0 &&
      sluice::test::epoll_is_full) {
    errno = ENOSPC;
    return -1;
  }
  return __real_epoll_ctl(epoll, operation, fd, event);
}
