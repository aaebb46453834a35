// ctest: RUN_SERIAL TRUE
// wrap: socket
// Cases of addresses and of Unix sockets, as a user of the engine meets them.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/dial_result.h"
#include "test/support/lambda_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/raw_listener.h"
#include "test/support/test_server.h"

extern "C" {
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
}

namespace sluice::test {
namespace {

// What net.ipv6.bindv6only would make of a new IPv6 socket; -1: as it is.
std::atomic<int> v6_only_at_birth{-1};

Address Parsed(const std::string& text) {
  absl::StatusOr<Address> address = Address::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status().ToString();
  return address.ok() ? *address : Address();
}

std::string At(const std::string& scheme_and_host, uint16_t port) {
  return scheme_and_host + ":" + std::to_string(port);
}

// The errno of connecting; 0: it works, and `peer` hears us.
int ConnectError(const std::string& address) {
  int error = 0;
  (void)Client::TryConnect(Parsed(address), &error);
  return error;
}

class AddressCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  AddressCases() {
    handler_.on_open = [this](Connection& c) {
      std::lock_guard<std::mutex> lock(mutex_);
      peers_.insert(c.peer().ToString());
      return Action::kNone;
    };
    handler_.on_traffic = EchoTraffic;
  }
  ~AddressCases() override { v6_only_at_birth = -1; }

  std::set<std::string> peers() {
    std::lock_guard<std::mutex> lock(mutex_);
    return peers_;
  }

  LambdaHandler handler_;
  std::mutex mutex_;
  std::set<std::string> peers_;
};

TEST_P(AddressCases, B108_ABadPortOrSchemeBindsNothing) {
  uint16_t port = 0;
  {
    TestServer server(handler_, {"tcp://127.0.0.1:0"}, TestOptions(1));
    port = server.address().port();
  }
  const std::string good = At("tcp://127.0.0.1", port);
  const std::string path = UniqueUnixPath();
  const size_t fds_before = CountOpenFds();
  for (const std::string bad :
       {"tcp://:65536", "tcp://:99999", "tcp://:-1", "tcp://:80abc",
        "tcp://:", "tcp://: 80", "tcp://:80 ", "tcp://:0x50",
        "tcp://:4295009395", "tcp://:+80", "tcp://127.0.0.1", ":80",
        "127.0.0.1:80", "localhost", "http://127.0.0.1:80", "TCP//:80", ""}) {
    const auto engine = Engine::Create(handler_, {good, "unix://" + path, bad},
                                       GetParam().MakeOptions());
    ASSERT_FALSE(engine.ok()) << "accepted '" << bad << "'";
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(engine.status().ToString().find(bad), std::string::npos)
        << engine.status().ToString();
    EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
    EXPECT_NE(access(path.c_str(), F_OK), 0) << path << " is left";
    EXPECT_EQ(ConnectError(good), ECONNREFUSED);
  }
  // The good ones alone are fine.
  TestServer server(handler_, {good, "unix://" + path},
                    GetParam().MakeOptions());
  EXPECT_TRUE(server.created().ok()) << server.created().ToString();
}

TEST_P(AddressCases, B108_PortZeroGivesOneRealPortALoopAndListener) {
  TestServer server(handler_,
                    {"tcp://:0", "tcp://[::1]:0", "tcp://127.0.0.1:0"},
                    GetParam().MakeOptions());
  ASSERT_TRUE(server.created().ok()) << server.created().ToString();
  std::set<uint16_t> ports;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(server.address(i).port(), 0);
    ports.insert(server.address(i).port());
  }
  EXPECT_EQ(ports.size(), 3u);
  // Enough for every loop's own socket to get some.
  std::vector<Client> clients;
  for (int i = 0; i < 60; ++i) {
    const size_t listener = static_cast<size_t>(i % 3);
    clients.push_back(Client::Connect(
        listener == 0 ? Parsed(At("tcp://127.0.0.1", server.address(0).port()))
                      : server.address(listener)));
    EXPECT_TRUE(clients.back().Echo("x"));
  }
  if (GetParam().accept == AcceptMode::kHandOff) return;
  // By a hash of addresses and ports: all 60 on one loop is next to impossible.
  size_t with_some = 0;
  for (int i = 0; i < server.engine().reactors(); ++i) {
    with_some += server.engine().reactor(i).connections() > 0;
  }
  EXPECT_GE(with_some, GetParam().reactors > 1 ? 2u : 1u);
}

