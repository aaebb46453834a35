// ctest: RUN_SERIAL TRUE
// B01: a server that runs out of descriptors, in a process of its own.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr int kClients = 40;
constexpr int kRoom = 8;

// What the server's process answers when it is asked, one byte, for a report.
struct Report {
  uint16_t port = 0;
  int opened = 0;
  int lines = 0;         // logged during the measurement
  double cpu_share = 0;  // of one CPU, during the measurement
  uint64_t fd_limit_errors = 0;
  uint64_t shed = 0;
};

// The process that serves. 'm' measures for a second, 'r' reports only, the
// end of the pipe ends it.
void Serve(int reactors, int in, int out) {
  LambdaHandler handler;
  handler.on_traffic = EchoTraffic;
  std::atomic<int> lines{0};
  Options options = TestOptions(reactors);
  options.log = [&lines](LogLevel, std::string_view) { ++lines; };
  options.raise_fd_limit = false;
  TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
  if (!server.created().ok()) _exit(3);
  // So that `kRoom` numbers are free below the limit, whatever else is open.
  rlim_t most = 0;
  for (int room = 0; room < kRoom; ++most) {
    if (fcntl(static_cast<int>(most), F_GETFD) < 0) ++room;
  }
  const rlimit limit = {most, most};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(4);

  char command = 'r';
  do {
    Report report;
    report.port = server.address().port();
    if (command == 'm') {
      const int lines_before = lines;
      const auto cpu = ProcessCpuTime();
      const auto start = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      report.cpu_share = std::chrono::duration<double>(ProcessCpuTime() - cpu) /
                         std::chrono::duration<double>(
                             std::chrono::steady_clock::now() - start);
      report.lines = lines - lines_before;
    }
    report.opened = handler.opened;
    report.fd_limit_errors = server.stats().accept_fd_limit;
    report.shed = server.stats().accept_shed;
    if (write(out, &report, sizeof(report)) != sizeof(report)) _exit(5);
  } while (read(in, &command, 1) == 1);
}

class ServerProcess {
 public:
  explicit ServerProcess(int reactors) {
    int to[2];
    int from[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      close(to[1]);
      close(from[0]);
      Serve(reactors, to[0], from[1]);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    close(to[0]);
    close(from[1]);
    in_ = from[0];
    out_ = to[1];
  }
  ~ServerProcess() {
    if (pid_ > 0) (void)End();
  }
  Report Read() {
    Report report;
    size_t have = 0;
    while (have < sizeof(report)) {
      const ssize_t got = read(in_, reinterpret_cast<char*>(&report) + have,
                               sizeof(report) - have);
      if (got <= 0) {
        ADD_FAILURE() << "the server's process is gone";
        return Report();
      }
      have += static_cast<size_t>(got);
    }
    return report;
  }
  Report Ask(char command) {
    EXPECT_EQ(write(out_, &command, 1), 1);
    return Read();
  }
  // The exit status.
  int End() {
    close(out_);
    close(in_);
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

// Those of `clients` that got a byte of echo; the others were shed or wait.
std::vector<size_t> Answered(std::vector<Client>& clients) {
  std::vector<size_t> answered;
  for (size_t i = 0; i < clients.size(); ++i) {
    char byte;
    if (clients[i].connected() &&
        recv(clients[i].fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
      answered.push_back(i);
    }
  }
  return answered;
}

class AcceptLimit : public ::testing::TestWithParam<int> {};

TEST_P(AcceptLimit, B01_SurvivesDescriptorLimit) {
  signal(SIGPIPE, SIG_IGN);
  ServerProcess process(GetParam());
  const uint16_t port = process.Read().port;
  ASSERT_NE(port, 0);
  const Address address =
      Address::Parse("tcp://127.0.0.1:" + std::to_string(port)).value();
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(Client::Connect(address));
    ASSERT_TRUE(clients.back().connected());
    ASSERT_TRUE(clients.back().SendAll("x"));
  }
  Report report;
  ASSERT_TRUE(WaitUntil([&] {
    report = process.Ask('r');
    return report.fd_limit_errors > 0 || HasFailure();
  }));
  report = process.Ask('m');
  EXPECT_LT(report.cpu_share, 0.2);
  EXPECT_LE(report.lines, 10);
  EXPECT_GE(report.opened, 1);
  EXPECT_LE(report.opened, kRoom);
  // Waiting clients are shed one at a time, not all at once.
  EXPECT_LT(report.shed, uint64_t{kClients / 2});

  // Those who are in are served.
  std::vector<size_t> in;
  ASSERT_TRUE(WaitUntil([&] {
    in = Answered(clients);
    return static_cast<int>(in.size()) >= report.opened;
  }));
  for (const size_t i : in) {
    EXPECT_EQ(clients[i].ReadExactly(1), "x");
    EXPECT_TRUE(clients[i].Echo("again"));
  }

  // Five of them leave, and five who wait come in by themselves.
  const int opened = process.Ask('r').opened;
  ASSERT_GE(in.size(), 5u);
  for (size_t i = 0; i < 5; ++i) clients[in[i]].Close();
  EXPECT_TRUE(WaitUntil([&] { return Answered(clients).size() >= 5; }))
      << Answered(clients).size() << " of 5";
  EXPECT_GE(process.Ask('r').opened, opened + 5);
  EXPECT_EQ(process.End(), 0);
}

INSTANTIATE_TEST_SUITE_P(Reactors, AcceptLimit, ::testing::Values(1, 2));

}  // namespace
}  // namespace sluice::test
