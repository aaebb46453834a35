// Engine::Create: all addresses are bound, or none and the error says why.

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

bool Contains(const absl::Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

// A port that was free a moment ago.
uint16_t FreePort() {
  LambdaHandler handler;
  auto engine = Engine::Create(handler, {"tcp://127.0.0.1:0"}, TestOptions(1));
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().ToString();
    return 0;
  }
  return (*engine)->bound()[0].port();
}

// Nobody holds the port: a plain bind without SO_REUSEADDR works.
bool PortIsFree(uint16_t port) {
  auto address =
      Address::Parse("tcp://127.0.0.1:" + std::to_string(port)).value();
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  internal::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0;
}

TEST(Listen, OneBadAddressBindsNothing) {
  const size_t fds_before = CountOpenFds();
  LambdaHandler handler;
  const uint16_t port = FreePort();
  const std::string good = "tcp://127.0.0.1:" + std::to_string(port);
  const std::string path = UniqueUnixPath();
  for (const std::string bad :
       {"tcp://127.0.0.1:65536", "tcp://:99999", "tcp://:-1", "tcp://:80abc",
        "tcp://:", "tcp://: 80", "tcp://:0x50", "tcp://:4294968296",
        "127.0.0.1:80", "ftp://127.0.0.1:80", "tcp://", "", "unix://",
        "tcp://[::1:80", "tcp://300.1.1.1:80", "tcp6://127.0.0.1:80",
        "tcp4://[::1]:80"}) {
    const auto engine =
        Engine::Create(handler, {good, "unix://" + path, bad}, TestOptions(2));
    ASSERT_FALSE(engine.ok()) << "accepted " << bad;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument)
        << bad << ": " << engine.status().ToString();
    EXPECT_TRUE(Contains(engine.status(), bad)) << engine.status().ToString();
    EXPECT_TRUE(PortIsFree(port)) << bad;
    EXPECT_NE(access(path.c_str(), F_OK), 0) << bad;
  }
  EXPECT_EQ(handler.boots, 0);
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

TEST(Listen, APathTooLongBindsNothing) {
  LambdaHandler handler;
  const std::string path = ::testing::TempDir() + std::string(150, 'x');
  const auto engine =
      Engine::Create(handler, {"unix://" + path}, TestOptions(1));
  ASSERT_FALSE(engine.ok());
  EXPECT_TRUE(Contains(engine.status(), path)) << engine.status().ToString();
}

TEST(Listen, APortInUseIsNamed) {
  LambdaHandler handler;
  for (const AcceptMode mode : {AcceptMode::kHandOff, AcceptMode::kReusePort}) {
    Options options = TestOptions(2);
    // Not running: the descriptors that are counted below stand still.
    const auto first = Engine::Create(handler, {"tcp://127.0.0.1:0"}, options);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    const std::string text = (*first)->bound()[0].ToString();
    options.accept_mode = mode;
    const size_t fds_before = CountOpenFds();
    const auto second =
        Engine::Create(handler, {"tcp://127.0.0.1:0", text}, options);
    ASSERT_FALSE(second.ok());
    EXPECT_TRUE(Contains(second.status(), text)) << second.status().ToString();
    EXPECT_TRUE(Contains(second.status(), "in use"))
        << second.status().ToString();
    EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
  }
}

TEST(Listen, AFailingHookIsTheResultOfCreate) {
  LambdaHandler handler;
  ListenOptions options;
  options.socket.before_bind = [](int fd) {
    EXPECT_GE(fd, 0);
    return absl::DataLossError("hook says no");
  };
  const size_t fds_before = CountOpenFds();
  const auto engine = Engine::Create(
      handler, {"tcp://127.0.0.1:0", {"tcp://127.0.0.1:0", options}},
      TestOptions(1));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Contains(engine.status(), "hook says no"));
  EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
}

struct BadOption {
  const char* field;
  const char* value;
  std::function<void(Options&)> set;
};

