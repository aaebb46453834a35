#include "bench/broadcast_clients.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/clock.h"
#include "bench/loopback.h"
#include "bench/process.h"

namespace sluice::bench {
namespace {

// connect(2) gets slow when half the ports of one source address are taken.
constexpr uint32_t kConnectionsPerSource = 5'000;
constexpr int kStuckBuffer = 4096;
constexpr useconds_t kProbeEveryUs = 200;

char ByteOf(uint32_t number, size_t at) {
  return static_cast<char>((number * 2654435761u + at * 40503u) >> 16);
}

[[noreturn]] void Die(BroadcastCounts& counts, const std::string& why) {
  std::snprintf(counts.error, sizeof counts.error, "%s", why.c_str());
  counts.failed = true;
  _exit(2);
}

int Connect(BroadcastCounts& counts, uint16_t port, uint32_t index,
            BroadcastRole role) {
  LoopbackClientOptions options;
  options.source = INADDR_LOOPBACK + 1 + index / kConnectionsPerSource;
  options.mode = LoopbackClientOptions::Mode::kBlocking;
  const absl::StatusOr<int> fd = ConnectToLoopback(port, options);
  if (!fd.ok()) {
    Die(counts, std::string(ClientError(index, fd.status()).message()));
  }
  if (role == BroadcastRole::kStuck) {
    setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &kStuckBuffer, sizeof kStuckBuffer);
  }
  const char first = static_cast<char>(role);
  if (write(*fd, &first, 1) != 1) {
    Die(counts, std::string(ClientError(index, "write").message()));
  }
  return *fd;
}

// What one reader has got.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  // Reads once; the number of messages, all checked.
  uint64_t Read(BroadcastCounts& counts, std::vector<char>& buffer) {
    const ssize_t n = recv(fd_, buffer.data() + rest_.size(),
                           buffer.size() - rest_.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
      Die(counts, absl::StrCat("a reader's connection ended: ",
                               n == 0 ? "FIN" : std::strerror(errno)));
    }
    std::memcpy(buffer.data(), rest_.data(), rest_.size());
    std::string_view bytes(buffer.data(),
                           rest_.size() + static_cast<size_t>(n));
    uint64_t messages = 0;
    while (Message(counts, &bytes)) ++messages;
    rest_.assign(bytes);
    counts.bytes.fetch_add(static_cast<uint64_t>(n));
    return messages;
  }

 private:
  bool Message(BroadcastCounts& counts, std::string_view* bytes) {
    uint32_t head[2];
    if (bytes->size() < sizeof head) return false;
    std::memcpy(head, bytes->data(), sizeof head);
    const auto [size, number] = head;
    if (size < kSmallestMessage || number != next_) {
      Die(counts, absl::StrCat("message ", number, " of ", size,
                               " bytes where ", next_, " was due"));
    }
    if (bytes->size() < size) return false;
    for (size_t i = sizeof head; i < size; ++i) {
      if ((*bytes)[i] != ByteOf(number, i)) {
        Die(counts, absl::StrCat("byte ", i, " of message ", number, " is ",
                                 static_cast<int>((*bytes)[i])));
      }
    }
    bytes->remove_prefix(size);
    ++next_;
    return true;
  }

  int fd_;
  uint32_t next_ = 0;
  std::string rest_;  // the beginning of a message
};

[[noreturn]] void RunReaders(BroadcastCounts& counts, uint16_t port,
                             int readers, int stuck, int ready) {
  std::vector<Reader> all;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < readers; ++i) {
    const int fd =
        Connect(counts, port, static_cast<uint32_t>(i), BroadcastRole::kReader);
    all.emplace_back(fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(i);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
      Die(counts, absl::StrCat("epoll_ctl: ", std::strerror(errno)));
    }
  }
  for (int i = 0; i < stuck; ++i) {
    Connect(counts, port, static_cast<uint32_t>(readers + i),
            BroadcastRole::kStuck);
  }
  if (write(ready, "r", 1) != 1) _exit(2);
  close(ready);
  std::vector<char> buffer(size_t{256} << 10);
  std::vector<epoll_event> events(1024);
  for (;;) {
    const int count =
        epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      counts.messages.fetch_add(
          all[events[static_cast<size_t>(i)].data.u32].Read(counts, buffer));
    }
  }
}

[[noreturn]] void RunEcho(BroadcastCounts& counts, uint16_t port,
                          uint32_t source_index, int ready) {
  const int fd = Connect(counts, port, source_index, BroadcastRole::kEcho);
  char byte = 'e';
  const auto echo = [&] {
    if (read(fd, &byte, 1) != 1) Die(counts, "the echo: the connection ended");
  };
  echo();
  if (write(ready, "e", 1) != 1) _exit(2);
  close(ready);
  for (;; usleep(kProbeEveryUs)) {
    // Otherwise it would be one more load while CPU time is measured.
    if (!counts.probing.load()) continue;
    const int64_t begin = NowNs();
    if (write(fd, &byte, 1) != 1) Die(counts, "the echo: write");
    echo();
    const size_t at = counts.samples.fetch_add(1);
    if (at < BroadcastCounts::kMostSamples) {
      counts.echo_us[at] = static_cast<uint32_t>((NowNs() - begin) / 1000);
    }
  }
}

}  // namespace

std::string NumberedMessage(uint32_t number, size_t size) {
  std::string message(size, '\0');
  const uint32_t head[2] = {static_cast<uint32_t>(size), number};
  std::memcpy(message.data(), head, sizeof head);
  for (size_t i = sizeof head; i < size; ++i) message[i] = ByteOf(number, i);
  return message;
}

absl::StatusOr<std::unique_ptr<BroadcastClients>> BroadcastClients::Start(
    uint16_t port, int readers, int stuck, int cpu) {
  std::unique_ptr<BroadcastClients> clients(new BroadcastClients);
  void* shared = mmap(nullptr, sizeof(BroadcastCounts), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  BroadcastCounts* const counts = new (shared) BroadcastCounts;
  clients->counts_ = counts;
  int ready[2];
  if (pipe(ready) != 0) return absl::ErrnoToStatus(errno, "pipe");
  for (size_t i = 0; i < clients->children_.size(); ++i) {
    const pid_t pid = fork();
    if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (absl::Status s = PinProcess(cpu); !s.ok()) {
        Die(*counts, std::string(s.message()));
      }
      close(ready[0]);
      if (i == 0) RunReaders(*counts, port, readers, stuck, ready[1]);
      RunEcho(*counts, port, static_cast<uint32_t>(readers + stuck), ready[1]);
    }
    clients->children_[i] = pid;
  }
  close(ready[1]);
  char said;
  for (size_t i = 0; i < clients->children_.size(); ++i) {
    if (read(ready[0], &said, 1) != 1) {
      close(ready[0]);
      const absl::Status s = clients->status();
      return s.ok() ? absl::UnavailableError("the clients ended") : s;
    }
  }
  close(ready[0]);
  return clients;
}

BroadcastClients::~BroadcastClients() {
  for (const pid_t pid : children_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  if (counts_ != nullptr) munmap(counts_, sizeof(BroadcastCounts));
}

absl::Status BroadcastClients::status() const {
  if (!counts_->failed.load()) return absl::OkStatus();
  return absl::DataLossError(std::string(counts_->error));
}

}  // namespace sluice::bench
