#include "reactor/internal/engine_impl.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/cpu_affinity.h"
#include "reactor/internal/fd_table.h"

namespace sluice::internal {
namespace {

constexpr int kMostReactors = 1024;
constexpr size_t kMostConnections = size_t{1} << 24;  // of one reactor

}  // namespace

EngineImpl::EngineImpl(EventHandler& handler, Options options)
    : handler_(handler),
      options_(std::move(options)),
      logger_(options_.log),
      owner_pid_(getpid()),
      places_(options_.max_connections),
      dial_balancer_(options_.load_balancing) {}

EngineImpl::~EngineImpl() {
  if (getpid() != owner_pid_) {
    // A child of fork(2) that leaves through exit(3). Everything here is shared
    // with the parent: its epoll sets, its sockets, the file of its Unix
    // socket. Touch nothing; the kernel drops our copies.
    struct Copies {
      std::vector<std::unique_ptr<ReactorImpl>> reactors;
      std::unique_ptr<ReactorImpl> main;
      std::unique_ptr<HandOff> hand_off;
      std::vector<std::unique_ptr<Acceptor>> main_acceptors;
      std::vector<OwnAcceptors> own_acceptors;
      std::vector<std::thread> threads;
      std::vector<Listener> listeners;
    };
    new Copies{std::move(reactors_),      std::move(main_owned_),
               std::move(hand_off_),      std::move(main_acceptors_),
               std::move(own_acceptors_), std::move(threads_),
               std::move(listeners_)};
    return;
  }
  const Phase phase = phase_.load();
  SLUICE_CHECK(phase == Phase::kCreated || phase == Phase::kStopped,
               "an engine was destroyed while it runs");
  for (Listener& listener : listeners_) CloseSockets(listener);
}

// --- Setup.

absl::Status EngineImpl::Init(std::vector<ListenerSpec> specs) {
  if (absl::Status s = ValidateOptions(options_); !s.ok()) return s;
  fd_limit_ = FdLimit(options_.raise_fd_limit);
  if (absl::Status s = CreateReactors(); !s.ok()) return s;
  if (specs.size() >= ReactorImpl::kDialed) {
    return absl::InvalidArgumentError(std::to_string(specs.size()) +
                                      " listeners; at most 65534");
  }
  if (options_.max_connections_per_source != 0) {
    sources_ =
        std::make_unique<SourceCounts>(options_.max_connections_per_source);
  }
  for (const ListenerSpec& spec : specs) {
    if (absl::Status s = Bind(spec); !s.ok()) return s;
  }
  const bool hands_off =
      !merged() &&
      std::any_of(listeners_.begin(), listeners_.end(),
                  [](const Listener& l) { return !l.per_reactor; });
  if (hands_off) {
    hand_off_ = std::make_unique<HandOff>(
        *this, options_.load_balancing,
        options_.fd_tables == FdTables::kPerReactor, reactors_.size());
    std::vector<ReactorImpl*> reactors;
    for (const auto& reactor : reactors_) reactors.push_back(reactor.get());
    hand_off_->Attach(main_, std::move(reactors));
    return hand_off_->CreateChannels();
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CreateReactors() {
  absl::StatusOr<std::vector<int>> allowed = AllowedCpus();
  if (!allowed.ok()) return allowed.status();
  const int count =
      options_.reactors > 0
          ? options_.reactors
          : std::min(static_cast<int>(allowed->size()), kMostReactors);
  absl::StatusOr<std::vector<int>> cpus =
      AssignCpus(options_.pinning, count, *allowed);
  if (!cpus.ok()) return cpus.status();
  cpus_ = *std::move(cpus);
  const size_t connections = std::min(fd_limit_, kMostConnections);
  for (int i = 0; i < count; ++i) {
    reactors_.push_back(std::make_unique<ReactorImpl>(*this, i, connections));
    if (!reactors_.back()->init_status().ok()) {
      return reactors_.back()->init_status();
    }
  }
  if (count == 1 && options_.fd_tables == FdTables::kShared) {
    main_ = reactors_[0].get();
  } else {
    main_owned_ = std::make_unique<ReactorImpl>(*this, -1, 0);
    main_ = main_owned_.get();
  }
  own_acceptors_.resize(reactors_.size());
  return main_->init_status();
}

absl::Status EngineImpl::Bind(const ListenerSpec& spec) {
  absl::StatusOr<Address> wanted = Address::Resolve(spec.address);
  if (!wanted.ok()) return wanted.status();
  Listener listener;
  listener.options = spec.options;
  const bool reuse_port =
      options_.accept_mode == AcceptMode::kReusePort && wanted->is_ip();
  listener.per_reactor = reuse_port || merged();
  const size_t sockets = reuse_port ? reactors_.size() : 1;
  for (size_t i = 0; i < sockets; ++i) {
    absl::StatusOr<BoundSocket> socket =
        Listen(*wanted, spec.options, reuse_port);
    if (!socket.ok()) return socket.status();
    // Port 0: the others share the port that the first one got.
    if (i == 0) {
      listener.address = socket->address;
      wanted->set_port(socket->address.port());
    }
    listener.sockets.push_back(*std::move(socket));
  }
  listener.gate =
      std::make_unique<Gate>(*this, static_cast<uint16_t>(listeners_.size()),
                             spec.options, listener.sockets.size());
  bound_.push_back(listener.address);
  listeners_.push_back(std::move(listener));
  return absl::OkStatus();
}

// On the main thread, for sockets that no reactor's acceptor uses in this
// table.
void EngineImpl::CloseSockets(Listener& listener) {
  for (BoundSocket& socket : listener.sockets) {
    if (!socket.fd) continue;
    RemoveSocketFile(socket);  // while the socket keeps its inode ours
    socket.fd.Reset();
  }
}

Reactor& EngineImpl::reactor(int index) {
  SLUICE_CHECK(index >= 0 && index < reactors(),
               "Engine::reactor: there is no reactor of this index");
  return *reactors_[static_cast<size_t>(index)];
}

// --- Dialing.

absl::Status EngineImpl::Dial(const Address& address, DialOptions options,
                              DialDone done) {
  if (absl::Status s = CheckDial(address, options.source); !s.ok()) return s;
  if (done == nullptr) {
    return absl::InvalidArgumentError("dial: DialDone is empty");
  }
  if (options.timeout.count() <= 0) {
    return absl::InvalidArgumentError("DialOptions::timeout is " +
                                      std::to_string(options.timeout.count()) +
                                      " ms; it must be positive");
  }
  const int count = reactors();
  if (options.reactor < -1 || options.reactor >= count) {
    return absl::InvalidArgumentError(
        "DialOptions::reactor is " + std::to_string(options.reactor) +
        "; this engine has " + std::to_string(count) + " reactors");
  }
  const Phase phase = phase_.load();
  if (phase != Phase::kRunning && phase != Phase::kDraining) {
    return absl::UnavailableError("dial: the engine does not run");
  }
  const size_t picked = options.reactor >= 0
                            ? static_cast<size_t>(options.reactor)
                            : PickForDial(address);
  ReactorImpl& reactor = *reactors_[picked];
  places_.Take();
  reactor.load().fetch_add(1, std::memory_order_relaxed);
  const absl::Status posted =
      reactor.Post([&reactor, address, dial_options = std::move(options),
                    dial_done = std::move(done)]() mutable {
        reactor.StartDial(address, dial_options, std::move(dial_done));
      });
  if (!posted.ok()) {
    ConnectionReleased(reactor.load(), ReactorImpl::kDialed, PeerName());
  }
  return posted;
}

size_t EngineImpl::LoadOf(int i) const {
  const size_t load = reactors_[static_cast<size_t>(i)]->connections();
  return load < reactor_capacity_.load() ? load : LoadBalancer::kFull;
}

size_t EngineImpl::PickForDial(const Address& address) {
  sockaddr_storage peer;
  address.ToSockaddr(&peer);
  MutexLock lock(dial_mutex_);
  const int picked =
      dial_balancer_.Pick(PeerName::FromSockaddr(peer), reactors(),
                          [this](int i) { return LoadOf(i); });
  // All full: the first one's dial will say so.
  return picked == LoadBalancer::kNone ? 0 : static_cast<size_t>(picked);
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  for (const auto& reactor : reactors_) reactor->AddTo(&stats);
  if (!merged()) main_->AddTo(&stats);
  return stats;
}

}  // namespace sluice::internal