TEST(Listen, BadOptionsAreNamed) {
  const std::vector<BadOption> bad = {
      {"reactors", "-1", [](Options& o) { o.reactors = -1; }},
      {"reactors", "1025", [](Options& o) { o.reactors = 1025; }},
      {"read_buffer", "1023", [](Options& o) { o.read_buffer = 1023; }},
      {"read_buffer", "16777217", [](Options& o) { o.read_buffer = 16777217; }},
      {"edge_chunk", "0", [](Options& o) { o.edge_chunk = 0; }},
      {"accept_batch", "0", [](Options& o) { o.accept_batch = 0; }},
      {"accept_batch", "-5", [](Options& o) { o.accept_batch = -5; }},
      {"tick", "-1",
       [](Options& o) { o.tick = std::chrono::milliseconds(-1); }},
      {"idle_timeout", "-7",
       [](Options& o) {
         o.limits.idle_timeout = std::chrono::milliseconds(-7);
       }},
      {"cpus", "9999",
       [](Options& o) {
         o.pinning.mode = CpuPinning::Mode::kList;
         o.pinning.cpus = {9999};
       }},
      {"cpus", "",
       [](Options& o) { o.pinning.mode = CpuPinning::Mode::kList; }},
  };
  for (const BadOption& option : bad) {
    LambdaHandler handler;
    Options options = TestOptions(1);
    option.set(options);
    const size_t fds_before = CountOpenFds();
    const auto engine = Engine::Create(handler, {"tcp://127.0.0.1:0"}, options);
    ASSERT_FALSE(engine.ok()) << option.field << " = " << option.value;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(engine.status(), option.field) &&
                Contains(engine.status(), option.value))
        << option.field << " = " << option.value << ": "
        << engine.status().ToString();
    EXPECT_EQ(CountOpenFds(), fds_before) << DescribeOpenFds();
  }
}

TEST(Listen, WithoutListenersTheEngineRuns) {
  LambdaHandler handler;
  for (const int reactors : {1, 2}) {
    TestServer server(handler, {}, TestOptions(reactors));
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    EXPECT_TRUE(server.engine().bound().empty());
    EXPECT_FALSE(server.run_returned());
    EXPECT_TRUE(server.StopAndDestroy().ok());
  }
}

TEST(Listen, TheShortFormReportsABadAddress) {
  LambdaHandler handler;
  const absl::Status run = sluice::Run(handler, "tcp://:99999", TestOptions(1));
  EXPECT_EQ(run.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(run, "99999"));
}

TEST(Listen, TheShortFormRuns) {
  LambdaHandler handler;
  handler.on_boot = [](Engine& engine) {
    EXPECT_EQ(engine.bound().size(), 1u);
    EXPECT_NE(engine.bound()[0].port(), 0);
    return Action::kShutdown;
  };
  const absl::Status run =
      sluice::Run(handler, "tcp://127.0.0.1:0", TestOptions(1));
  EXPECT_TRUE(run.ok()) << run.ToString();
  EXPECT_EQ(handler.boots, 1);
}

class ListenMatrix : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(ListenMatrix, ConnectionsTellTheirListener) {
  LambdaHandler handler;
  std::mutex mutex;
  std::map<int, std::string> locals;
  handler.on_traffic = [&](Connection& c) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      locals[c.listener()] = c.local().ToString();
    }
    c.Discard();
    EXPECT_TRUE(c.Write(std::to_string(c.listener())).ok());
    return Action::kNone;
  };
  const std::string path = UniqueUnixPath();
  TestServer server(handler,
                    {"tcp://127.0.0.1:0", "unix://" + path, "tcp6://[::1]:0",
                     "tcp4://127.0.0.1:0", UniqueAbstractAddress()},
                    GetParam().MakeOptions());
  ASSERT_TRUE(server.created().ok()) << server.created().ToString();
  ASSERT_EQ(server.engine().bound().size(), 5u);
  for (int round = 0; round < 3; ++round) {
    for (int i = 4; i >= 0; --i) {
      Client client = Client::Connect(server.address(static_cast<size_t>(i)));
      EXPECT_TRUE(client.SendAll("?"));
      EXPECT_EQ(client.ReadExactly(1), std::to_string(i));
    }
  }
  EXPECT_TRUE(server.WaitForNoConnections());
  std::unique_lock<std::mutex> lock(mutex);
  for (const auto& [listener, local] : locals) {
    EXPECT_EQ(local, server.address(static_cast<size_t>(listener)).ToString());
  }
  lock.unlock();
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  EXPECT_TRUE(server.StopAndDestroy().ok());
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket file is left";
}

