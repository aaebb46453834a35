#include "bench/echo_client.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/loopback.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;
constexpr size_t kPatternBytes = size_t{64} << 10;
// How often a quiet client looks for Ctrl-C and for a stall.
constexpr int kPollMs = 200;

absl::StatusOr<bool> Always(const EchoRun&) { return true; }

}  // namespace

struct EchoClient::Peer {
  int fd = -1;
  bool wants_out = false;  // EPOLLOUT is armed
  uint64_t message = 0;    // number of the current burst, from 1
  size_t offset = 0;       // where in the pattern it begins
  size_t sent = 0;         // bytes of it
  size_t received = 0;     // bytes of its echo
  int64_t started_ns = 0;
};

EchoClient::EchoClient(const EchoClientOptions& options)
    : options_(options),
      burst_bytes_(options.message_bytes * static_cast<size_t>(options.depth)),
      peers_(static_cast<size_t>(options.connections)),
      buffer_(std::max(burst_bytes_ + 1, size_t{64} << 10)) {
  pattern_.resize(kPatternBytes + burst_bytes_);
  std::minstd_rand random(1);
  for (char& c : pattern_) c = static_cast<char>(random() >> 8);
}

EchoClient::~EchoClient() {
  for (const Peer& peer : peers_) {
    if (peer.fd < 0) continue;
    ResetAtClose(peer.fd);
    close(peer.fd);
  }
  if (epoll_ >= 0) close(epoll_);
}

absl::StatusOr<std::unique_ptr<EchoClient>> EchoClient::Connect(
    uint16_t port, const EchoClientOptions& options) {
  if (options.connections < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections: ", options.connections, ", must be >= 1"));
  }
  if (options.message_bytes < 1) {
    return absl::InvalidArgumentError("message bytes: 0, must be >= 1");
  }
  if (options.depth < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("depth: ", options.depth, ", must be >= 1"));
  }
  auto client = std::unique_ptr<EchoClient>(new EchoClient(options));
  if (absl::Status s = client->Open(port); !s.ok()) return s;
  return client;
}

absl::Status EchoClient::Open(uint16_t port) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    const absl::StatusOr<int> fd = ConnectToLoopback(port);
    if (!fd.ok()) {
      return absl::Status(
          fd.status().code(),
          absl::StrCat("client, connection ", i, " of ", peers_.size(),
                       " to 127.0.0.1:", port, ": ",
                       std::string(fd.status().message())));
    }
    peers_[i].fd = *fd;
    if (absl::Status s = Watch(EPOLL_CTL_ADD, i, EPOLLIN); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<EchoRun> EchoClient::RunMessages(uint64_t messages) {
  return Run(messages / static_cast<uint64_t>(options_.depth),
             std::numeric_limits<int64_t>::max(), Always);
}

absl::StatusOr<EchoRun> EchoClient::RunFor(std::chrono::nanoseconds duration) {
  return Run(std::numeric_limits<uint64_t>::max(), NowNs() + duration.count(),
             Always);
}

absl::StatusOr<EchoRun> EchoClient::RunWhile(GoOn go_on) {
  return Run(std::numeric_limits<uint64_t>::max(),
             std::numeric_limits<int64_t>::max(), go_on);
}

absl::StatusOr<EchoRun> EchoClient::Run(uint64_t bursts, int64_t stop_ns,
                                        GoOn go_on) {
  EchoRun run;
  const int64_t begin = NowNs();
  uint64_t unstarted = bursts;
  size_t outstanding = 0;
  for (size_t i = 0; i < peers_.size() && unstarted > 0; ++i) {
    if (absl::Status s = Start(i, NowNs()); !s.ok()) return s;
    --unstarted;
    ++outstanding;
  }
  const int64_t patience =
      std::chrono::nanoseconds(options_.stall_timeout).count();
  int64_t last_reply = begin;
  epoll_event events[kBatch];
  while (outstanding > 0) {
    const int count = epoll_wait(epoll_, events, kBatch, kPollMs);
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (count < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "client, epoll_wait");
    }
    if (count <= 0 && NowNs() - last_reply > patience) {
      return absl::DeadlineExceededError(absl::StrCat(
          "client: no reply for ", options_.stall_timeout.count(), " ms, ",
          outstanding, " outstanding after ", run.messages, " messages"));
    }
    for (int i = 0; i < count; ++i) {
      const size_t index = events[i].data.u64;
      bool complete = false;
      if (absl::Status s = Receive(index, &complete); !s.ok()) return s;
      if (!complete) {
        if (events[i].events & EPOLLOUT) {
          if (absl::Status s = Send(index); !s.ok()) return s;
        }
        continue;
      }
      const int64_t now = NowNs();
      last_reply = now;
      run.messages += static_cast<uint64_t>(options_.depth);
      run.rtt.Add(static_cast<uint64_t>(now - peers_[index].started_ns));
      if (unstarted > 0 && now < stop_ns) {
        --unstarted;
        if (absl::Status s = Start(index, now); !s.ok()) return s;
      } else {
        --outstanding;
      }
    }
    if (unstarted == 0) continue;
    const absl::StatusOr<bool> more = go_on(run);
    if (!more.ok()) return more.status();
    if (!*more) unstarted = 0;
  }
  run.wall = std::chrono::nanoseconds(NowNs() - begin);
  return run;
}

