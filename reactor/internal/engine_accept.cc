// Listeners open and close, and connections come to be counted.
#include <unistd.h>

#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/engine_impl.h"

namespace sluice::internal {

void EngineImpl::OpenAcceptors(size_t i) {
  OwnAcceptors& own = own_acceptors_[i];
  own.target = std::make_unique<DirectTarget>(*this, *reactors_[i]);
  for (size_t k = 0; k < listeners_.size(); ++k) {
    if (!listeners_[k].per_reactor) continue;
    own.acceptors.push_back(std::make_unique<Acceptor>(
        *reactors_[i], *own.target, listeners_[k].sockets[i].fd.get(),
        static_cast<uint16_t>(k), options_.accept_batch));
    own.acceptors.back()->Start();
  }
}

void EngineImpl::OpenMainAcceptors() {
  for (size_t k = 0; k < listeners_.size(); ++k) {
    if (listeners_[k].per_reactor) continue;
    main_acceptors_.push_back(std::make_unique<Acceptor>(
        *main_, *hand_off_, listeners_[k].sockets[0].fd.get(),
        static_cast<uint16_t>(k), options_.accept_batch));
    main_acceptors_.back()->Start();
  }
}

// On reactor i's thread.
void EngineImpl::StopOwnAcceptor(size_t i, size_t k) {
  for (const auto& acceptor : own_acceptors_[i].acceptors) {
    if (acceptor->listener() == k) acceptor->Stop();
  }
}

// On the main loop.
void EngineImpl::StopListener(size_t k) {
  Listener& listener = listeners_[k];
  if (std::exchange(listener.stopped, true)) return;
  for (const auto& acceptor : main_acceptors_) {
    if (acceptor->listener() == k) acceptor->Stop();
  }
  if (merged()) StopOwnAcceptor(0, k);
  if (!listener.per_reactor || merged()) {
    CloseSockets(listener);
    return;
  }
  const bool own_tables = options_.fd_tables == FdTables::kPerReactor;
  for (size_t i = 0; i < reactors_.size(); ++i) {
    // Closed by the thread that accepts on it, behind its last accept: the
    // socket itself, or its table's copy, which has the same number.
    UniqueFd& socket = listener.sockets[i].fd;
    const int fd = own_tables ? socket.get() : socket.Release();
    const absl::Status posted = reactors_[i]->Post([this, i, k, fd] {
      StopOwnAcceptor(i, k);
      ::close(fd);
    });
    if (!posted.ok() && !own_tables) ::close(fd);
    socket.Reset();
  }
}

// On the main loop: no connection is accepted from here on.
void EngineImpl::StopAccepting() {
  accepting_.store(false);
  for (size_t k = 0; k < listeners_.size(); ++k) StopListener(k);
}

void EngineImpl::CloseListener(int index) {
  SLUICE_CHECK(index >= 0 && static_cast<size_t>(index) < listeners_.size(),
               "Engine::CloseListener: there is no listener of this index");
  (void)main_->Post(
      [this, index] { StopListener(static_cast<size_t>(index)); });
}

AcceptTarget::Admission EngineImpl::Admit() {
  if (!accepting_.load()) return AcceptTarget::Admission::kWait;
  // Whoever is to be rejected is taken off the queue first. A place reserved
  // for a connection that is not there after all would, for that moment, be
  // missing to another reactor, which would reject one there is room for.
  if (options_.when_full == WhenFull::kReject) {
    return AcceptTarget::Admission::kTry;
  }
  while (!Reserve()) {
    WantPlace();
    // One may have ended before it could know that we wait.
    if (total_.load() >= options_.max_connections) {
      return AcceptTarget::Admission::kWait;
    }
  }
  return AcceptTarget::Admission::kTake;
}

bool EngineImpl::Reserve() {
  const size_t most = options_.max_connections;
  size_t total = total_.load();
  while (most == 0 || total < most) {
    if (total_.compare_exchange_weak(total, total + 1)) return true;
  }
  return false;
}

void EngineImpl::PlaceFreed() {
  if (place_wanted_.load() && place_wanted_.exchange(false)) {
    (void)main_->Post([this] { ResumeAccepting(&Acceptor::PlaceFreed); });
  }
}

void EngineImpl::CancelAdmission() {
  total_.fetch_sub(1);
  PlaceFreed();
}

void EngineImpl::ConnectionReleased(std::atomic<uint32_t>& load) {
  // Whoever sees a connection less in the statistics may count on its place;
  // whoever is woken for the place may count on its reactor having room.
  const size_t left = total_.fetch_sub(1) - 1;
  load.fetch_sub(1);
  PlaceFreed();
  if (descriptor_wanted_.load() && descriptor_wanted_.exchange(false)) {
    (void)main_->Post([this] { ResumeAccepting(&Acceptor::DescriptorFreed); });
  }
  if (left == 0 && phase_.load() == Phase::kDraining) {
    (void)main_->Post([this] { CheckDrained(); });
  }
}

void EngineImpl::ResumeAccepting(void (Acceptor::*freed)()) {
  for (const auto& acceptor : main_acceptors_) (acceptor.get()->*freed)();
  for (size_t i = 0; i < reactors_.size(); ++i) {
    (void)reactors_[i]->Post([this, i, freed] {
      for (const auto& acceptor : own_acceptors_[i].acceptors) {
        (acceptor.get()->*freed)();
      }
    });
  }
}

}  // namespace sluice::internal
