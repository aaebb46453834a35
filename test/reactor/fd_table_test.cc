#include "reactor/internal/fd_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::internal {
namespace {

#if defined(__SANITIZE_THREAD__)
#define SLUICE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_TEST_TSAN 1
#endif
#endif

#ifdef SLUICE_TEST_TSAN
#define SKIP_UNDER_TSAN()                                              \
  GTEST_SKIP() << "ThreadSanitizer follows descriptors by number and " \
                  "takes equal numbers of two tables for one"
#else
#define SKIP_UNDER_TSAN() static_cast<void>(0)
#endif

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

UniqueFd EventFd(unsigned value) {
  return UniqueFd(::eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

uint64_t ValueOf(int event_fd) {
  uint64_t value = 0;
  if (::read(event_fd, &value, sizeof(value)) != sizeof(value)) return 0;
  return value;
}

// "FDSize" of the calling thread's table.
size_t TableSize() {
  std::ifstream status("/proc/thread-self/status");
  std::string word;
  size_t size = 0;
  while (status >> word) {
    if (word == "FDSize:") status >> size;
  }
  return size;
}

// Runs `body` in a child process, so that limits and tables stay ours. Returns
// what it returned, or -1. When the body fills its table it must not touch an
// object with virtual functions: UBSan needs descriptors to look at one.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void SetSoftLimit(rlim_t soft) {
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = soft;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(FdTable, FdLimitReadsAndRaises) {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(FdLimit(false), limit.rlim_cur);
  const int result = InChild([&] {
    SetSoftLimit(64);
    if (FdLimit(false) != 64) return 1;
    if (FdLimit(true) != limit.rlim_max) return 2;
    if (FdLimit(false) != limit.rlim_max) return 3;
    return 0;
  });
  EXPECT_EQ(result, 0);
}

TEST(FdTable, OpenFdsCounts) {
  const size_t before = OpenFds();
  ASSERT_GE(before, 3u);
  std::vector<UniqueFd> some;
  for (int i = 0; i < 100; ++i) some.push_back(EventFd(0));
  EXPECT_EQ(OpenFds(), before + 100);
  some.clear();
  EXPECT_EQ(OpenFds(), before);
}

TEST(FdTable, GrowFdTableMakesRoomAndLeavesNothingOpen) {
  const int result = InChild([] {
    const size_t open = OpenFds();
    const size_t target = std::min(FdLimit(false), TableSize() * 4);
    if (target <= TableSize()) return 1;
    GrowFdTable(target);
    if (TableSize() < target) return 2;
    GrowFdTable(0);
    GrowFdTable(SIZE_MAX);  // as far as the limit goes
    if (TableSize() < FdLimit(false)) return 3;
    return OpenFds() == open ? 0 : 4;
  });
  EXPECT_EQ(result, 0);
}

TEST(FdTable, AnUnsharedTableIsACopyWithoutTheUnwanted) {
  SKIP_UNDER_TSAN();
  const UniqueFd unwanted = EventFd(1);
  const UniqueFd kept = EventFd(7);
  int opened_there = -1;
  std::thread([&] {
    const int list[] = {unwanted.get(), -1, 1'000'000};
    const absl::Status status = UnshareFdTable(list);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_FALSE(IsOpen(unwanted.get()));
    ASSERT_TRUE(IsOpen(kept.get()));
    EXPECT_EQ(ValueOf(kept.get()), 7u);  // the same open file
    const uint64_t nine = 9;
    EXPECT_EQ(::write(kept.get(), &nine, sizeof(nine)), 8);
    EXPECT_EQ(::close(kept.get()), 0);
    EXPECT_FALSE(IsOpen(kept.get()));
    opened_there = ::fcntl(1, F_DUPFD_CLOEXEC, 500);
    EXPECT_TRUE(IsOpen(opened_there));
  }).join();
  EXPECT_TRUE(IsOpen(unwanted.get()));
  EXPECT_EQ(ValueOf(unwanted.get()), 1u);
  ASSERT_TRUE(IsOpen(kept.get()));
  EXPECT_EQ(ValueOf(kept.get()), 9u);
  ASSERT_GE(opened_there, 500);
  EXPECT_FALSE(IsOpen(opened_there));
}

TEST(FdTable, OpenFdsIsAboutTheCallingThreadsTable) {
  SKIP_UNDER_TSAN();
  const UniqueFd a = EventFd(0);
  const UniqueFd b = EventFd(0);
  const size_t here = OpenFds();
  size_t there = 0;
  std::thread([&] {
    const int list[] = {a.get(), b.get()};
    ASSERT_TRUE(UnshareFdTable(list).ok());
    there = OpenFds();
  }).join();
  EXPECT_EQ(there + 2, here);
  EXPECT_EQ(OpenFds(), here);
}

struct Record {
  uint32_t number;
  char text[20];
};

Record MakeRecord(size_t number) {
  Record r{};
  r.number = static_cast<uint32_t>(number);
  std::snprintf(r.text, sizeof(r.text), "record %zu", number);
  return r;
}

// Sends eventfds that hold first, first + 1, ... with records to match.
absl::Status SendBatch(FdChannel& channel, size_t first, size_t count) {
  std::vector<UniqueFd> fds;
  std::vector<int> numbers;
  std::vector<Record> records;
  for (size_t i = 0; i < count; ++i) {
    fds.push_back(EventFd(static_cast<unsigned>(first + i)));
    numbers.push_back(fds.back().get());
    records.push_back(MakeRecord(first + i));
  }
  return channel.Send(numbers, records.data(), sizeof(Record));
}

class FdChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    auto channel = FdChannel::Create();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = std::move(*channel);
  }

  // One message, which must be there.
  void ReceiveBatch(size_t first, size_t count) {
    auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(*got);
    ASSERT_EQ(fds_.size(), count);
    ASSERT_EQ(bytes_.size(), count * sizeof(Record));
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(ValueOf(fds_[i].get()), first + i);
      EXPECT_NE(::fcntl(fds_[i].get(), F_GETFD) & FD_CLOEXEC, 0);
      const Record want = MakeRecord(first + i);
      EXPECT_EQ(std::memcmp(&bytes_[i * sizeof(Record)], &want, sizeof(want)),
                0);
    }
  }

