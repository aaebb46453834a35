// wrap: epoll_ctl
// B51: what OnOpen writes is not lost, though the peer says nothing and its
// descriptor may not be watched yet.

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/test_server.h"

extern "C" {
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
}

namespace sluice::test {
namespace {

std::atomic<int> failed_calls{0};  // of epoll_ctl, for a connection

bool IsConnected(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

std::vector<MatrixParam> OpenCombinations() {
  std::vector<MatrixParam> all;
  for (MatrixParam param : LoopCombinations()) {
    for (const AcceptMode accept :
         {AcceptMode::kHandOff, AcceptMode::kReusePort}) {
      param.accept = accept;
      all.push_back(param);
    }
  }
  return all;
}

enum class How { kConnection, kTicket, kThread };

class WriteOpenCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(WriteOpenCases, B51_MoreThanTheSocketTakes) {
  const std::string bytes = Pattern(size_t{6} << 20);
  for (const How how : {How::kConnection, How::kTicket, How::kThread}) {
    LambdaHandler handler;
    std::thread writer;
    handler.on_open = [&](Connection& c) {
      switch (how) {
        case How::kConnection:
          EXPECT_TRUE(c.Write(bytes).ok());
          break;
        case How::kTicket:
          EXPECT_TRUE(c.ref().Write(bytes).ok());
          break;
        case How::kThread: {
          Event written;
          writer = std::thread([ref = c.ref(), &bytes, &written] {
            EXPECT_TRUE(ref.Write(bytes).ok());
            written.Set();
          });
          EXPECT_TRUE(written.Wait());
          break;
        }
      }
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    const int failed_before = failed_calls;
    Client client = Client::Connect(server.address());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(SameBytes(client.ReadExactly(bytes.size()), bytes));
    EXPECT_EQ(handler.traffic, 0);
    EXPECT_EQ(handler.closed, 0);
    client.ShutdownWrite();
    EXPECT_EQ(client.ReadToEof(), "");
    EXPECT_TRUE(server.WaitForNoConnections());
    EXPECT_EQ(failed_calls - failed_before, 0);
    if (writer.joinable()) writer.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, WriteOpenCases,
                         ::testing::ValuesIn(OpenCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test

extern "C" int __wrap_epoll_ctl(int epoll, int operation, int fd,
                                epoll_event* event) {
  const int result = __real_epoll_ctl(epoll, operation, fd, event);
  const int error = errno;
  if (result != 0 && sluice::test::IsConnected(fd)) {
    ++sluice::test::failed_calls;
  }
  errno = error;
  return result;
}
