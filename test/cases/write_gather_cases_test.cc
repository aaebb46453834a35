// wrap: send sendmsg write writev
// Cases of writing many pieces, and of a kernel that takes part of them.

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/loop_block.h"
#include "test/support/loop_cases.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

extern "C" {
ssize_t __real_send(int fd, const void* bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void* bytes, size_t size, int flags);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_write(int fd, const void* bytes, size_t size);
ssize_t __wrap_write(int fd, const void* bytes, size_t size);
ssize_t __real_writev(int fd, const iovec* pieces, int count);
ssize_t __wrap_writev(int fd, const iovec* pieces, int count);
}

namespace sluice::test {
namespace {

// The server's descriptor that the hooks are about; -1: none.
std::atomic<int> watched_fd{-1};
// What the kernel takes of the watched one: `first_take` bytes, then EAGAIN
// `refusals` times, then whatever comes. < 0: everything.
std::atomic<ssize_t> first_take{-1};
std::atomic<int> refusals{0};
std::atomic<int> calls{0};
std::atomic<int> invalid{0};     // answered EINVAL or EMSGSIZE
std::atomic<size_t> longest{0};  // entries of a call

// Every way out of the process ends here.
ssize_t Send(int fd, const iovec* pieces, size_t count, int flags) {
  std::vector<iovec> part(pieces, pieces + count);
  if (fd == watched_fd) {
    ++calls;
    longest = std::max(longest.load(), count);
    if (first_take > 0) {
      // Cut: what a kernel with little room does.
      size_t room = static_cast<size_t>(first_take.load());
      for (iovec& piece : part) {
        piece.iov_len = std::min(piece.iov_len, room);
        room -= piece.iov_len;
      }
    } else if (refusals > 0 && first_take == 0) {
      --refusals;
      // A kernel that had no room tells when it has: this wakes the waiting
      // epoll set, as its socket's buffer may have grown.
      const int room = 1 << 20;
      EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
      errno = EAGAIN;
      return -1;
    }
  }
  msghdr message = {};
  message.msg_iov = part.data();
  message.msg_iovlen = part.size();
  const ssize_t n = __real_sendmsg(fd, &message, flags);
  if (fd == watched_fd) {
    if (n < 0 && (errno == EINVAL || errno == EMSGSIZE)) ++invalid;
    if (n > 0 && first_take > 0) first_take -= n;
  }
  return n;
}

class WriteGatherCases : public ::testing::TestWithParam<MatrixParam> {
 protected:
  void SetUp() override {
    watched_fd = -1;
    first_take = -1;
    refusals = 0;
    calls = 0;
    invalid = 0;
    longest = 0;
  }
  void TearDown() override { watched_fd = -1; }
};

// The kernel's limit is IOV_MAX entries a call; ours may be lower.
void ExpectGoodCalls() {
  EXPECT_GT(calls, 0) << "the hooks see nothing";
  EXPECT_EQ(invalid, 0);
  EXPECT_LE(longest, static_cast<size_t>(IOV_MAX));
}

TEST_P(WriteGatherCases, B40_ThousandsOfQueuedPieces) {
  constexpr int kPieces = 5000;
  const std::string flood = Pattern(size_t{512} << 10);
  RefHandler handler;
  handler.on_open = [](Connection& c) {
    watched_fd = c.fd();
    return Action::kNone;
  };
  TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                    GetParam().MakeOptions());
  Client client = Client::Connect(server.address());
  const ConnectionRef ref = handler.WaitFor(0);
  Reactor& home = HomeOf(server, ref);
  EXPECT_TRUE(ref.Write(flood).ok());
  std::string expected = flood;
  for (int i = 0; i < kPieces; ++i) {
    char piece[16];
    std::snprintf(piece, sizeof(piece), "%09d\n", i);
    EXPECT_TRUE(ref.Write(piece).ok());
    expected += piece;
  }
  TurnOver(home);
  EXPECT_TRUE(SameBytes(client.ReadExactly(expected.size()), expected));
  ExpectGoodCalls();
}

TEST_P(WriteGatherCases, B40_OneWriteOfThousandsOfSlices) {
  // Small ones, ones too large for a callback's gathering, and a peer that is
  // stalled already.
  for (const size_t size : {size_t{3}, size_t{1000}}) {
    for (const bool stalled : {false, true}) {
      SetUp();
      const std::string bytes = Pattern(2000 * size);
      const std::string flood = stalled ? Pattern(size_t{512} << 10, 2) : "";
      std::vector<std::string_view> slices;
      for (size_t i = 0; i < 2000; ++i) {
        slices.push_back(std::string_view(bytes).substr(i * size, size));
        if (i % 7 == 0) slices.emplace_back();
      }
      RefHandler handler;
      handler.on_open = [](Connection& c) {
        watched_fd = c.fd();
        return Action::kNone;
      };
      handler.on_traffic = [&](Connection& c) {
        c.Discard();
        EXPECT_TRUE(c.Write(flood).ok());
        EXPECT_TRUE(c.Write(slices).ok());
        EXPECT_TRUE(c.Write("and ").ok());
        EXPECT_TRUE(c.Write(slices).ok());
        return Action::kNone;
      };
      TestServer server(handler, {SmallBuffers(GetParam().Listen())},
                        GetParam().MakeOptions());
      Client client = Client::Connect(server.address());
      EXPECT_TRUE(client.SendAll("x"));
      const std::string expected = flood + bytes + "and " + bytes;
      EXPECT_TRUE(SameBytes(client.ReadExactly(expected.size()), expected));
      ExpectGoodCalls();
    }
  }
}

// What is left after a short write starts at the right byte of the right slice.
TEST_P(WriteGatherCases, B41_AnyShortWrite) {
  // Times 1: gathered with others. Times 20,000: too large for that.
  for (const size_t scale : {size_t{1}, size_t{20'000}}) {
    const std::string bytes = Pattern(16 * scale);
    std::vector<std::string_view> slices;
    size_t at = 0;
    for (const size_t size : std::initializer_list<size_t>{1, 0, 5, 3, 0, 7}) {
      slices.push_back(std::string_view(bytes).substr(at, size * scale));
      at += size * scale;
    }
    std::vector<size_t> takes;
    for (size_t k = 1; k <= 16; ++k) {
      if (scale > 1) takes.push_back(k * scale - 1);
      takes.push_back(k * scale);
      if (scale > 1 && k < 16) takes.push_back(k * scale + 1);
    }
    RefHandler handler;
    std::atomic<size_t> take{0};
    handler.on_traffic = [&](Connection& c) {
      c.Discard();
      watched_fd = c.fd();
      first_take = static_cast<ssize_t>(take.load());
      refusals = 2;
      EXPECT_TRUE(c.Write(slices).ok());
      EXPECT_TRUE(c.Write(".").ok());
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    Reactor& home = HomeOf(server, handler.WaitFor(0));
    for (const size_t k : takes) {
      take = k;
      EXPECT_TRUE(client.SendAll("x"));
      ASSERT_TRUE(SameBytes(client.ReadExactly(bytes.size() + 1), bytes + "."))
          << "after " << k << " bytes";
      TurnOver(home);
      EXPECT_EQ(first_take, 0) << "the kernel never took " << k << " bytes";
      EXPECT_EQ(refusals, 0) << "nothing was sent after " << k << " bytes";
    }
    ExpectGoodCalls();
    EXPECT_EQ(server.stats().buffers_outstanding, 0u);
  }
}

// The same through a ticket, and with a close behind it.
TEST_P(WriteGatherCases, B41_AShortWriteBeforeAClose) {
  const std::string bytes = Pattern(100'000);
  for (const size_t k : {size_t{1}, size_t{4096}, size_t{65'536},
                         size_t{99'999}, size_t{100'000}}) {
    RefHandler handler;
    handler.on_open = [&](Connection& c) {
      watched_fd = c.fd();
      first_take = static_cast<ssize_t>(k);
      refusals = 3;
      return Action::kNone;
    };
    TestServer server(handler, {GetParam().Listen()}, GetParam().MakeOptions());
    Client client = Client::Connect(server.address());
    const ConnectionRef ref = handler.WaitFor(0);
    EXPECT_TRUE(ref.Write(bytes).ok());
    EXPECT_TRUE(ref.Write("end").ok());
    EXPECT_TRUE(ref.Close().ok());
    EXPECT_TRUE(SameBytes(client.ReadToEof(), bytes + "end"));
    client.Close();
    EXPECT_TRUE(server.WaitForNoConnections());
    watched_fd = -1;
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, WriteGatherCases,
                         ::testing::ValuesIn(LoopCombinations()), MatrixName);

}  // namespace
}  // namespace sluice::test

extern "C" ssize_t __wrap_send(int fd, const void* bytes, size_t size,
                               int flags) {
  if (fd != sluice::test::watched_fd) {
    return __real_send(fd, bytes, size, flags);
  }
  const iovec piece = {const_cast<void*>(bytes), size};
  return sluice::test::Send(fd, &piece, 1, flags);
}

extern "C" ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  if (fd != sluice::test::watched_fd) {
    return __real_sendmsg(fd, message, flags);
  }
  return sluice::test::Send(fd, message->msg_iov, message->msg_iovlen, flags);
}

// A socket is never written without MSG_NOSIGNAL.
extern "C" ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  EXPECT_NE(fd, sluice::test::watched_fd) << "write(2) to a socket";
  return __real_write(fd, bytes, size);
}

extern "C" ssize_t __wrap_writev(int fd, const iovec* pieces, int count) {
  EXPECT_NE(fd, sluice::test::watched_fd) << "writev(2) to a socket";
  return __real_writev(fd, pieces, count);
}