TEST_P(AddressCases, B110_BothWildcardsSideBySide) {
  // A port that is free for one family may be in TIME_WAIT in the other one,
  // left there by anybody on this machine: then another port it is.
  constexpr int kAttempts = 200;
  const auto on_port_of = [&](const TestServer& server, const char* host) {
    return std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{At(host, server.address().port())},
        GetParam().MakeOptions());
  };
  for (const int birth : {-1, 0, 1}) {
    SCOPED_TRACE("IPV6_V6ONLY starts as " + std::to_string(birth));
    v6_only_at_birth = birth;
    for (int attempt = 1;; ++attempt) {
      TestServer first(handler_, {"tcp://[::]:0"}, GetParam().MakeOptions());
      ASSERT_TRUE(first.created().ok()) << first.created().ToString();
      const uint16_t port = first.address().port();
      EXPECT_EQ(first.address().ToString(), At("tcp://[::]", port));
      // Alone it does not take IPv4.
      EXPECT_EQ(ConnectError(At("tcp://127.0.0.1", port)), ECONNREFUSED);
      EXPECT_EQ(ConnectError(At("tcp://[::1]", port)), 0);

      const auto second = on_port_of(first, "tcp://0.0.0.0");
      if (!second->created().ok() && attempt < kAttempts) continue;
      ASSERT_TRUE(second->created().ok()) << second->created().ToString();
      EXPECT_EQ(ConnectError(At("tcp://127.0.0.1", port)), 0);
      EXPECT_EQ(ConnectError(At("tcp://[::1]", port)), 0);
      break;
    }
  }
  // And of one engine.
  for (int attempt = 1;; ++attempt) {
    TestServer tcp4(handler_, {"tcp4://:0"}, GetParam().MakeOptions());
    const auto tcp6 = on_port_of(tcp4, "tcp6://");
    if (!tcp6->created().ok() && attempt < kAttempts) continue;
    EXPECT_TRUE(tcp6->created().ok()) << tcp6->created().ToString();
    break;
  }
}

TEST_P(AddressCases, B110_Tcp6AloneTakesOnlyIpv6) {
  for (const int birth : {-1, 0, 1}) {
    SCOPED_TRACE("IPV6_V6ONLY starts as " + std::to_string(birth));
    v6_only_at_birth = birth;
    TestServer server(handler_, {"tcp6://:0"}, GetParam().MakeOptions());
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    const uint16_t port = server.address().port();
    EXPECT_EQ(ConnectError(At("tcp://127.0.0.1", port)), ECONNREFUSED);
    Client client = Client::Connect(Parsed(At("tcp://[::1]", port)));
    EXPECT_TRUE(client.Echo("x"));
  }
}

TEST_P(AddressCases, B110_ADualStackPeerIsPrintedInOneForm) {
  for (const int birth : {-1, 0, 1}) {
    SCOPED_TRACE("IPV6_V6ONLY starts as " + std::to_string(birth));
    v6_only_at_birth = birth;
    TestServer server(handler_, {"tcp://:0"}, GetParam().MakeOptions());
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    const uint16_t port = server.address().port();
    for (const std::string host : {"tcp://127.0.0.1", "tcp://[::1]"}) {
      Client client = Client::Connect(Parsed(At(host, port)));
      EXPECT_TRUE(client.Echo("x"));
      // "tcp://127.0.0.1:p", never "tcp://[::ffff:127.0.0.1]:p".
      const std::string self = client.local().ToString();
      EXPECT_EQ(self, At(host, client.local().port()));
      EXPECT_EQ(peers().count(self), 1u) << self;
    }
  }
}

std::vector<MatrixParam> Combinations() {
  return {{Family::kTcp4, 1},
          {Family::kTcp4, 3},
          {Family::kTcp4, 1, AcceptMode::kReusePort},
          {Family::kTcp4, 3, AcceptMode::kReusePort}};
}

INSTANTIATE_TEST_SUITE_P(Some, AddressCases,
                         ::testing::ValuesIn(Combinations()), MatrixName);

// --- B104, B105: Unix paths

class UnixCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  UnixCases() { handler_.on_traffic = EchoTraffic; }
  ~UnixCases() override { unlink(path_.c_str()); }

  std::unique_ptr<TestServer> Serve(const std::string& path) {
    return std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{"unix://" + path},
        GetParam().MakeOptions());
  }
  bool Exists() const { return access(path_.c_str(), F_OK) == 0; }
  ino_t Inode() const {
    struct stat file {};
    EXPECT_EQ(lstat(path_.c_str(), &file), 0);
    return file.st_ino;
  }

  LambdaHandler handler_;
  const std::string path_ = UniqueUnixPath();
};

