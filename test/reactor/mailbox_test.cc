#include "reactor/internal/mailbox.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/internal/connection_slab.h"
#include "reactor/internal/unique_fd.h"
#include "test/support/sanitizers.h"
#include "test/support/wait.h"

namespace sluice::internal {
namespace {

class MailboxTest : public ::testing::Test {
 protected:
  MailboxTest()
      : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        mailbox_(Mailbox::Acquire()) {
    EXPECT_TRUE(slab_.Reserve(nullptr, 100).ok());
    mailbox_->Open(wake_fd_.get(), &slab_);
  }
  ~MailboxTest() override {
    Mailbox::SetCurrent(nullptr);
    mailbox_->Close();
    Mailbox::GiveBack(mailbox_);
  }

  // How often the mailbox has woken its loop since the last call.
  uint64_t WakeUps() {
    uint64_t count = 0;
    const ssize_t n = read(wake_fd_.get(), &count, sizeof(count));
    return n == sizeof(count) ? count : 0;
  }
  // What is there, as a loop takes it.
  size_t TakeAndRun() {
    std::vector<Task> tasks;
    std::vector<AcceptedSocket> sockets;
    mailbox_->Take(&tasks, &sockets);
    for (const AcceptedSocket& socket : sockets) got_.push_back(socket);
    for (Task& task : tasks) std::move(task)();
    return tasks.size() + sockets.size();
  }
  // A descriptor of an empty file, as if accepted.
  static AcceptedSocket Socket(uint16_t listener) {
    AcceptedSocket socket;
    socket.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    socket.listener = listener;
    return socket;
  }
  static bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

