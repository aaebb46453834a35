#include "test/support/raw_listener.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"
#include "test/support/wait.h"

namespace sluice::test {
namespace {

// True when `fd` becomes connected within a moment.
bool Connects(int fd, const Address& address) {
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  if (connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) {
    return true;
  }
  EXPECT_EQ(errno, EINPROGRESS) << std::strerror(errno);
  pollfd entry = {fd, POLLOUT, 0};
  return poll(&entry, 1, 50) > 0;
}

}  // namespace

RawListener::RawListener(std::string_view text, Kind kind) {
  const absl::StatusOr<Address> parsed = Address::Parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  if (!parsed.ok()) return;
  sockaddr_storage storage;
  socklen_t length = parsed->ToSockaddr(&storage);
  sockaddr* raw = reinterpret_cast<sockaddr*>(&storage);
  fd_.Reset(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(fd_.get(), raw, length), 0) << std::strerror(errno);
  if (kind != kOnlyBind) {
    EXPECT_EQ(listen(fd_.get(), kind == kFullQueue ? 0 : 1024), 0)
        << std::strerror(errno);
  }
  length = sizeof(storage);
  EXPECT_EQ(getsockname(fd_.get(), raw, &length), 0) << std::strerror(errno);
  address_ = Address::FromSockaddr(raw, length);
  if (kind != kFullQueue) return;
  // Twice in a row without an answer: the queue is full.
  for (int waiting = 0, tries = 0; waiting < 2; ++tries) {
    if (tries == 50) {
      ADD_FAILURE() << "the queue does not fill";
      return;
    }
    fillers_.emplace_back(socket(
        storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    waiting = Connects(fillers_.back().get(), address_) ? 0 : waiting + 1;
  }
}

RawListener::~RawListener() {
  if (address_.family() == Address::Family::kUnix && !address_.is_abstract()) {
    unlink(address_.path().c_str());
  }
}

internal::UniqueFd RawListener::Accept(Address* peer) {
  pollfd entry = {fd_.get(), POLLIN, 0};
  const auto wait =
      std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);
  EXPECT_EQ(poll(&entry, 1, static_cast<int>(wait.count())), 1)
      << "nobody connects to " << address_.ToString();
  if (entry.revents == 0) return internal::UniqueFd();
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  internal::UniqueFd fd(accept4(
      fd_.get(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_CLOEXEC));
  EXPECT_TRUE(fd) << std::strerror(errno);
  if (peer != nullptr) {
    *peer =
        Address::FromSockaddr(reinterpret_cast<sockaddr*>(&storage), length);
  }
  return fd;
}

}  // namespace sluice::test
