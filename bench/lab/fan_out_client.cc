#include "bench/lab/fan_out_client.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/loopback.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;
constexpr int kPollMs = 200;

}  // namespace

FanOutClient::FanOutClient(const FanOutOptions& options)
    : options_(options),
      received_(static_cast<size_t>(options.connections)),
      message_(options.message_bytes),
      buffer_(options.message_bytes + 1) {}

FanOutClient::~FanOutClient() {
  for (const int fd : fds_) {
    ResetAtClose(fd);
    close(fd);
  }
  if (epoll_ >= 0) close(epoll_);
}

absl::StatusOr<std::unique_ptr<FanOutClient>> FanOutClient::Connect(
    uint16_t port, const FanOutOptions& options) {
  if (options.connections < 1 || options.message_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connections: ", options.connections,
        ", message bytes: ", options.message_bytes, ": both must be >= 1"));
  }
  std::unique_ptr<FanOutClient> client(new FanOutClient(options));
  if (absl::Status s = client->Open(port); !s.ok()) return s;
  return client;
}

absl::Status FanOutClient::Open(uint16_t port) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (size_t i = 0; i < received_.size(); ++i) {
    const absl::StatusOr<int> fd = ConnectToLoopback(port);
    if (!fd.ok()) return ClientError(i, fd.status());
    fds_.push_back(*fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, *fd, &event) != 0) {
      return ClientError(i, "epoll_ctl");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FanOutRun> FanOutClient::Run(int messages) {
  FanOutRun run;
  const int64_t patience =
      std::chrono::nanoseconds(options_.stall_timeout).count();
  epoll_event events[kBatch];
  for (int i = 0; i < messages; ++i) {
    ++sent_;
    for (size_t k = 0; k < message_.size(); ++k) {
      message_[k] = static_cast<char>(sent_ * 13 + k);
    }
    std::fill(received_.begin(), received_.end(), 0);
    const size_t speaker = sent_ % fds_.size();
    const int64_t begin = NowNs();
    if (send(fds_[speaker], message_.data(), message_.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message_.size())) {
      return ClientError(speaker, "send");
    }
    int64_t last = begin;
    for (size_t missing = fds_.size(); missing > 0;) {
      const int count = epoll_wait(epoll_, events, kBatch, kPollMs);
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (count < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "client, epoll_wait");
      }
      if (count <= 0 && NowNs() - last > patience) {
        return absl::DeadlineExceededError(absl::StrCat(
            "client: nothing for ", options_.stall_timeout.count(), " ms; ",
            missing, " of ", fds_.size(), " wait for message ", sent_));
      }
      for (int e = 0; e < count; ++e) {
        bool complete = false;
        if (absl::Status s = Receive(events[e].data.u64, &complete); !s.ok()) {
          return s;
        }
        if (complete) --missing;
      }
      if (count > 0) last = NowNs();
    }
    run.received += fds_.size();
    run.spread.Add(static_cast<uint64_t>(last - begin));
  }
  return run;
}

absl::Status FanOutClient::Receive(size_t index, bool* complete) {
  const ssize_t got = recv(fds_[index], buffer_.data(), buffer_.size(), 0);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return ClientError(index, "recv");
  }
  const auto bytes = static_cast<size_t>(got);
  size_t& received = received_[index];
  if (bytes == 0 || received + bytes > message_.size() ||
      std::memcmp(buffer_.data(), message_.data() + received, bytes) != 0) {
    return absl::DataLossError(absl::StrCat(
        "client, connection ", index, ", message ", sent_, ": after ", received,
        " bytes came ", bytes, " that are not the next ones"));
  }
  received += bytes;
  *complete = received == message_.size();
  return absl::OkStatus();
}

}  // namespace sluice::bench