  UniqueFd wake_fd_;
  ConnectionSlab slab_;
  Mailbox* mailbox_;
  std::vector<AcceptedSocket> got_;
};

TEST_F(MailboxTest, WakesOnlyFromEmptyToNotEmpty) {
  EXPECT_FALSE(mailbox_->HasMail());
  EXPECT_EQ(WakeUps(), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(mailbox_->Post([] {}).ok());
  EXPECT_TRUE(mailbox_->HasMail());
  EXPECT_EQ(WakeUps(), 1u);
  EXPECT_EQ(TakeAndRun(), 100u);
  EXPECT_FALSE(mailbox_->HasMail());
  EXPECT_EQ(WakeUps(), 0u);
  // And again, whatever it is.
  const AcceptedSocket socket = Socket(1);
  EXPECT_TRUE(mailbox_->PostSockets({&socket, 1}));
  EXPECT_TRUE(mailbox_->Post([] {}).ok());
  EXPECT_EQ(WakeUps(), 1u);
  EXPECT_EQ(TakeAndRun(), 2u);
  close(socket.fd);
  Connection* connection = slab_.Allocate(5);
  EXPECT_TRUE(mailbox_->PostFor(slab_.SlotOf(*connection), 5, [] {}).ok());
  EXPECT_EQ(WakeUps(), 1u);
  EXPECT_EQ(TakeAndRun(), 1u);
  slab_.Free(connection);
}

TEST_F(MailboxTest, ALoopsOwnPostsNeedNoWakeUp) {
  Mailbox::SetCurrent(mailbox_);
  EXPECT_EQ(Mailbox::Current(), mailbox_);
  EXPECT_TRUE(mailbox_->Post([] {}).ok());
  EXPECT_TRUE(mailbox_->HasMail());
  EXPECT_EQ(WakeUps(), 0u);
  // Nor do those of others, while it has not come to look.
  std::thread([&] { EXPECT_TRUE(mailbox_->Post([] {}).ok()); }).join();
  EXPECT_EQ(WakeUps(), 0u);
  EXPECT_EQ(TakeAndRun(), 2u);
  // Current is a thread's: another one has none.
  std::thread([&] {
    EXPECT_EQ(Mailbox::Current(), nullptr);
    EXPECT_TRUE(mailbox_->Post([] {}).ok());
  }).join();
  EXPECT_EQ(WakeUps(), 1u);
  EXPECT_EQ(TakeAndRun(), 1u);
  // Another loop's thread wakes it.
  Mailbox* other = Mailbox::Acquire();
  Mailbox::SetCurrent(other);
  EXPECT_TRUE(mailbox_->Post([] {}).ok());
  EXPECT_EQ(WakeUps(), 1u);
  EXPECT_EQ(TakeAndRun(), 1u);
  Mailbox::SetCurrent(nullptr);
  Mailbox::GiveBack(other);
}

TEST_F(MailboxTest, TasksKeepTheirOrderAndNewOnesWait) {
  std::vector<int> ran;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(
        mailbox_
            ->Post([&, i] {
              ran.push_back(i);
              EXPECT_TRUE(
                  mailbox_->Post([&, i] { ran.push_back(10 + i); }).ok());
            })
            .ok());
  }
  EXPECT_EQ(TakeAndRun(), 10u);
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(TakeAndRun(), 10u);
  ASSERT_EQ(ran.size(), 20u);
  EXPECT_EQ(ran[10], 10);
  EXPECT_EQ(ran[19], 19);
}

TEST_F(MailboxTest, SocketsKeepTheirOrder) {
  std::vector<AcceptedSocket> sockets = {Socket(3), Socket(4), Socket(5)};
  EXPECT_TRUE(mailbox_->PostSockets(sockets));
  EXPECT_EQ(TakeAndRun(), 3u);
  ASSERT_EQ(got_.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got_[i].fd, sockets[i].fd);
    EXPECT_EQ(got_[i].listener, 3 + i);
    EXPECT_TRUE(IsOpen(got_[i].fd));
    close(got_[i].fd);
  }
}

TEST_F(MailboxTest, AConnectionThatIsGoneIsNotFound) {
  auto held = std::make_shared<int>();
  Connection* connection = slab_.Allocate(9);
  const uint32_t slot = slab_.SlotOf(*connection);
  bool ran = false;
  EXPECT_TRUE(mailbox_->PostFor(slot, 9, [&] { ran = true; }).ok());
  EXPECT_EQ(TakeAndRun(), 1u);
  EXPECT_TRUE(ran);
  slab_.Free(connection);
  EXPECT_EQ(mailbox_->PostFor(slot, 9, [held] { FAIL(); }).code(),
            absl::StatusCode::kNotFound);
  connection = slab_.Allocate(10);
  EXPECT_EQ(mailbox_->PostFor(slot, 9, [held] { FAIL(); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(mailbox_->PostFor(slot, 0, [held] { FAIL(); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(mailbox_->HasMail());
  EXPECT_EQ(held.use_count(), 1);
  slab_.Free(connection);
}

TEST_F(MailboxTest, RefusedAfterRefuseAndWhatIsInItMayBeTaken) {
  int ran = 0;
  EXPECT_TRUE(mailbox_->Post([&] { ++ran; }).ok());
  mailbox_->Refuse();
  auto held = std::make_shared<int>();
  EXPECT_EQ(mailbox_->Post([held] { FAIL(); }).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(mailbox_->PostFor(1, 1, [held] { FAIL(); }).code(),
            absl::StatusCode::kUnavailable)
      << "the engine is gone, whatever became of the connection";
  EXPECT_EQ(held.use_count(), 1);
  const AcceptedSocket socket = Socket(1);
  EXPECT_FALSE(mailbox_->PostSockets({&socket, 1}));
  EXPECT_TRUE(IsOpen(socket.fd)) << "it stays the caller's";
  close(socket.fd);
  EXPECT_EQ(TakeAndRun(), 1u);
  EXPECT_EQ(ran, 1);
}

TEST_F(MailboxTest, CloseDropsWhatIsInIt) {
  auto held = std::make_shared<int>();
  const AcceptedSocket socket = Socket(1);
  EXPECT_TRUE(mailbox_->Post([held] { FAIL(); }).ok());
  EXPECT_TRUE(mailbox_->PostSockets({&socket, 1}));
  mailbox_->Close();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(IsOpen(socket.fd));
  EXPECT_FALSE(mailbox_->HasMail());
  EXPECT_EQ(mailbox_->Post([] {}).code(), absl::StatusCode::kUnavailable);
  mailbox_->Close();  // again is harmless
}

// What a closure does when it is destroyed may post again: not under our lock.
TEST_F(MailboxTest, ADestroyedTaskMayPost) {
  struct PostsWhenDestroyed {
    explicit PostsWhenDestroyed(Mailbox* m) : mailbox(m) {}
    ~PostsWhenDestroyed() {
      (void)mailbox->Post([] {});
    }
    Mailbox* mailbox;
  };
  auto post = [this] {
    return mailbox_->Post(
        [p = std::make_unique<PostsWhenDestroyed>(mailbox_)] {});
  };
  EXPECT_TRUE(post().ok());
  EXPECT_EQ(TakeAndRun(), 1u);
  EXPECT_EQ(TakeAndRun(), 1u);
  EXPECT_TRUE(post().ok());
  mailbox_->Close();
  EXPECT_EQ(mailbox_->Post([] {}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(MailboxTest, GenerationsGoOnWithTheNextReactor) {
  const uint32_t first = mailbox_->NextGeneration();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(mailbox_->NextGeneration(), first + 1);
  mailbox_->Close();
  Mailbox::GiveBack(mailbox_);
  Mailbox* again = Mailbox::Acquire();
  EXPECT_EQ(again, mailbox_) << "it is used again, never freed";
  mailbox_ = again;
  mailbox_->Open(wake_fd_.get(), &slab_);
  EXPECT_EQ(mailbox_->NextGeneration(), first + 2);
  EXPECT_TRUE(mailbox_->Post([] {}).ok());
  EXPECT_EQ(TakeAndRun(), 1u);
}

// The consumer sleeps on the eventfd and on nothing else: a wake-up that is
// missing would leave it there.
TEST_F(MailboxTest, ManyProducersOneConsumer) {
  constexpr int kThreads = 8;
  constexpr int kTasks = test::kTsan ? 5'000 : 20'000;
  std::vector<int> last(kThreads, -1);
  int ran = 0;
  int sockets = 0;
  uint64_t wake_ups = 0;
  uint64_t turns = 0;
  test::Event over;
  UniqueFd blocking(fcntl(wake_fd_.get(), F_DUPFD_CLOEXEC, 0));
  std::thread consumer([&] {
    Mailbox::SetCurrent(mailbox_);
    // Blocks in read(2).
    EXPECT_EQ(fcntl(blocking.get(), F_SETFL, 0), 0);
    while (ran < kThreads * kTasks || sockets < kThreads) {
      uint64_t count = 0;
      if (!mailbox_->HasMail()) {
        ASSERT_EQ(read(blocking.get(), &count, sizeof(count)), 8);
        wake_ups += count;
      }
      std::vector<Task> tasks;
      std::vector<AcceptedSocket> accepted;
      mailbox_->Take(&tasks, &accepted);
      for (const AcceptedSocket& socket : accepted) close(socket.fd);
      sockets += static_cast<int>(accepted.size());
      for (Task& task : tasks) std::move(task)();
      ++turns;
    }
    Mailbox::SetCurrent(nullptr);
    over.Set();
  });
  std::vector<std::thread> producers;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        ASSERT_TRUE(mailbox_
                        ->Post([&, t, i] {
                          int& previous = last[static_cast<size_t>(t)];
                          EXPECT_EQ(previous, i - 1);
                          previous = i;
                          ++ran;
                        })
                        .ok());
      }
      const AcceptedSocket socket = Socket(static_cast<uint16_t>(t));
      ASSERT_TRUE(mailbox_->PostSockets({&socket, 1}));
    });
  }
  for (std::thread& producer : producers) producer.join();
  if (!over.Wait()) {
    ADD_FAILURE() << "the consumer was not woken";
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_fd_.get(), &one, sizeof(one)), 8);
  }
  consumer.join();
  EXPECT_EQ(ran, kThreads * kTasks);
  EXPECT_LE(wake_ups, turns + 1) << "more wake-ups than turns";
}

}  // namespace
}  // namespace sluice::internal
