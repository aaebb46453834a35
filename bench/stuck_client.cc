#include "bench/stuck_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/loopback.h"
#include "bench/slow_reader_server.h"

namespace sluice::bench {
namespace {

constexpr time_t kPatienceSeconds = 30;
constexpr int kNoMoreMs = 50;

}  // namespace

absl::StatusOr<std::unique_ptr<StuckClient>> StuckClient::Connect(
    uint16_t port) {
  LoopbackClientOptions options;
  options.mode = LoopbackClientOptions::Mode::kBlocking;
  const absl::StatusOr<int> fd = ConnectToLoopback(port, options);
  if (!fd.ok()) return ClientError(0, fd.status());
  return std::unique_ptr<StuckClient>(new StuckClient(*fd));
}

StuckClient::~StuckClient() {
  ResetAtClose(fd_);
  close(fd_);
}

absl::Status StuckClient::Ask() {
  if (send(fd_, "w", 1, MSG_NOSIGNAL) == 1) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "the stuck client: send");
}

absl::Status StuckClient::TakeAll(uint64_t accepted, uint64_t offered) {
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string expected = Piece();
  std::string got(kPieceBytes, '\0');
  uint64_t lowest = 0;  // number the next one can have
  for (uint64_t i = 0; i < accepted; ++i) {
    const ssize_t n = recv(fd_, got.data(), got.size(), MSG_WAITALL);
    if (n != static_cast<ssize_t>(got.size())) {
      return absl::DataLossError(absl::StrCat(
          "the stuck client: ", accepted, " pieces were accepted, and after ",
          i, " came ", n, " bytes instead of a whole one"));
    }
    const uint64_t number = PieceNumber(got);
    NumberPiece(number, &expected);
    if (number < lowest || number >= offered || got != expected) {
      return absl::DataLossError(absl::StrCat(
          "the stuck client: piece ", number, " at place ", i,
          ", where one from ", lowest, " on may be, or not as it was sent"));
    }
    lowest = number + 1;
  }
  pollfd more{fd_, POLLIN, 0};
  if (poll(&more, 1, kNoMoreMs) != 0) {
    return absl::DataLossError(absl::StrCat("the stuck client: more than the ",
                                            accepted, " accepted pieces"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::bench
