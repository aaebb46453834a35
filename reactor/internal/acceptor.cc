#include "reactor/internal/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "reactor/internal/gate.h"
#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {
namespace {

int OpenReserve() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

enum class Fault { kOneClient, kNoDescriptor, kNoMemory, kPermanent };

// accept(2): errors that are pending on the new socket are given here and are
// to be treated like EAGAIN.
Fault Classify(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case ECONNRESET:
    case EPROTO:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EPERM:  // a firewall rule
    case ETIMEDOUT:
      return Fault::kOneClient;
    case EMFILE:
    case ENFILE:
      return Fault::kNoDescriptor;
    case ENOBUFS:
    case ENOMEM:
      return Fault::kNoMemory;
    default:
      return Fault::kPermanent;
  }
}

}  // namespace

Acceptor::Acceptor(ReactorImpl& reactor, AcceptTarget& target, Gate& gate,
                   int fd, uint16_t listener, int batch)
    : reactor_(reactor),
      target_(target),
      gate_(gate),
      fd_(fd),
      listener_(listener),
      batch_(batch),
      reserve_(OpenReserve()) {}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Start() {
  source_ = reactor_.AddSource(fd_, EPOLLIN, this);
  stopped_ = false;
}

void Acceptor::Stop() {
  if (stopped_) return;
  stopped_ = true;
  reactor_.RemoveSource(source_, fd_);
  if (retry_.value != 0) reactor_.Cancel(retry_);
  retry_ = TimerId{};
}

void Acceptor::Rest(Lack lack) {
  lack_ = lack;
  reactor_.ModifySource(source_, fd_, 0);
}

void Acceptor::RestFor(Lack lack, std::chrono::nanoseconds time) {
  Rest(lack);
  retry_ = reactor_.RunAfter(time, [this] {
    retry_ = TimerId{};
    Resume();
  });
}

void Acceptor::Freed(Lack what) {
  if (lack_ == what) Resume();
}

void Acceptor::Resume() {
  if (stopped_) return;
  if (retry_.value != 0) reactor_.Cancel(retry_);
  retry_ = TimerId{};
  lack_ = Lack::kNothing;
  reactor_.ModifySource(source_, fd_, EPOLLIN);
}

void Acceptor::OnReady(uint32_t) {
  // An event of this batch may have been there before it came to rest.
  for (int i = 0; i < batch_ && !stopped_ && lack_ == Lack::kNothing; ++i) {
    if (!AcceptOne()) break;
  }
  target_.BatchDone();
}

bool Acceptor::MayAccept() {
  if (!target_.HasRoom()) {
    Rest(Lack::kPlace);
    return false;
  }
  switch (gate_.Ask()) {
    case Gate::Answer::kYes:
      return true;
    case Gate::Answer::kNoPlace:
      Rest(Lack::kPlace);
      return false;
    case Gate::Answer::kNoToken:
      RestFor(Lack::kToken, gate_.TokenWait());
      return false;
  }
  return false;
}

bool Acceptor::AcceptOne() {
  if (!MayAccept()) return false;
  sockaddr_storage from;
  socklen_t length = sizeof(from);
  from.ss_family = AF_UNSPEC;
  const int fd = ::accept4(fd_, reinterpret_cast<sockaddr*>(&from), &length,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    gate_.Cancel();
    if (error == EAGAIN) return false;
    return HandleError(error);
  }
  pause_ = kFirstPause;
  reactor_.counters().accepted.Add(1);
  if (!reserve_) reserve_.Reset(OpenReserve());
  AcceptedSocket socket;
  socket.fd = fd;
  socket.listener = listener_;
  socket.peer = PeerName::FromSockaddr(from);
  const Gate::Verdict verdict = gate_.Admit(socket.peer);
  if (verdict == Gate::Verdict::kIn) {
    target_.TakeSocket(socket);
    return true;
  }
  if (verdict == Gate::Verdict::kSourceFull) {
    reactor_.counters().rejected_per_source.Add(1);
  }
  reactor_.counters().rejected.Add(1);
  ::close(fd);
  return true;
}

bool Acceptor::HandleError(int error) {
  reactor_.counters().accept_errors.Add(1);
  const Fault fault = Classify(error);
  if (fault == Fault::kOneClient) return true;

  const std::string text = "accept on listener " + std::to_string(listener_) +
                           ": " + std::generic_category().message(error);
  if (fault == Fault::kPermanent) {
    reactor_.Log(LogLevel::kError, text + "; this listener ends");
    Stop();
    return false;
  }
  if (fault == Fault::kNoDescriptor) {
    reactor_.counters().accept_fd_limit.Add(1);
    ShedOne();
    target_.WantsDescriptor();
  }
  reactor_.Log(LogLevel::kWarning, text + "; next try in " +
                                       std::to_string(pause_.count()) + " ms");
  RestFor(Lack::kDescriptor, pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  return false;
}

void Acceptor::ShedOne() {
  if (!reserve_) return;
  reserve_.Reset();
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    ::close(fd);
    reactor_.counters().accept_shed.Add(1);
  }
  reserve_.Reset(OpenReserve());
}

}  // namespace sluice::internal