  FdChannel channel_;
  std::vector<UniqueFd> fds_;
  std::vector<char> bytes_;
  size_t lost_ = 0;
};

TEST_F(FdChannelTest, EndsAreNonBlockingAndCloseOnExec) {
  for (const int fd : {channel_.send_fd(), channel_.receive_fd()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
  auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(*got);
  EXPECT_TRUE(fds_.empty());
  EXPECT_TRUE(bytes_.empty());
}

TEST_F(FdChannelTest, OneDescriptor) {
  const size_t before = OpenFds();
  ASSERT_TRUE(SendBatch(channel_, 1, 1).ok());
  EXPECT_EQ(OpenFds(), before);
  ReceiveBatch(1, 1);
  EXPECT_EQ(OpenFds(), before + 1);
  EXPECT_EQ(lost_, 0u);
}

TEST_F(FdChannelTest, FullMessagesInOrder) {
  constexpr size_t kMax = FdChannel::kMaxBatch;
  ASSERT_TRUE(SendBatch(channel_, 1, kMax).ok());
  ASSERT_TRUE(SendBatch(channel_, 1000, 2).ok());
  ASSERT_TRUE(SendBatch(channel_, 2000, kMax).ok());
  ASSERT_TRUE(SendBatch(channel_, 3000, kMax).ok());
  ReceiveBatch(1, kMax);
  ReceiveBatch(1000, 2);
  ReceiveBatch(2000, kMax);
  ReceiveBatch(3000, kMax);
  EXPECT_EQ(lost_, 0u);
}

TEST_F(FdChannelTest, TheSendersCopiesStayOpen) {
  const UniqueFd fd = EventFd(3);
  const int list[] = {fd.get()};
  const Record record = MakeRecord(3);
  ASSERT_TRUE(channel_.Send(list, &record, sizeof(record)).ok());
  EXPECT_TRUE(IsOpen(fd.get()));
  ReceiveBatch(3, 1);
  EXPECT_TRUE(IsOpen(fd.get()));
}

TEST_F(FdChannelTest, RefusesWhatIsNoMessage) {
  const std::vector<int> many(FdChannel::kMaxBatch + 1, 0);
  const std::vector<Record> records(many.size());
  absl::Status status = channel_.Send(many, records.data(), sizeof(Record));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.ToString().find("254"), std::string::npos) << status;
  const int one[] = {0};
  status = channel_.Send(one, records.data(), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const int closed[] = {1'000'000};
  status = channel_.Send(closed, records.data(), sizeof(Record));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(channel_.Send({}, nullptr, sizeof(Record)).ok());

  auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(*got);  // none of these sent anything
}

TEST_F(FdChannelTest, UnavailableWhenFullAndNothingIsSent) {
  constexpr size_t kBatch = FdChannel::kMaxBatch;
  constexpr size_t kBound = 1000;
  size_t sent = 0;
  absl::Status status;
  while (sent < kBound) {
    status = SendBatch(channel_, sent + 1, kBatch);
    if (!status.ok()) break;
    ++sent;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_GE(sent, 3u) << "room for several full messages";
  for (size_t i = 0; i < sent; ++i) {
    ASSERT_NO_FATAL_FAILURE(ReceiveBatch(i + 1, kBatch)) << i;
    fds_.clear();
  }
  auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(*got);
  EXPECT_EQ(lost_, 0u);
  ASSERT_TRUE(SendBatch(channel_, 5, 1).ok());  // and there is room again
  ReceiveBatch(5, 1);
}

TEST_F(FdChannelTest, WhatDoesNotFitInTheTableIsCounted) {
  // `room` descriptors are free in the receiver, 10 are sent, then 1.
  for (int room = 0; room <= 11; ++room) {
    const int result = InChild([&channel = channel_, room] {
      std::vector<UniqueFd> fds;
      std::vector<char> bytes;
      size_t lost = 0;
      if (!SendBatch(channel, 1, 10).ok()) return 1;
      if (!SendBatch(channel, 11, 1).ok()) return 2;
      // Fill the gaps below the limit, then leave `room`.
      SetSoftLimit(static_cast<rlim_t>(::dup(0)) + 64);
      std::vector<UniqueFd> filler;
      for (int i = 0; i < 1000; ++i) {
        UniqueFd fd = EventFd(0);
        if (!fd) break;
        filler.push_back(std::move(fd));
      }
      if (errno != EMFILE || filler.size() < 20) return 3;
      filler.resize(filler.size() - static_cast<size_t>(room));

      const size_t first = std::min<size_t>(static_cast<size_t>(room), 10);
      auto got = channel.Receive(&fds, &bytes, sizeof(Record), &lost);
      if (!got.ok() || !*got) return 4;
      if (fds.size() != first || lost != 10 - first) return 5;
      if (bytes.size() != 10 * sizeof(Record)) return 6;
      for (size_t i = 0; i < 10; ++i) {
        const Record want = MakeRecord(1 + i);
        if (i < first && ValueOf(fds[i].get()) != 1 + i) return 7;
        if (std::memcmp(&bytes[i * sizeof(Record)], &want, sizeof(want)) != 0)
          return 8;
      }
      // The next message, with the first one's descriptors still open.
      std::vector<UniqueFd> next;
      got = channel.Receive(&next, &bytes, sizeof(Record), &lost);
      if (!got.ok() || !*got) return 9;
      const size_t second = room == 11 ? 1 : 0;
      if (next.size() != second) return 10;
      if (lost != 10 - first + 1 - second) return 11;
      return 0;
    });
    EXPECT_EQ(result, 0) << "room " << room;
  }
}

TEST_F(FdChannelTest, LostDescriptorsAreClosed) {
  const int result = InChild([&channel = channel_] {
    std::vector<UniqueFd> fds;
    std::vector<char> bytes;
    size_t lost = 0;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return 1;
    const Record record = MakeRecord(1);
    const int list[] = {ends[1]};
    if (!channel.Send(list, &record, sizeof(record)).ok()) return 2;
    ::close(ends[1]);
    char c;
    if (::read(ends[0], &c, 1) != -1 || errno != EAGAIN) return 3;
    SetSoftLimit(0);
    auto got = channel.Receive(&fds, &bytes, sizeof(Record), &lost);
    if (!got.ok() || !*got || lost != 1 || !fds.empty()) return 4;
    return ::read(ends[0], &c, 1) == 0 ? 0 : 5;  // the writer is gone
  });
  EXPECT_EQ(result, 0);
}

TEST_F(FdChannelTest, TheEndIsToldAfterEverythingWasReceived) {
  ASSERT_TRUE(SendBatch(channel_, 1, 3).ok());
  ASSERT_TRUE(SendBatch(channel_, 4, 1).ok());
  channel_.CloseSend();
  ReceiveBatch(1, 3);
  ReceiveBatch(4, 1);
  for (int i = 0; i < 2; ++i) {
    auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(fds_.empty());
  }
}

TEST_F(FdChannelTest, SendingToAClosedReceiverFailsForGood) {
  ASSERT_TRUE(SendBatch(channel_, 1, 1).ok());
  channel_.CloseReceive();  // with a message unread: ECONNRESET, then EPIPE
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = SendBatch(channel_, 2, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
}

TEST_F(FdChannelTest, RecordsOfAnotherSizeAreAnError) {
  const size_t before = OpenFds();
  ASSERT_TRUE(SendBatch(channel_, 1, 1).ok());
  auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record) - 1, &lost_);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(fds_.empty());
  EXPECT_EQ(OpenFds(), before);
}

TEST_F(FdChannelTest, BetweenThreadsWithTablesOfTheirOwn) {
  SKIP_UNDER_TSAN();
  const size_t before = OpenFds();
  std::vector<uint64_t> values;
  size_t open_there = 0;
  std::latch unshared(1);
  std::thread receiver([&, list = std::array{channel_.send_fd()}] {
    const absl::Status status = UnshareFdTable(list);
    unshared.count_down();
    ASSERT_TRUE(status.ok()) << status;
    const size_t open = OpenFds();
    std::vector<UniqueFd> all;
    ASSERT_EQ(::fcntl(channel_.receive_fd(), F_SETFL, 0), 0);  // blocks
    for (;;) {
      auto got = channel_.Receive(&fds_, &bytes_, sizeof(Record), &lost_);
      if (!got.ok()) {
        EXPECT_EQ(got.status().code(), absl::StatusCode::kNotFound);
        break;
      }
      for (UniqueFd& fd : fds_) {
        values.push_back(ValueOf(fd.get()));
        all.push_back(std::move(fd));
      }
    }
    open_there = OpenFds() - open;
  });
  unshared.wait();
  size_t sent = 0;
  for (size_t first = 1; first <= 901; first += 100) {
    if (SendBatch(channel_, first, 100).ok()) sent += 100;
  }
  // The receiver has closed its copy of the sending end: this is the last.
  channel_.CloseSend();
  receiver.join();
  EXPECT_EQ(values.size(), sent);
  EXPECT_GE(sent, 300u);
  EXPECT_EQ(open_there, sent);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  EXPECT_EQ(OpenFds(), before - 1);
}

}  // namespace
}  // namespace sluice::internal
