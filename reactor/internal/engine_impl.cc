#include "reactor/internal/engine_impl.h"

#include <event2/event.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "reactor/internal/check.h"
#include "reactor/internal/cpu_affinity.h"
#include "reactor/internal/errno_status.h"
#include "reactor/internal/fd_table.h"

namespace sluice::internal {
namespace {

// Descriptors of a reactor's own table that connections never take: for what
// the handler or a library opens.
constexpr size_t kReservedFds = 16;
// A table grown to its limit costs 8 bytes a descriptor; a limit of a billion
// (containers) must not cost 8 GB.
constexpr size_t kMostFdsAhead = size_t{1} << 20;
constexpr std::chrono::milliseconds kLongestDrain =
    std::chrono::hours(24 * 365);
constexpr int kMostReactors = 1024;
constexpr size_t kMostConnections = size_t{1} << 24;  // of one reactor

}  // namespace

EngineImpl::EngineImpl(EventHandler& handler, Options options)
    : handler_(handler),
      options_(std::move(options)),
      logger_(options_.log),
      owner_pid_(getpid()),
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

// --- Run.

absl::Status EngineImpl::Run() {
  Phase created = Phase::kCreated;
  if (!phase_.compare_exchange_strong(created, Phase::kRunning)) {
    return absl::FailedPreconditionError("Engine::Run was called before");
  }
  Action action = Action::kNone;
  const bool booted =
      main_->Guard("OnBoot", [&] { action = handler_.OnBoot(*this); });
  absl::Status status;
  if (!booted) {
    status = absl::AbortedError("an exception left OnBoot");
  } else if (action != Action::kShutdown && !stop_requested_.load()) {
    status = Serve();
  }
  // What was posted in vain still runs; after having served there is nothing.
  for (const auto& reactor : reactors_) reactor->EndWithoutServing();
  if (!merged()) main_->EndWithoutServing();
  for (Listener& listener : listeners_) CloseSockets(listener);
  phase_.store(Phase::kStopped);
  if (served_) {
    main_->Guard("OnShutdown", [&] { handler_.OnShutdown(*this); });
  }
  return status;
}

// The threads of the reactors wait here between having prepared themselves and
// serving. Shared with them: one that is slow to wake reads it after Serve has
// gone on.
struct EngineImpl::Start {
  explicit Start(size_t threads)
      : statuses(threads),
        open_fds(threads),
        prepared(static_cast<ptrdiff_t>(threads)) {}
  std::vector<absl::Status> statuses;
  std::vector<size_t> open_fds;
  std::latch prepared;
  bool serve = false;  // written before `go`
  std::latch go{1};
};

absl::Status EngineImpl::Serve() {
  ScopedAffinity affinity;  // with one reactor it is our thread that is pinned
  std::shared_ptr<Start> start;
  absl::Status status;
  if (!merged()) {
    start = StartReactors();
    for (const absl::Status& s : start->statuses) status.Update(s);
  }
  // After the others took their tables, so that theirs have no copies of it.
  if (status.ok()) status = main_->Prepare(merged() ? cpus_[0] : -1);
  if (status.ok()) {
    served_ = true;
    if (options_.handle_signals) HandleSignals();
    if (merged()) {
      OpenAcceptors(0);
      main_->StartTicking();
    }
    OpenMainAcceptors();
  }
  // Only now: what a reactor's first turn says ("ready") is true.
  if (start != nullptr) {
    start->serve = status.ok();
    start->go.count_down();
  }
  if (status.ok()) main_->RunLoop();

  for (event* signal_event : signal_events_) event_free(signal_event);
  signal_events_.clear();
  main_acceptors_.clear();
  if (merged()) own_acceptors_[0] = OwnAcceptors{};
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  main_->Teardown();
  return status;
}

std::shared_ptr<EngineImpl::Start> EngineImpl::StartReactors() {
  const bool own_tables = options_.fd_tables == FdTables::kPerReactor;
  if (!own_tables) GrowFdTable(std::min(fd_limit_, kMostFdsAhead));

  // libevent's handler writes to a descriptor number of the main table; a
  // signal must not reach a thread where that number is a connection's.
  // Those that a fault in the thread itself raises stay as they are.
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (int fault :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    sigdelset(&blocked, fault);
  }
  const bool block_signals = own_tables || options_.handle_signals;
  if (block_signals) pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const size_t count = reactors_.size();
  auto start = std::make_shared<Start>(count);
  for (size_t i = 0; i < count; ++i) {
    const auto run = [this, start, i] {
      start->statuses[i] = PrepareReactor(i);
      start->open_fds[i] = OpenFds();
      start->prepared.count_down();
      start->go.wait();
      if (start->serve) {
        reactors_[i]->StartTicking();
        reactors_[i]->RunLoop();
      }
      own_acceptors_[i] = OwnAcceptors{};
      reactors_[i]->Teardown();
      (void)main_->Post([this] { ReactorEnded(); });
    };
    try {
      threads_.emplace_back(run);
    } catch (const std::system_error& e) {
      start->statuses[i] = absl::ResourceExhaustedError(
          "thread " + std::to_string(i + 1) + " of " + std::to_string(count) +
          " could not be started: " + e.what());
      start->prepared.count_down(static_cast<ptrdiff_t>(count - i));
      break;
    }
  }
  if (block_signals) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  start->prepared.wait();
  if (own_tables) {
    const size_t used =
        *std::max_element(start->open_fds.begin(), start->open_fds.end()) +
        kReservedFds;
    if (fd_limit_ <= used) {
      start->statuses[0].Update(absl::ResourceExhaustedError(
          "RLIMIT_NOFILE is " + std::to_string(fd_limit_) +
          "; a reactor needs " + std::to_string(used) +
          " descriptors before its first connection"));
    } else {
      reactor_capacity_.store(fd_limit_ - used);
    }
    if (hand_off_ != nullptr) hand_off_->CloseReceivingEnds();
  }
  reactors_running_ = count;
  return start;
}

absl::Status EngineImpl::PrepareReactor(size_t i) {
  if (options_.fd_tables == FdTables::kPerReactor) {
    const std::vector<int> unwanted = FdsUnwantedBy(i);
    if (absl::Status s = UnshareFdTable(unwanted); !s.ok()) return s;
    Mailbox::NoteOwnTable();
  }
  absl::Status s = reactors_[i]->Prepare(cpus_[i]);
  if (!s.ok()) return s;
  if (hand_off_ != nullptr && hand_off_->has_channels()) {
    hand_off_->StartReceiving(i);
  }
  OpenAcceptors(i);
  return absl::OkStatus();
}

// What a reactor's table must not keep: a copy of a listening socket keeps the
// port open, a copy of a channel's sending end keeps it from ending.
std::vector<int> EngineImpl::FdsUnwantedBy(size_t reactor) const {
  std::vector<int> fds;
  for (const Listener& listener : listeners_) {
    for (size_t i = 0; i < listener.sockets.size(); ++i) {
      if (listener.per_reactor && i == reactor) continue;
      fds.push_back(listener.sockets[i].fd.get());
    }
  }
  if (hand_off_ != nullptr && hand_off_->has_channels()) {
    for (size_t i = 0; i < reactors_.size(); ++i) {
      fds.push_back(hand_off_->channel(i).send_fd());
      if (i != reactor) fds.push_back(hand_off_->channel(i).receive_fd());
    }
  }
  return fds;
}

// --- Accepting.

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

// --- The end.

void EngineImpl::Stop() {
  stop_requested_.store(true);
  accepting_.store(false);
  (void)main_->Post([this] { BeginStop(CloseReason::kShutdown); });
}

void EngineImpl::BeginStop(CloseReason reason) {
  if (phase_.load() == Phase::kStopping) return;
  phase_.store(Phase::kStopping);
  StopAccepting();
  Task stop_reactors = [this, reason] {
    for (const auto& reactor : reactors_) {
      if (merged()) {
        reactor->BeginStop(reason);
      } else {
        (void)reactor->Post(
            [r = reactor.get(), reason] { r->BeginStop(reason); });
      }
    }
  };
  if (hand_off_ != nullptr) {
    hand_off_->Finish(std::move(stop_reactors));
  } else {
    std::move(stop_reactors)();
  }
}

void EngineImpl::ReactorEnded() {
  if (--reactors_running_ == 0) main_->Quit();
}

void EngineImpl::Drain(std::chrono::milliseconds deadline) {
  accepting_.store(false);
  (void)main_->Post([this, deadline] { BeginDrain(deadline); });
}

void EngineImpl::BeginDrain(std::chrono::milliseconds deadline) {
  Phase running = Phase::kRunning;
  if (!phase_.compare_exchange_strong(running, Phase::kDraining)) return;
  StopAccepting();
  main_->Guard("OnDrain", [this] { handler_.OnDrain(*this); });
  main_->RunAfter(std::min(deadline, kLongestDrain),
                  [this] { BeginStop(CloseReason::kDrain); });
  CheckDrained();
}

void EngineImpl::CheckDrained() {
  if (phase_.load() == Phase::kDraining && total_.load() == 0) {
    BeginStop(CloseReason::kDrain);
  }
}

void EngineImpl::HandleSignals() {
  for (int number : {SIGINT, SIGTERM}) {
    event* e =
        evsignal_new(main_->embedded_base().base(), number, OnSignal, this);
    SLUICE_CHECK(e != nullptr && event_add(e, nullptr) == 0,
                 "libevent takes no signal");
    signal_events_.push_back(e);
    main_->embedded_base().CountAsOurs(1);
  }
}

void EngineImpl::OnSignal(int, short, void* self) {
  static_cast<EngineImpl*>(self)->Stop();
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
  total_.fetch_add(1);
  reactor.load().fetch_add(1, std::memory_order_relaxed);
  const absl::Status posted =
      reactor.Post([&reactor, address, dial_options = std::move(options),
                    dial_done = std::move(done)]() mutable {
        reactor.StartDial(address, dial_options, std::move(dial_done));
      });
  if (!posted.ok()) {
    ConnectionReleased(reactor.load());
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
