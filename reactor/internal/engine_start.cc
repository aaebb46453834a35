// Run: the threads of the reactors start, serve and are waited for.
#include <event2/event.h>
#include <signal.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "reactor/internal/cpu_affinity.h"
#include "reactor/internal/engine_impl.h"
#include "reactor/internal/fd_table.h"

namespace sluice::internal {
namespace {

// Descriptors of a reactor's own table that connections never take: for what
// the handler or a library opens.
constexpr size_t kReservedFds = 16;
// A table grown to its limit costs 8 bytes a descriptor; a limit of a billion
// (containers) must not cost 8 GB.
constexpr size_t kMostFdsAhead = size_t{1} << 20;

}  // namespace

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

}  // namespace sluice::internal
