// The other floor: io_uring, one ring a thread, multishot accept, multishot
// receive into a ring of provided buffers, and each buffer sent back from where
// it lies. One send of a connection is under way at a time, so bytes keep their
// order. It always answers what one receive brought at once.
#include <liburing.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/lab/servers/serving.h"

namespace sluice::lab {
namespace {

constexpr unsigned kEntries = 4096;
constexpr unsigned kBuffers = 2048;  // a power of two
constexpr unsigned kBufferBytes = 4096;
constexpr int kGroup = 0;

[[noreturn]] void DieOf(const char* what, int result) {
  errno = -result;
  Die(what);
}

class Loop {
 public:
  explicit Loop(int listener) : listener_(listener) {
    io_uring_params params{};
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                   IORING_SETUP_CQSIZE;
    params.cq_entries = 4 * kEntries;
    if (int r = io_uring_queue_init_params(kEntries, &ring_, &params); r < 0) {
      DieOf("io_uring_queue_init_params", r);
    }
    void* memory = nullptr;
    if (posix_memalign(&memory, 4096, kBuffers * sizeof(io_uring_buf)) != 0) {
      Die("posix_memalign");
    }
    buffers_ = static_cast<io_uring_buf_ring*>(memory);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<uintptr_t>(memory);
    registration.ring_entries = kBuffers;
    registration.bgid = kGroup;
    if (int r = io_uring_register_buf_ring(&ring_, &registration, 0); r < 0) {
      DieOf("io_uring_register_buf_ring", r);
    }
    io_uring_buf_ring_init(buffers_);
    for (unsigned i = 0; i < kBuffers; ++i) GiveBack(i);
    Accept();
  }

  [[noreturn]] void Run() {
    for (;;) {
      const int r = io_uring_submit_and_wait(&ring_, 1);
      if (r < 0 && r != -EINTR) DieOf("io_uring_submit_and_wait", r);
      unsigned head = 0;
      unsigned seen = 0;
      io_uring_cqe* cqe = nullptr;
      io_uring_for_each_cqe(&ring_, head, cqe) {
        ++seen;
        Completed(*cqe);
      }
      io_uring_cq_advance(&ring_, seen);
    }
  }

 private:
  enum Operation : uint64_t { kAccept, kReceive, kSend };

  struct Piece {
    unsigned buffer;
    unsigned bytes;
  };
  struct Client {
    bool sending = false;
    bool ended = false;
    std::deque<Piece> waiting;  // behind the one that is being sent
  };

  // | operation: 8 | buffer: 24 | descriptor: 32 |
  static uint64_t Tag(Operation operation, int fd, unsigned buffer = 0) {
    return operation << 56 | uint64_t{buffer} << 32 | static_cast<uint32_t>(fd);
  }

  io_uring_sqe* Entry() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      io_uring_submit(&ring_);
      sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) DieOf("io_uring_get_sqe", -EBUSY);
    }
    return sqe;
  }

  void Accept() {
    io_uring_sqe* sqe = Entry();
    io_uring_prep_multishot_accept(sqe, listener_, nullptr, nullptr,
                                   SOCK_CLOEXEC);
    sqe->user_data = Tag(kAccept, listener_);
  }
  void Receive(int fd) {
    io_uring_sqe* sqe = Entry();
    io_uring_prep_recv_multishot(sqe, fd, nullptr, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = kGroup;
    sqe->user_data = Tag(kReceive, fd);
  }
  void Send(int fd, Piece piece) {
    io_uring_sqe* sqe = Entry();
    // MSG_WAITALL: the kernel itself goes on after a short send.
    io_uring_prep_send(sqe, fd, Data(piece.buffer), piece.bytes,
                       MSG_NOSIGNAL | MSG_WAITALL);
    sqe->user_data = Tag(kSend, fd, piece.buffer);
  }

  char* Data(unsigned buffer) {
    return memory_.get() + size_t{buffer} * kBufferBytes;
  }
  void GiveBack(unsigned buffer) {
    io_uring_buf_ring_add(buffers_, Data(buffer), kBufferBytes,
                          static_cast<unsigned short>(buffer),
                          io_uring_buf_ring_mask(kBuffers), 0);
    io_uring_buf_ring_advance(buffers_, 1);
    // Somebody may have gone without one.
    if (starved_.empty()) return;
    const int fd = starved_.back();
    starved_.pop_back();
    Receive(fd);
  }

  void Completed(const io_uring_cqe& cqe) {
    const int fd = static_cast<int>(cqe.user_data & 0xffffffff);
    switch (cqe.user_data >> 56) {
      case kAccept:
        if (cqe.res >= 0) {
          clients_[cqe.res] = std::make_unique<Client>();
          Receive(cqe.res);
        } else if (cqe.res != -ECONNABORTED) {
          DieOf("accept", cqe.res);
        }
        if (!(cqe.flags & IORING_CQE_F_MORE)) Accept();
        break;
      case kReceive:
        Received(fd, cqe);
        break;
      case kSend:
        Sent(fd, static_cast<unsigned>(cqe.user_data >> 32) & 0xffffff, cqe);
        break;
    }
  }

  void Received(int fd, const io_uring_cqe& cqe) {
    Client& client = *clients_.at(fd);
    if (cqe.res > 0) {
      const Piece piece{cqe.flags >> IORING_CQE_BUFFER_SHIFT,
                        static_cast<unsigned>(cqe.res)};
      if (client.sending) {
        client.waiting.push_back(piece);
      } else {
        client.sending = true;
        Send(fd, piece);
      }
      if (!(cqe.flags & IORING_CQE_F_MORE)) Receive(fd);
      return;
    }
    if (cqe.res == -ENOBUFS) {
      starved_.push_back(fd);
      return;
    }
    client.ended = true;
    EndIfDone(fd, client);
  }

  void Sent(int fd, unsigned buffer, const io_uring_cqe& cqe) {
    Client& client = *clients_.at(fd);
    GiveBack(buffer);
    client.sending = false;
    if (cqe.res < 0) {
      for (const Piece& piece : client.waiting) GiveBack(piece.buffer);
      client.waiting.clear();
    }
    if (!client.waiting.empty()) {
      client.sending = true;
      Send(fd, client.waiting.front());
      client.waiting.pop_front();
    }
    EndIfDone(fd, client);
  }

  void EndIfDone(int fd, const Client& client) {
    if (!client.ended || client.sending) return;
    clients_.erase(fd);
    close(fd);
  }

  const int listener_;
  io_uring ring_;
  io_uring_buf_ring* buffers_ = nullptr;
  const std::unique_ptr<char[]> memory_ =
      std::make_unique<char[]>(size_t{kBuffers} * kBufferBytes);
  std::vector<int> starved_;
  std::unordered_map<int, std::unique_ptr<Client>> clients_;
};

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  using namespace sluice::lab;
  const ServingOptions options = ParseServingOptions(argc, argv);
  StartServing();
  ServeOnThreads(options, [](int listener) { Loop(listener).Run(); });
}
