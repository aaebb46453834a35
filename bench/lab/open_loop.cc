#include "bench/lab/open_loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/loopback.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;

class OpenLoop {
 public:
  explicit OpenLoop(const OpenLoopOptions& options)
      : options_(options),
        peers_(static_cast<size_t>(options.connections)),
        buffer_(size_t{64} << 10) {}
  ~OpenLoop() {
    for (const Peer& peer : peers_) {
      if (peer.fd < 0) continue;
      ResetAtClose(peer.fd);
      close(peer.fd);
    }
    if (epoll_ >= 0) close(epoll_);
  }
  OpenLoop(const OpenLoop&) = delete;
  OpenLoop& operator=(const OpenLoop&) = delete;

  absl::Status Open(uint16_t port) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
    for (size_t i = 0; i < peers_.size(); ++i) {
      const absl::StatusOr<int> fd = ConnectToLoopback(port);
      if (!fd.ok()) return ClientError(i, fd.status());
      peers_[i].fd = *fd;
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, *fd, &event) != 0) {
        return ClientError(i, "epoll_ctl");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<OpenLoopRun> Run() {
    const int64_t begin = NowNs();
    const auto gap = 1e9 / options_.rate;
    const auto all = static_cast<uint64_t>(
        static_cast<double>(options_.duration.count()) / gap);
    const int64_t patience =
        std::chrono::nanoseconds(options_.stall_timeout).count();
    const auto due = [&](uint64_t number) {
      return begin + static_cast<int64_t>(static_cast<double>(number) * gap);
    };
    uint64_t sent = 0;
    int64_t last = begin;
    epoll_event events[kBatch];
    while (run_.messages < all) {
      int64_t now = NowNs();
      for (; sent < all && due(sent) <= now; ++sent) {
        if (absl::Status s = Send(sent, due(sent), now); !s.ok()) return s;
      }
      // Sleeps only when the next one is far: a timer of the kernel's is late
      // by some 50 us.
      const int64_t wait = sent < all ? due(sent) - now : patience;
      const int timeout =
          wait > 2'000'000
              ? static_cast<int>(std::min<int64_t>(wait / 1'000'000 - 1, 200))
              : 0;
      const int count = epoll_wait(epoll_, events, kBatch, timeout);
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (count < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "client, epoll_wait");
      }
      now = NowNs();
      if (count > 0) last = now;
      if (run_.messages < sent && now - last > patience) {
        return absl::DeadlineExceededError(absl::StrCat(
            "client: no reply for ", options_.stall_timeout.count(), " ms, ",
            sent - run_.messages, " outstanding"));
      }
      for (int i = 0; i < count; ++i) {
        if (absl::Status s = Receive(events[i].data.u64); !s.ok()) return s;
      }
    }
    run_.wall = std::chrono::nanoseconds(NowNs() - begin);
    return std::move(run_);
  }

 private:
  struct Outstanding {
    uint64_t number;
    int64_t due_ns;
    int64_t sent_ns;
  };
  struct Peer {
    int fd = -1;
    size_t received = 0;  // of the first outstanding one
    std::deque<Outstanding> outstanding;
  };

  std::string Message(uint64_t number) const {
    std::string message(options_.message_bytes, '\0');
    for (size_t i = 0; i < message.size(); ++i) {
      message[i] = static_cast<char>(number * 11 + i);
    }
    return message;
  }

  absl::Status Send(uint64_t number, int64_t due_ns, int64_t now) {
    const size_t index = number % peers_.size();
    const std::string message = Message(number);
    const ssize_t put =
        send(peers_[index].fd, message.data(), message.size(), MSG_NOSIGNAL);
    if (put != static_cast<ssize_t>(message.size())) {
      if (put >= 0 || errno == EAGAIN) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "client, connection ", index, ": the server is so far behind that ",
            peers_[index].outstanding.size(),
            " messages fill the socket: ask for a lower rate"));
      }
      return ClientError(index, "send");
    }
    peers_[index].outstanding.push_back({number, due_ns, now});
    return absl::OkStatus();
  }

  absl::Status Receive(size_t index) {
    Peer& peer = peers_[index];
    const ssize_t got = recv(peer.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
      return ClientError(index, "recv");
    }
    if (got == 0) {
      return absl::UnavailableError(
          absl::StrCat("client, connection ", index, ": the server closed it"));
    }
    const int64_t now = NowNs();
    const char* data = buffer_.data();
    for (auto left = static_cast<size_t>(got); left > 0;) {
      if (peer.outstanding.empty()) {
        return absl::DataLossError(absl::StrCat("client, connection ", index,
                                                ": ", left, " surplus bytes"));
      }
      const Outstanding& first = peer.outstanding.front();
      const std::string expected = Message(first.number);
      const size_t piece = std::min(left, expected.size() - peer.received);
      if (std::memcmp(data, expected.data() + peer.received, piece) != 0) {
        return absl::DataLossError(absl::StrCat("client, connection ", index,
                                                ", message ", first.number,
                                                ": came back changed"));
      }
      data += piece;
      left -= piece;
      peer.received += piece;
      if (peer.received < expected.size()) break;
      ++run_.messages;
      run_.from_due.Add(static_cast<uint64_t>(now - first.due_ns));
      run_.from_sent.Add(static_cast<uint64_t>(now - first.sent_ns));
      peer.received = 0;
      peer.outstanding.pop_front();
    }
    return absl::OkStatus();
  }

  const OpenLoopOptions options_;
  int epoll_ = -1;
  std::vector<Peer> peers_;
  std::vector<char> buffer_;
  OpenLoopRun run_;
};

}  // namespace

absl::StatusOr<OpenLoopRun> RunOpenLoop(uint16_t port,
                                        const OpenLoopOptions& options) {
  if (options.connections < 1 || options.message_bytes < 1 ||
      options.rate <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections: ", options.connections,
                     ", message bytes: ", options.message_bytes,
                     ", rate: ", options.rate, ": all must be above 0"));
  }
  OpenLoop loop(options);
  if (absl::Status s = loop.Open(port); !s.ok()) return s;
  return loop.Run();
}

}  // namespace sluice::bench
