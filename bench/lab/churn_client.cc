#include "bench/lab/churn_client.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/loopback.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

constexpr int kBatch = 256;
constexpr int kPollMs = 200;
constexpr uint64_t kSources = 32;
constexpr uint32_t kFirstSource = 0x7f010001;  // 127.1.0.1

class Churn {
 public:
  Churn(uint16_t port, const ChurnOptions& options)
      : port_(port),
        options_(options),
        lives_(static_cast<size_t>(options.concurrency)),
        buffer_(options.message_bytes + 1) {}
  ~Churn() {
    for (Life& life : lives_) End(life);
    if (epoll_ >= 0) close(epoll_);
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  absl::StatusOr<ChurnRun> Run() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
    const int64_t begin = NowNs();
    for (Life& life : lives_) {
      if (absl::Status s = Begin(life); !s.ok()) return s;
    }
    const int64_t patience =
        std::chrono::nanoseconds(options_.stall_timeout).count();
    int64_t last = begin;
    epoll_event events[kBatch];
    while (run_.lives < options_.lives) {
      const int count = epoll_wait(epoll_, events, kBatch, kPollMs);
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (count < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "client, epoll_wait");
      }
      if (count <= 0 && NowNs() - last > patience) {
        return absl::DeadlineExceededError(
            absl::StrCat("client: nothing for ", options_.stall_timeout.count(),
                         " ms after ", run_.lives, " connections"));
      }
      for (int i = 0; i < count; ++i) {
        last = NowNs();
        Life& life = *static_cast<Life*>(events[i].data.ptr);
        if (absl::Status s = Step(life); !s.ok()) return s;
      }
    }
    run_.wall = std::chrono::nanoseconds(NowNs() - begin);
    return std::move(run_);
  }

 private:
  struct Life {
    int fd = -1;
    bool sent = false;
    uint64_t number = 0;
    size_t received = 0;
    int64_t began_ns = 0;
  };

  absl::Status Begin(Life& life) {
    if (begun_ == options_.lives) return absl::OkStatus();
    life = Life();
    life.number = begun_++;
    life.began_ns = NowNs();
    LoopbackClientOptions options;
    options.source =
        kFirstSource + static_cast<uint32_t>(life.number % kSources);
    options.mode = LoopbackClientOptions::Mode::kNonBlocking;
    const absl::StatusOr<int> fd = ConnectToLoopback(port_, options);
    if (!fd.ok()) return ClientError(life.number, fd.status());
    life.fd = *fd;
    ResetAtClose(life.fd);
    epoll_event event{};
    event.events = options_.message_bytes == 0 ? EPOLLIN : EPOLLOUT;
    event.data.ptr = &life;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, life.fd, &event) != 0) {
      return ClientError(life.number, "epoll_ctl");
    }
    return absl::OkStatus();
  }

  // It is connected, or its echo arrives.
  absl::Status Step(Life& life) {
    if (life.fd < 0) return absl::OkStatus();
    if (options_.message_bytes == 0) return ExpectEnd(life);
    if (!life.sent) return Send(life);
    const ssize_t got = recv(life.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
      return ClientError(life.number, "recv");
    }
    const std::string expected = Message(life);
    const auto bytes = static_cast<size_t>(got);
    if (bytes == 0 || life.received + bytes > expected.size() ||
        std::memcmp(buffer_.data(), expected.data() + life.received, bytes) !=
            0) {
      return absl::DataLossError(absl::StrCat(
          "client, connection ", life.number, ": after ", life.received,
          " bytes of its echo came ", bytes, " that are not the next ones"));
    }
    life.received += bytes;
    if (life.received < expected.size()) return absl::OkStatus();
    return Next(life);
  }

  absl::Status ExpectEnd(Life& life) {
    const ssize_t got = recv(life.fd, buffer_.data(), buffer_.size(), 0);
    if (got == 0) return Next(life);
    if (got > 0) {
      return absl::DataLossError(absl::StrCat(
          "client, connection ", life.number, ": bytes instead of an end"));
    }
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return ClientError(life.number, "connect or recv");
  }

  // This life is over.
  absl::Status Next(Life& life) {
    run_.life.Add(static_cast<uint64_t>(NowNs() - life.began_ns));
    ++run_.lives;
    End(life);
    return Begin(life);
  }

  absl::Status Send(Life& life) {
    const std::string message = Message(life);
    const ssize_t put =
        send(life.fd, message.data(), message.size(), MSG_NOSIGNAL);
    if (put != static_cast<ssize_t>(message.size())) {
      return ClientError(life.number, "connect or send");
    }
    life.sent = true;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &life;
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, life.fd, &event) != 0) {
      return ClientError(life.number, "epoll_ctl");
    }
    return absl::OkStatus();
  }

  // Each connection's own.
  std::string Message(const Life& life) const {
    std::string message(options_.message_bytes, '\0');
    for (size_t i = 0; i < message.size(); ++i) {
      message[i] = static_cast<char>(life.number * 7 + i);
    }
    return message;
  }

  static void End(Life& life) {
    if (life.fd >= 0) close(life.fd);
    life.fd = -1;
  }

  const uint16_t port_;
  const ChurnOptions options_;
  int epoll_ = -1;
  uint64_t begun_ = 0;
  std::vector<Life> lives_;
  std::vector<char> buffer_;
  ChurnRun run_;
};

}  // namespace

absl::StatusOr<ChurnRun> RunChurn(uint16_t port, const ChurnOptions& options) {
  if (options.concurrency < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("concurrency: ", options.concurrency, ", must be >= 1"));
  }
  return Churn(port, options).Run();
}

}  // namespace sluice::bench
