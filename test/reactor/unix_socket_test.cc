// Unix sockets and their files.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reactor/internal/socket.h"

namespace sluice::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "sluice-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr) << name;
    folder_ = name;
    path_ = folder_ + "/s";
    address_ = Address::Parse("unix://" + path_).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<BoundSocket> TryListen() {
    return Listen(address_, {}, false);
  }
  BoundSocket Listening() {
    absl::StatusOr<BoundSocket> bound = TryListen();
    EXPECT_TRUE(bound.ok()) << bound.status().ToString();
    return bound.ok() ? *std::move(bound) : BoundSocket();
  }
  bool Exists() const {
    struct stat file;
    return lstat(path_.c_str(), &file) == 0;
  }
  void WriteFile(const std::string& content) {
    std::ofstream(path_) << content;
  }
  std::string ReadFile() const {
    std::string content;
    std::getline(std::ifstream(path_), content, '\0');
    return content;
  }
  ino_t Inode() const {
    struct stat file {};
    EXPECT_EQ(lstat(path_.c_str(), &file), 0);
    return file.st_ino;
  }

  std::string folder_;
  std::string path_;
  Address address_;
};

// A client gets through to `bound`, and to no other listener.
void ExpectServes(const BoundSocket& bound) {
  absl::StatusOr<UniqueFd> client = StartConnect(bound.address, {});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const UniqueFd server(accept(bound.fd.get(), nullptr, nullptr));
  ASSERT_TRUE(server) << "nobody is in the queue";
  ASSERT_EQ(send(client->get(), "x", 1, MSG_NOSIGNAL), 1);
  char byte = 0;
  EXPECT_EQ(recv(server.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(UnixSocketTest, ListensAndCleansUp) {
  const BoundSocket bound = Listening();
  EXPECT_EQ(bound.address, address_);
  EXPECT_TRUE(fcntl(bound.fd.get(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(bound.fd.get(), F_GETFD) & FD_CLOEXEC);
  ExpectServes(bound);
  RemoveSocketFile(bound);
  EXPECT_FALSE(Exists());
  RemoveSocketFile(bound);  // twice is harmless
}

TEST_F(UnixSocketTest, B104aLeftOverFileIsReplaced) {
  Listening();  // closed at once, its file stays
  ASSERT_TRUE(Exists());
  ExpectServes(Listening());
}

TEST_F(UnixSocketTest, B104bLiveServerIsAddressInUse) {
  const BoundSocket live = Listening();
  const ino_t inode = Inode();
  const absl::Status status = TryListen().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status),
              StartsWith("listen on unix://" + path_ + ": address in use"));
  EXPECT_EQ(Inode(), inode);
  // The probe is in its queue, and gone already.
  const UniqueFd probe(accept(live.fd.get(), nullptr, nullptr));
  char byte;
  EXPECT_EQ(recv(probe.get(), &byte, 1, 0), 0);
  ExpectServes(live);
}

TEST_F(UnixSocketTest, B104bLiveServerWithAFullQueue) {
  ListenOptions options;
  options.backlog = 1;
  absl::StatusOr<BoundSocket> live = Listen(address_, options, false);
  ASSERT_TRUE(live.ok()) << live.status().ToString();
  std::vector<UniqueFd> clients;
  absl::Status full;
  for (int i = 0; i < 10 && full.ok(); ++i) {
    absl::StatusOr<UniqueFd> client = StartConnect(address_, {});
    full = client.status();
    if (client.ok()) clients.push_back(*std::move(client));
  }
  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(full), HasSubstr("queue is full"));
  EXPECT_EQ(TryListen().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketTest, B104bLiveDatagramSocket) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM, 0));
  sockaddr_storage storage;
  const socklen_t length = address_.ToSockaddr(&storage);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  EXPECT_EQ(TryListen().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketTest, B104cRegularFileIsRefused) {
  WriteFile("precious");
  const absl::Status status = TryListen().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("unix://" + path_));
  EXPECT_THAT(Text(status), HasSubstr("not a socket"));
  EXPECT_EQ(ReadFile(), "precious");
}