TEST_P(UnixCases, B104_ANormalStopRemovesOurFile) {
  auto server = Serve(path_);
  ASSERT_TRUE(server->created().ok()) << server->created().ToString();
  EXPECT_TRUE(Exists());
  Client client = Client::Connect(server->address());
  EXPECT_TRUE(client.Echo("x"));
  server->Stop();
  EXPECT_TRUE(server->WaitForRun().ok());
  EXPECT_FALSE(Exists()) << "the file is left after Run";
  // And so does a drain, and an engine that never ran.
  server = Serve(path_);
  server->engine().Drain(std::chrono::hours(1));
  EXPECT_TRUE(server->WaitForRun().ok());
  EXPECT_FALSE(Exists());
  server.reset();
  {
    auto engine =
        Engine::Create(handler_, {"unix://" + path_}, GetParam().MakeOptions());
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    EXPECT_TRUE(Exists());
  }
  EXPECT_FALSE(Exists());
}

TEST_P(UnixCases, B104_ALeftOverFileIsReplaced) {
  {
    // Another name for its file, which stays when it has gone.
    RawListener gone(UniqueUnixAddress());
    ASSERT_EQ(link(gone.address().path().c_str(), path_.c_str()), 0);
  }
  ASSERT_TRUE(Exists());
  auto server = Serve(path_);
  ASSERT_TRUE(server->created().ok()) << server->created().ToString();
  Client client = Client::Connect(server->address());
  EXPECT_TRUE(client.Echo("x"));
}

TEST_P(UnixCases, B104_ALiveServerIsLeftAlone) {
  auto live = Serve(path_);
  ASSERT_TRUE(live->created().ok()) << live->created().ToString();
  const ino_t inode = Inode();
  const auto second =
      Engine::Create(handler_, {"unix://" + path_}, GetParam().MakeOptions());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().ToString().find(path_), std::string::npos)
      << second.status().ToString();
  EXPECT_EQ(Inode(), inode);
  Client client = Client::Connect(live->address());
  EXPECT_TRUE(client.Echo("x"));
}

TEST_P(UnixCases, B104_ARegularFileIsRefused) {
  std::ofstream(path_) << "precious";
  const auto engine =
      Engine::Create(handler_, {"unix://" + path_}, GetParam().MakeOptions());
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().ToString().find(path_), std::string::npos);
  std::ifstream file(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
}

TEST_P(UnixCases, B104_AForeignFileIsNotRemoved) {
  auto server = Serve(path_);
  ASSERT_TRUE(server->created().ok()) << server->created().ToString();
  ASSERT_EQ(unlink(path_.c_str()), 0);
  RawListener foreign("unix://" + path_);
  const ino_t inode = Inode();
  EXPECT_TRUE(server->StopAndDestroy().ok());
  ASSERT_TRUE(Exists());
  EXPECT_EQ(Inode(), inode);
  EXPECT_EQ(ConnectError("unix://" + path_), 0);
}

// A path of `size` bytes, ending in `last`.
std::string PathOf(size_t size, char last) {
  std::string path = UniqueUnixPath();
  EXPECT_LT(path.size(), size);
  path += std::string(size - path.size(), 'x');
  path.back() = last;
  return path;
}

TEST_P(UnixCases, B105_ALongPathIsExactOrRefused) {
  const std::string longest = PathOf(107, 'a');
  auto server = Serve(longest);
  ASSERT_TRUE(server->created().ok()) << server->created().ToString();
  EXPECT_EQ(server->address().path(), longest);
  EXPECT_EQ(access(longest.c_str(), F_OK), 0);
  Client client = Client::Connect(server->address());
  EXPECT_TRUE(client.Echo("x"));
  DialResult dial;
  ASSERT_TRUE(server->engine().Dial(server->address(), {}, dial.Done()).ok());
  EXPECT_TRUE(dial.Wait().ok());

  for (const size_t size : {size_t{108}, size_t{150}}) {
    // The first 107 bytes are the other server's.
    const std::string path = longest + std::string(size - 107, 'b');
    const auto engine =
        Engine::Create(handler_, {"unix://" + path}, GetParam().MakeOptions());
    ASSERT_FALSE(engine.ok()) << size;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(engine.status().ToString().find("long"), std::string::npos)
        << engine.status().ToString();
    EXPECT_NE(access(path.c_str(), F_OK), 0);
    // Nor can one dial it: there is no such address.
    EXPECT_FALSE(Address::Parse("unix://" + path).ok());
  }
  EXPECT_TRUE(client.Echo("still ours"));
  EXPECT_TRUE(server->StopAndDestroy().ok());
  EXPECT_NE(access(longest.c_str(), F_OK), 0);
}

INSTANTIATE_TEST_SUITE_P(Some, UnixCases, ::testing::ValuesIn(Combinations()),
                         MatrixName);

}  // namespace
}  // namespace sluice::test

int __wrap_socket(int domain, int type, int protocol) {
  const int fd = __real_socket(domain, type, protocol);
  const int v6_only = sluice::test::v6_only_at_birth;
  if (fd >= 0 && domain == AF_INET6 && v6_only >= 0) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  return fd;
}
