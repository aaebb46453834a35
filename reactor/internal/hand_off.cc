#include "reactor/internal/hand_off.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "reactor/internal/engine_impl.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
namespace {

constexpr std::chrono::milliseconds kRetryDelay{1};

}  // namespace

// --- DirectTarget.

void DirectTarget::WantsDescriptor() { engine_.WantDescriptor(); }

void DirectTarget::TakeSocket(const AcceptedSocket& socket) {
  reactor_.load().fetch_add(1, std::memory_order_relaxed);
  reactor_.OpenAccepted(socket);
}

// --- HandOff.

// The receiving end in a reactor's own table: level-triggered, one message an
// event, so that a flood of new connections leaves room for the others.
class HandOff::Receiver final : public EventSource {
 public:
  Receiver(EngineImpl& engine, ReactorImpl& reactor, int fd)
      : engine_(engine), reactor_(reactor), fd_(fd) {
    reactor_.ArrivalsExpected();
    source_ = reactor_.AddSource(fd_, EPOLLIN, this);
  }

  void OnReady(uint32_t) override {
    size_t lost = 0;
    absl::StatusOr<bool> got = FdChannel::ReceiveFrom(
        fd_, &fds_, &records_, sizeof(AcceptedSocket), &lost);
    if (lost > 0) {
      reactor_.Log(LogLevel::kError,
                   std::to_string(lost) +
                       " connections were lost: the descriptor table of "
                       "reactor " +
                       std::to_string(reactor_.index()) + " is full");
      reactor_.counters().rejected.Add(lost);
      for (size_t i = 0; i < lost; ++i) {
        const AcceptedSocket socket = Record(fds_.size() + i);
        engine_.ConnectionReleased(reactor_.load(), socket.listener,
                                   socket.peer);
      }
    }
    if (!got.ok()) {
      if (!absl::IsNotFound(got.status())) {
        reactor_.Log(LogLevel::kError, got.status().ToString());
      }
      reactor_.RemoveSource(source_, fd_);
      ::close(fd_);
      reactor_.ArrivalsEnded();
      return;
    }
    if (!*got) return;
    for (size_t i = 0; i < fds_.size(); ++i) {
      AcceptedSocket socket = Record(i);
      socket.fd = fds_[i].Release();
      reactor_.OpenAccepted(socket);
    }
    fds_.clear();
  }

 private:
  AcceptedSocket Record(size_t i) const {
    AcceptedSocket socket;
    std::memcpy(&socket, records_.data() + i * sizeof(socket), sizeof(socket));
    return socket;
  }

  EngineImpl& engine_;
  ReactorImpl& reactor_;
  const int fd_;  // of the reactor's own table
  uint32_t source_ = 0;
  std::vector<UniqueFd> fds_;
  std::vector<char> records_;
};

HandOff::HandOff(EngineImpl& engine, LoadBalancing policy, bool channels,
                 size_t reactors)
    : engine_(engine),
      balancer_(policy),
      channels_wanted_(channels),
      receivers_(reactors),
      shares_(reactors) {}

HandOff::~HandOff() {
  for (const std::vector<AcceptedSocket>& share : shares_) {
    for (const AcceptedSocket& socket : share) ::close(socket.fd);
  }
}

absl::Status HandOff::CreateChannels() {
  if (!channels_wanted_) return absl::OkStatus();
  for (size_t i = 0; i < shares_.size(); ++i) {
    absl::StatusOr<FdChannel> channel = FdChannel::Create();
    if (!channel.ok()) return channel.status();
    channels_.push_back(*std::move(channel));
  }
  return absl::OkStatus();
}

void HandOff::Attach(ReactorImpl* main, std::vector<ReactorImpl*> reactors) {
  main_ = main;
  reactors_ = std::move(reactors);
}

void HandOff::StartReceiving(size_t i) {
  receivers_[i] = std::make_unique<Receiver>(engine_, *reactors_[i],
                                             channels_[i].receive_fd());
}

void HandOff::CloseReceivingEnds() {
  for (FdChannel& channel : channels_) channel.CloseReceive();
}

bool HandOff::AnyRoom() const {
  for (size_t i = 0; i < reactors_.size(); ++i) {
    if (engine_.LoadOf(static_cast<int>(i)) != LoadBalancer::kFull) return true;
  }
  return false;
}

bool HandOff::HasRoom() {
  if (blocked_) return false;
  if (AnyRoom()) return true;
  engine_.places().Want();
  return AnyRoom();
}

void HandOff::WantsDescriptor() { engine_.WantDescriptor(); }

void HandOff::TakeSocket(const AcceptedSocket& socket) {
  int i = balancer_.Pick(socket.peer, static_cast<int>(reactors_.size()),
                         [this](int r) { return engine_.LoadOf(r); });
  // Room was there in HasRoom; a dial may have taken it since. The reactor's
  // reserve covers that.
  if (i == LoadBalancer::kNone) i = 0;
  const size_t picked = static_cast<size_t>(i);
  reactors_[picked]->load().fetch_add(1, std::memory_order_relaxed);
  shares_[picked].push_back(socket);
}

void HandOff::BatchDone() {
  bool delivered = true;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (!shares_[i].empty() && !Deliver(i)) delivered = false;
  }
  if (delivered) {
    if (std::exchange(blocked_, false)) {
      engine_.ResumeAccepting(Lack::kPlace);
    }
    if (finish_ != nullptr) {
      for (FdChannel& channel : channels_) channel.CloseSend();
      std::exchange(finish_, nullptr)();
    }
  } else {
    blocked_ = true;
    if (!retry_set_) Retry();
  }
}

void HandOff::Retry() {
  retry_set_ = true;
  main_->RunAfter(kRetryDelay, [this] {
    retry_set_ = false;
    BatchDone();
  });
}

bool HandOff::Deliver(size_t i) {
  std::vector<AcceptedSocket>& share = shares_[i];
  if (!channels_wanted_) {
    if (!reactors_[i]->mailbox()->PostSockets(share)) DropShare(i);
    share.clear();
    return true;
  }
  while (!share.empty()) {
    const size_t n = std::min(share.size(), FdChannel::kMaxBatch);
    std::vector<int> fds(n);
    for (size_t k = 0; k < n; ++k) fds[k] = std::exchange(share[k].fd, -1);
    const absl::Status sent =
        channels_[i].Send(fds, share.data(), sizeof(AcceptedSocket));
    if (absl::IsUnavailable(sent)) {
      for (size_t k = 0; k < n; ++k) share[k].fd = fds[k];
      return false;
    }
    if (!sent.ok()) {
      for (size_t k = 0; k < n; ++k) share[k].fd = fds[k];
      main_->Log(LogLevel::kError,
                 "handing connections over: " + sent.ToString());
      DropShare(i);
      return true;
    }
    for (int fd : fds) ::close(fd);
    share.erase(share.begin(), share.begin() + static_cast<ptrdiff_t>(n));
  }
  return true;
}

// The reactor cannot have them: their peers see a close.
void HandOff::DropShare(size_t i) {
  for (const AcceptedSocket& socket : shares_[i]) {
    ::close(socket.fd);
    main_->counters().rejected.Add(1);
    engine_.ConnectionReleased(reactors_[i]->load(), socket.listener,
                               socket.peer);
  }
  shares_[i].clear();
}

void HandOff::Finish(Task done) {
  finish_ = std::move(done);
  if (!blocked_) BatchDone();
}

}  // namespace sluice::internal