// Not even one that points to a left-over socket.
TEST_F(UnixSocketTest, B104cOtherKindsAreRefused) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(TryListen().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  Listening();
  const std::string target = folder_ + "/target";
  ASSERT_EQ(rename(path_.c_str(), target.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_EQ(TryListen().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(target));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(UnixSocketTest, B104dForeignFileIsNotRemoved) {
  const BoundSocket ours = Listening();
  // Another server removes our file and takes the path.
  ASSERT_EQ(unlink(path_.c_str()), 0);
  const BoundSocket theirs = Listening();
  RemoveSocketFile(ours);
  EXPECT_TRUE(Exists());
  ExpectServes(theirs);
  // And a regular file in its place stays too.
  ASSERT_EQ(unlink(path_.c_str()), 0);
  WriteFile("theirs");
  RemoveSocketFile(theirs);
  EXPECT_EQ(ReadFile(), "theirs");
}

// B122: a child that leaves with its copy of everything removes nothing.
TEST_F(UnixSocketTest, B122ForkedChildLeavesTheFile) {
  const BoundSocket bound = Listening();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RemoveSocketFile(bound);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ExpectServes(bound);
}

// B105: 107 bytes work to the last one; longer ones do not come about.
TEST_F(UnixSocketTest, B105LongestPath) {
  ASSERT_LT(path_.size(), 106u) << "the folder for tests has too long a name";
  const std::string base = path_ + std::string(106 - path_.size(), 'p');
  const Address a = Address::Parse("unix://" + base + "a").value();
  const Address b = Address::Parse("unix://" + base + "b").value();
  ASSERT_EQ(a.path().size(), 107u);
  absl::StatusOr<BoundSocket> bound_a = Listen(a, {}, false);
  absl::StatusOr<BoundSocket> bound_b = Listen(b, {}, false);
  ASSERT_TRUE(bound_a.ok()) << bound_a.status().ToString();
  ASSERT_TRUE(bound_b.ok()) << bound_b.status().ToString();
  ExpectServes(*bound_a);
  ExpectServes(*bound_b);
  RemoveSocketFile(*bound_a);
  EXPECT_FALSE(std::filesystem::exists(a.path()));
  EXPECT_TRUE(std::filesystem::exists(b.path()));
}

// B105: for listening and for dialing an Address is needed, and there is none.
TEST_F(UnixSocketTest, B105TooLongPathsNeverMeet) {
  const std::string base = folder_ + "/" + std::string(150, 'x');
  for (const std::string& path :
       {base.substr(0, 108), base.substr(0, 149) + "a",
        base.substr(0, 149) + "b"}) {
    const absl::Status status = Address::Parse("unix://" + path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(status), HasSubstr("File name too long"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(UnixSocketTest, B105KernelGiven108ByteAddressIsExact) {
  ASSERT_LT(path_.size(), 107u);
  const std::string path = path_ + std::string(108 - path_.size(), 'p');
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  path.copy(un.sun_path, sizeof(un.sun_path));
  const Address address =
      Address::FromSockaddr(reinterpret_cast<sockaddr*>(&un), sizeof(un));
  absl::StatusOr<BoundSocket> bound = Listen(address, {}, false);
  ASSERT_TRUE(bound.ok()) << bound.status().ToString();
  EXPECT_TRUE(std::filesystem::exists(path));
  ExpectServes(*bound);
}

TEST_F(UnixSocketTest, AbstractNames) {
  const Address address =
      Address::Parse("unix://@" + path_ + std::to_string(getpid())).value();
  absl::StatusOr<BoundSocket> first = Listen(address, {}, false);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ExpectServes(*first);
  const absl::Status second = Listen(address, {}, false).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text(second),
            "listen on " + address.ToString() + ": address in use");
  RemoveSocketFile(*first);  // there is none
  first->fd.Reset();
  EXPECT_EQ(Listen(address, {}, false).status(), absl::OkStatus());
}

TEST_F(UnixSocketTest, ErrorsNameThePath) {
  const Address address =
      Address::Parse("unix://" + folder_ + "/no/such/folder").value();
  EXPECT_EQ(
      Text(Listen(address, {}, false).status()),
      "listen on " + address.ToString() + ": bind: No such file or directory");
  EXPECT_EQ(
      Text(StartConnect(address, {}).status()),
      "dial " + address.ToString() + ": connect: No such file or directory");
  EXPECT_THAT(
      Text(
          StartConnect(Address::Parse("unix://" + path_).value(), {}).status()),
      HasSubstr("No such file"));
}

TEST_F(UnixSocketTest, FailedHookLeavesALeftOverAlone) {
  Listening();
  const ino_t inode = Inode();
  ListenOptions options;
  options.socket.before_bind = [](int) {
    return absl::PermissionDeniedError("no");
  };
  EXPECT_FALSE(Listen(address_, options, false).ok());
  options.socket = {};
  options.socket.send_buffer = -1;
  EXPECT_FALSE(Listen(address_, options, false).ok());
  EXPECT_EQ(Inode(), inode);
}

TEST_F(UnixSocketTest, UnnamedAddress) {
  const sockaddr raw{AF_UNIX, {}};
  const Address unnamed = Address::FromSockaddr(&raw, sizeof(sa_family_t));
  EXPECT_EQ(Listen(unnamed, {}, false).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StartConnect(unnamed, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::internal