// Port 0 is answered by one real port, whatever the number of sockets on it.
TEST_P(ListenMatrix, PortZeroIsAnsweredByBound) {
  LambdaHandler handler;
  std::mutex mutex;
  std::set<std::string> peers;
  handler.on_open = [&](Connection& c) {
    std::lock_guard<std::mutex> lock(mutex);
    peers.insert(c.peer().ToString());
    return Action::kNone;
  };
  handler.on_traffic = EchoTraffic;
  TestServer server(handler, {"tcp://:0", "tcp://:0"},
                    GetParam().MakeOptions());
  ASSERT_TRUE(server.created().ok()) << server.created().ToString();
  const uint16_t port = server.address(0).port();
  EXPECT_NE(port, 0);
  EXPECT_NE(server.address(1).port(), 0);
  EXPECT_NE(server.address(1).port(), port);
  EXPECT_EQ(server.address(0).ToString(), "tcp://:" + std::to_string(port));

  // Dual stack: both families, and an IPv4 peer is printed as one.
  std::set<std::string> expected;
  for (const std::string host : {"127.0.0.1", "[::1]"}) {
    const auto address =
        Address::Parse("tcp://" + host + ":" + std::to_string(port));
    ASSERT_TRUE(address.ok()) << address.status().ToString();
    for (int i = 0; i < 8; ++i) {
      Client client = Client::Connect(*address);
      expected.insert(client.local().ToString());
      EXPECT_TRUE(client.Echo("x"));
    }
  }
  std::lock_guard<std::mutex> lock(mutex);
  EXPECT_EQ(peers, expected);
}

TEST_P(ListenMatrix, AListenerIsClosedAndTheRestGoesOn) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  const std::string path = UniqueUnixPath();
  TestServer server(
      handler, {"tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "unix://" + path},
      GetParam().MakeOptions());
  ASSERT_TRUE(server.created().ok()) << server.created().ToString();
  std::vector<Client> clients;
  for (size_t i = 0; i < 3; ++i) {
    clients.push_back(Client::Connect(server.address(i)));
    EXPECT_TRUE(clients.back().Echo("x"));
  }
  const std::string text = server.address(0).ToString();
  for (const size_t i : {size_t{0}, size_t{2}}) {
    server.engine().CloseListener(static_cast<int>(i));
    server.engine().CloseListener(static_cast<int>(i));
    int error = 0;
    EXPECT_TRUE(WaitUntil([&] {
      (void)Client::TryConnect(server.address(i), &error);
      return error == ECONNREFUSED || error == ENOENT;
    })) << "still open: "
        << server.address(i).ToString();
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket file is left";
  EXPECT_EQ(server.address(0).ToString(), text);
  for (Client& client : clients) EXPECT_TRUE(client.Echo("lives on"));
  EXPECT_TRUE(Client::Connect(server.address(1)).Echo("y"));
  EXPECT_TRUE(server.StopAndDestroy().ok());
}

std::vector<MatrixParam> Tcp4Combinations() {
  std::vector<MatrixParam> some;
  for (const MatrixParam& param : AllCombinations()) {
    if (param.family == Family::kTcp4 && param.trigger == Trigger::kLevel) {
      some.push_back(param);
    }
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(All, ListenMatrix,
                         ::testing::ValuesIn(Tcp4Combinations()), MatrixName);

}  // namespace
}  // namespace sluice::test
