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
        *reactors_[i], *own.target, *listeners_[k].gate,
        listeners_[k].sockets[i].fd.get(), static_cast<uint16_t>(k),
        options_.accept_batch));
    own.acceptors.back()->Start();
  }
}

void EngineImpl::OpenMainAcceptors() {
  for (size_t k = 0; k < listeners_.size(); ++k) {
    if (listeners_[k].per_reactor) continue;
    main_acceptors_.push_back(std::make_unique<Acceptor>(
        *main_, *hand_off_, *listeners_[k].gate,
        listeners_[k].sockets[0].fd.get(), static_cast<uint16_t>(k),
        options_.accept_batch));
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

void EngineImpl::CancelPlace() {
  CheckDrainedAfter(places_.GiveBack());
  WakeForPlace();
}

void EngineImpl::ConnectionReleased(std::atomic<uint32_t>& load,
                                    uint16_t listener, const PeerName& peer) {
  Gate* const gate = listener == ReactorImpl::kDialed
                         ? nullptr
                         : listeners_[listener].gate.get();
  // Whoever sees a connection less in the statistics may count on its places;
  // whoever is woken for a place may count on its reactor having room.
  if (gate != nullptr) gate->GiveBack(peer);
  const size_t left = places_.GiveBack();
  load.fetch_sub(1);
  if (gate != nullptr) gate->Wake();
  WakeForPlace();
  if (descriptor_wanted_.load() && descriptor_wanted_.exchange(false)) {
    ResumeAccepting(Lack::kDescriptor);
  }
  CheckDrainedAfter(left);
}

void EngineImpl::WakeForPlace() {
  if (places_.TakeWanted()) ResumeAccepting(Lack::kPlace);
}

void EngineImpl::ResumeAccepting(Lack lack, int listener) {
  const auto resume = [lack, listener](const auto& acceptors) {
    for (const auto& acceptor : acceptors) {
      if (listener == -1 || acceptor->listener() == listener) {
        acceptor->Freed(lack);
      }
    }
  };
  (void)main_->Post([this, resume] {
    resume(main_acceptors_);
    for (size_t i = 0; i < reactors_.size(); ++i) {
      (void)reactors_[i]->Post(
          [this, resume, i] { resume(own_acceptors_[i].acceptors); });
    }
  });
}

}  // namespace sluice::internal