absl::Status EchoClient::Start(size_t index, int64_t now) {
  Peer& peer = peers_[index];
  ++peer.message;
  // Odd multipliers: consecutive messages and connections differ.
  peer.offset = (peer.message * 40503 + index * 30011) % kPatternBytes;
  peer.sent = 0;
  peer.received = 0;
  peer.started_ns = now;
  return Send(index);
}

absl::Status EchoClient::Send(size_t index) {
  Peer& peer = peers_[index];
  while (peer.sent < burst_bytes_) {
    const ssize_t put = send(peer.fd, pattern_.data() + peer.offset + peer.sent,
                             burst_bytes_ - peer.sent, MSG_NOSIGNAL);
    if (put >= 0) {
      peer.sent += static_cast<size_t>(put);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat(Where(index), ": send"));
    }
  }
  const bool wants_out = peer.sent < burst_bytes_;
  if (wants_out == peer.wants_out) return absl::OkStatus();
  peer.wants_out = wants_out;
  return Watch(EPOLL_CTL_MOD, index, wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

absl::Status EchoClient::Receive(size_t index, bool* complete) {
  Peer& peer = peers_[index];
  const ssize_t got = recv(peer.fd, buffer_.data(), buffer_.size(), 0);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat(Where(index), ": recv"));
  }
  if (got == 0) {
    return absl::UnavailableError(
        absl::StrCat(Where(index), ": the server closed the connection"));
  }
  const auto bytes = static_cast<size_t>(got);
  if (peer.received + bytes > peer.sent) {
    return absl::DataLossError(
        absl::StrCat(Where(index), ": ", peer.received + bytes,
                     " bytes came back of ", peer.sent, " sent"));
  }
  const char* expected = pattern_.data() + peer.offset + peer.received;
  if (std::memcmp(buffer_.data(), expected, bytes) != 0) {
    const auto wrong =
        std::mismatch(expected, expected + bytes, buffer_.data()).first;
    return absl::DataLossError(
        absl::StrCat(Where(index), ": byte ",
                     peer.received + static_cast<size_t>(wrong - expected),
                     " of ", burst_bytes_, " came back changed"));
  }
  peer.received += bytes;
  *complete = peer.received == burst_bytes_;
  return absl::OkStatus();
}

absl::Status EchoClient::Watch(int operation, size_t index, uint32_t interest) {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = index;
  if (epoll_ctl(epoll_, operation, peers_[index].fd, &event) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat(Where(index), ": epoll_ctl"));
  }
  return absl::OkStatus();
}

std::string EchoClient::Where(size_t index) const {
  return absl::StrCat("client, connection ", index, ", message ",
                      peers_[index].message);
}

}  // namespace sluice::bench
