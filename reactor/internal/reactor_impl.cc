#include "reactor/internal/reactor_impl.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "reactor/internal/broadcast_shard.h"
#include "reactor/internal/check.h"
#include "reactor/internal/clock.h"
#include "reactor/internal/cpu_affinity.h"
#include "reactor/internal/engine_impl.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {
namespace {

// Of the wheel. Half of 2^32 of them, 2.2 years, is the furthest deadline.
constexpr int64_t kTickNanos = 32'000'000;
constexpr uint32_t kMaxTicks = 985'500'000;  // a year
constexpr std::chrono::seconds kTrimDelay{1};

// Sources 0, 1 and 2 are our own.
constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kBaseKey = 1;
constexpr uint64_t kWheelKey = 2;
constexpr uint32_t kFirstSource = 3;

thread_local ReactorImpl* current_reactor = nullptr;

// Of a timer; "never" (nanoseconds::max()) must not wrap round to long ago.
int64_t DeadlineAfter(int64_t delay) {
  const int64_t now = PreciseNow();
  return delay > TimerQueue::kNever - now ? TimerQueue::kNever
                                          : now + std::max<int64_t>(delay, 0);
}

}  // namespace

ReactorImpl::ReactorImpl(EngineImpl& engine, int index, size_t max_connections)
    : engine_(engine),
      handler_(engine.handler()),
      options_(engine.options()),
      index_(index),
      mailbox_(Mailbox::Acquire()),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wheel_(/*now=*/1, FindNode, this),
      pool_(options_.pool_keep_bytes, options_.buffer_budget.get()),
      epoch_(CoarseNow()),
      high_water_(HighWaterOf(options_.limits)),
      low_water_(LowWaterOf(options_.limits)),
      bounds_(BoundsFrom(options_.limits)),
      rate_limited_(bounds_.rate_limited()),
      budget_(options_.buffer_budget.get()),
      tracking_(budget_ != nullptr &&
                budget_->when_over() == WhenOverBudget::kCloseWorst) {
  if (!wake_fd_) {
    init_status_ = ErrnoStatus(errno, "eventfd for a reactor");
  } else if (max_connections > 0) {
    init_status_ = slab_.Reserve(this, max_connections);
  }
  if (init_status_.ok()) mailbox_->Open(wake_fd_.get(), &slab_);
  // A main reactor of its own thread has no connections.
  if (budget_ != nullptr && index_ >= 0) budget_->Join(this);
}

ReactorImpl::~ReactorImpl() {
  SLUICE_CHECK(slab_.live() == 0, "a reactor ended with connections open");
  if (budget_ != nullptr) budget_->Leave(this);
  mailbox_->Close();
  Mailbox::GiveBack(mailbox_);
}

absl::Status ReactorImpl::Prepare(int cpu) {
  thread_ = std::this_thread::get_id();
  outer_ = std::exchange(current_reactor, this);
  Mailbox::SetCurrent(mailbox_);
  pool_.BindToThisThread();
  if (cpu >= 0) {
    if (absl::Status s = PinThisThread(cpu); s.ok()) {
      cpu_.store(cpu, std::memory_order_relaxed);
    } else {
      Log(LogLevel::kWarning, "reactor " + std::to_string(index_) +
                                  " runs unpinned: " + s.ToString());
    }
  }
  if (absl::Status s = poller_.Open(); !s.ok()) return s;
  wheel_fd_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!wheel_fd_) return ErrnoStatus(errno, "timerfd_create");
  absl::StatusOr<std::unique_ptr<EmbeddedBase>> base = EmbeddedBase::Create();
  if (!base.ok()) return base.status();
  base_ = *std::move(base);

  // Edge-triggered, so neither is ever read: each write and each expiry is an
  // event of its own.
  int error = poller_.Add(wake_fd_.get(), EPOLLIN | EPOLLET, kWakeKey);
  if (error == 0) {
    error = poller_.Add(wheel_fd_.get(), EPOLLIN | EPOLLET, kWheelKey);
  }
  if (error == 0) error = poller_.Add(base_->epoll_fd(), EPOLLIN, kBaseKey);
  if (error != 0) return ErrnoStatus(error, "epoll_ctl");

  read_buffer_.reset(new char[options_.read_buffer]);
  cork_.reset(new char[kCorkBytes]);
  return absl::OkStatus();
}

void ReactorImpl::Teardown() {
  base_.reset();
  wheel_fd_.Reset();
  poller_.Close();
  if (current_reactor == this) {  // else Prepare was never called
    current_reactor = outer_;
    Mailbox::SetCurrent(outer_ == nullptr ? nullptr : outer_->mailbox_);
  }
}

void ReactorImpl::StartTicking() {
  if (options_.tick.count() > 0) {
    RunEvery(options_.tick, [this] { handler_.OnTick(*this); });
  }
}

void ReactorImpl::RunLoop() {
  while (!Finished()) Turn();
  // Nobody may be told OK any more; those who were told so get their turn.
  EndWithoutServing();
  // Here and not in the destructor: what a task holds may want its loop.
  TimerQueue ended = std::exchange(timers_, TimerQueue());
  counters_.timers.Set(0);
}

void ReactorImpl::EndWithoutServing() {
  ReactorImpl* const outer = std::exchange(current_reactor, this);
  Mailbox* const outer_mailbox = Mailbox::Current();
  Mailbox::SetCurrent(mailbox_);
  stopping_ = true;
  mailbox_->Refuse();
  mailbox_->Take(&tasks_, &arrivals_);
  RunTasks();
  current_reactor = outer;
  Mailbox::SetCurrent(outer_mailbox);
}

bool ReactorImpl::Finished() const {
  if (stopping_) {
    return stop_walk_done_ && slab_.live() == 0 && arrivals_ended_;
  }
  return quit_;
}

void ReactorImpl::Turn() {
  const std::span<const epoll_event> ready =
      poller_.Wait(events_, WaitTimeout());
  counters_.turns.Add(1);
  RefreshTick();
  // Now, so that what is posted from here on waits for the next turn.
  if (mailbox_->HasMail()) mailbox_->Take(&tasks_, &arrivals_);

  for (const epoll_event& event : ready) Dispatch(event);
  if (!ready_again_.empty()) RunReadyAgain();
  RunTimers();
  RunTasks();
  if (!shards_.empty()) RunShards();
  if (!dirty_.empty()) FlushDirty();
  if (budget_ != nullptr) MindBudget();
  if (stopping_) StopSome();
  if (!marked_.empty()) CloseMarked();
  if (!graveyard_.empty()) ReleaseClosed();

  if (wheel_changed_) ArmWheel();
  if (pool_.wants_trim() && trim_timer_.value == 0) {
    trim_timer_ = RunAfter(kTrimDelay, [this] {
      trim_timer_ = TimerId{};
      pool_.Trim();
    });
  }
}

int64_t ReactorImpl::WaitTimeout() {
  if (mailbox_->HasMail() || !dirty_.empty() || !marked_.empty() ||
      !ready_again_.empty() || (!held_back_.empty() && !readers_wait()) ||
      (!shards_.empty() && ShardsDue()) || (stopping_ && !stop_walk_done_)) {
    return 0;
  }
  int64_t wait = INT64_MAX;
  if (timers_.NextDeadline() != TimerQueue::kNever) {
    wait = std::max<int64_t>(timers_.NextDeadline() - PreciseNow(), 0);
  }
  if (base_->HasActive()) return 0;
  if (base_->HasEvents()) {
    // libevent's clock may lag behind ours: it may call what we think due not
    // due yet. Then try again in a millisecond instead of spinning.
    const int64_t least = base_ran_in_vain_ ? 1'000'000 : 0;
    wait = std::min(wait, std::max(base_->NextTimer(), least));
  }
  return wait == INT64_MAX ? Poller::kForever : wait;
}

void ReactorImpl::Dispatch(const epoll_event& event) {
  const uint64_t key = event.data.u64;
  if (key >> 32 != 0) [[likely]] {
    if (Connection* c = FindKey(key)) [[likely]] {
      OnConnectionEvent(*c, event.events);
    } else {
      counters_.stale_events.Add(1);
    }
    return;
  }
  switch (key) {
    case kWakeKey:
      break;
    case kBaseKey:
      base_->RunPass();
      break;
    case kWheelKey:
      wheel_fired_ = true;
      break;
    default:
      if (EventSource* source = sources_[key - kFirstSource]) {
        source->OnReady(event.events);
      }
  }
}

void ReactorImpl::RunReadyAgain() {
  // Those who hit their chunk cap again wait for the next turn.
  ready_now_.swap(ready_again_);
  for (uint64_t key : ready_now_) {
    Connection* c = FindKey(key);
    if (c == nullptr) continue;
    c->flags_ &= static_cast<uint8_t>(~kFlagReadyAgain);
    if (ReadingWanted(*c)) {
      OnReadable(*c, /*end_expected=*/true);
    } else {
      UpdateInterest(*c);  // ask again when reading goes on
    }
  }
  ready_now_.clear();
}

void ReactorImpl::RunTimers() {
  if (wheel_fired_) {
    wheel_fired_ = false;
    wheel_armed_ = INT64_MAX;
    wheel_changed_ = true;
    MoveTick(PreciseNow());
    wheel_.Advance(tick_,
                   [this](uint32_t slot) { OnDeadline(*slab_.At(slot)); });
  }
  if (timers_.size() > 0) {
    const int64_t now = PreciseNow();
    if (timers_.NextDeadline() <= now) {
      timers_.RunDue(now, [this](TimerTask& task) {
        Guard("a timer", [&task] { task(); });
      });
      counters_.timers.Set(timers_.size());
    }
  }
  RunBaseIfDue();
}

void ReactorImpl::RunBaseIfDue() {
  base_ran_in_vain_ = false;
  if (!base_->HasActive() && !base_->HasEvents()) return;
  if (!base_->HasActive() && base_->NextTimer() > 0) return;
  base_->RunPass();
  base_ran_in_vain_ =
      !base_->HasActive() && base_->HasEvents() && base_->NextTimer() == 0;
}

void ReactorImpl::RunTasks() {
  for (const AcceptedSocket& socket : arrivals_) OpenAccepted(socket);
  arrivals_.clear();
  for (Task& task : tasks_) {
    Guard("a posted task", [&task] { std::move(task)(); });
    task = nullptr;
  }
  tasks_.clear();
}

bool ReactorImpl::Guard(const char* what, absl::FunctionRef<void()> callback) {
  try {
    callback();
    return true;
  } catch (const std::exception& e) {
    Log(LogLevel::kError,
        std::string("an exception left ") + what + ": " + e.what());
  } catch (...) {
    Log(LogLevel::kError,
        std::string("an exception of an unknown type left ") + what);
  }
  counters_.handler_exceptions.Add(1);
  return false;
}

void ReactorImpl::Log(LogLevel level, std::string_view line) {
  engine_.logger().Log(level, line);
}

// --- Time.

uint64_t ReactorImpl::TickAt(int64_t now) const {
  return 1 + static_cast<uint64_t>((now - epoch_) / kTickNanos);
}

// From now on, not from when the turn began: a callback may have been slow.
uint32_t ReactorImpl::TickAfter(std::chrono::milliseconds time) {
  RefreshTick();
  const uint32_t tick = tick_ + TicksFor(time);
  return tick != 0 ? tick : 1;  // 0 means none
}

// Rounded up, and two more: one for the part of the present tick that has
// passed, one for the coarse clock. Late, never early.
uint32_t ReactorImpl::TicksFor(std::chrono::milliseconds time) {
  const int64_t ticks =
      (std::min<int64_t>(time.count(), int64_t{kMaxTicks} * 32) * 1'000'000 +
       kTickNanos - 1) /
      kTickNanos;
  return static_cast<uint32_t>(ticks) + 2;
}

// A turn may be long: what is stamped after a callback must not look as old as
// the turn's beginning.
void ReactorImpl::RefreshTick() { MoveTick(CoarseNow()); }

void ReactorImpl::MoveTick(int64_t now) {
  ticks_ = std::max(ticks_, TickAt(now));
  tick_ = static_cast<uint32_t>(ticks_);
}

void ReactorImpl::ArmWheel() {
  wheel_changed_ = false;
  if (wheel_.empty()) return;
  const uint64_t next =
      ticks_ +
      static_cast<uint64_t>(static_cast<int32_t>(wheel_.NextTick() - tick_));
  const int64_t at = epoch_ + static_cast<int64_t>(next - 1) * kTickNanos;
  if (at >= wheel_armed_) return;  // it stands earlier: a wake-up in vain
  wheel_armed_ = at;
  itimerspec time{};
  time.it_value.tv_sec = at / kNanosPerSecond;
  time.it_value.tv_nsec = at % kNanosPerSecond;
  timerfd_settime(wheel_fd_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
}

WheelNode& ReactorImpl::FindNode(void* self, uint32_t slot) {
  return static_cast<ReactorImpl*>(self)->slab_.At(slot)->wheel_;
}

TimerId ReactorImpl::RunAfter(std::chrono::nanoseconds delay, Task task) {
  CheckOnLoop("Reactor::RunAfter");
  SLUICE_CHECK(task != nullptr, "Reactor::RunAfter of an empty task");
  const TimerId id =
      timers_.Add(DeadlineAfter(delay.count()), /*period=*/0,
                  [once = std::move(task)]() mutable { std::move(once)(); });
  counters_.timers.Set(timers_.size());
  return id;
}

TimerId ReactorImpl::RunEvery(std::chrono::nanoseconds period, TimerTask task) {
  CheckOnLoop("Reactor::RunEvery");
  SLUICE_CHECK(task != nullptr, "Reactor::RunEvery of an empty task");
  const int64_t nanos = std::max<int64_t>(period.count(), 1000);
  const TimerId id = timers_.Add(DeadlineAfter(nanos), nanos, std::move(task));
  counters_.timers.Set(timers_.size());
  return id;
}

bool ReactorImpl::Cancel(TimerId timer) {
  CheckOnLoop("Reactor::Cancel");
  const bool was_live = timers_.Cancel(timer);
  counters_.timers.Set(timers_.size());
  return was_live;
}

// --- Small parts.

absl::Status ReactorImpl::Post(Task task) {
  SLUICE_CHECK(task != nullptr, "Reactor::Post of an empty task");
  return mailbox_->Post(std::move(task));
}

Connection* ReactorImpl::Find(const ConnectionRef& ref) {
  CheckOnLoop("Reactor::Find");
  if (ref.mailbox_ != mailbox_) return nullptr;
  return slab_.Find(ref.slot_, ref.generation_);
}

Connection* ReactorImpl::FindLive(const ConnectionRef& ref) {
  Connection* c = Find(ref);
  return c != nullptr && StateOf(c->state_) < ConnectionState::kMarked
             ? c
             : nullptr;
}

ReactorImpl* ReactorImpl::Of(const ConnectionRef& ref) {
  return Mailbox::Current() == ref.mailbox_ ? current_reactor : nullptr;
}

event_base* ReactorImpl::base() {
  CheckOnLoop("Reactor::base");
  return base_->base();
}

BufferPool& ReactorImpl::buffers() {
  CheckOnLoop("Reactor::buffers");
  return pool_;
}

Engine& ReactorImpl::engine() const { return engine_; }

uint32_t ReactorImpl::AddSource(int fd, uint32_t events, EventSource* source) {
  const uint32_t index = static_cast<uint32_t>(sources_.size());
  sources_.push_back(source);
  const int error = poller_.Add(fd, events, kFirstSource + index);
  SLUICE_CHECK(error == 0, "epoll_ctl(ADD) of a listener or channel failed");
  return index;
}

void ReactorImpl::ModifySource(uint32_t source, int fd, uint32_t events) {
  poller_.Modify(fd, events, kFirstSource + source);
}

void ReactorImpl::RemoveSource(uint32_t source, int fd) {
  poller_.Remove(fd);
  sources_[source] = nullptr;  // an event of this batch finds nobody
}

void ReactorImpl::AddTo(EngineStats* stats) const {
  stats->connections += connections();
  stats->opened += counters_.opened.Get();
  stats->closed += counters_.closed.Get();
  for (size_t i = 0; i < kCloseReasons; ++i) {
    stats->closed_by_reason[i] += counters_.closed_by_reason[i].Get();
  }
  stats->accepted += counters_.accepted.Get();
  stats->rejected += counters_.rejected.Get();
  stats->rejected_per_source += counters_.rejected_per_source.Get();
  stats->dials_failed += counters_.dials_failed.Get();
  stats->bytes_in += counters_.bytes_in.Get();
  stats->bytes_out += counters_.bytes_out.Get();
  stats->accept_errors += counters_.accept_errors.Get();
  stats->accept_fd_limit += counters_.accept_fd_limit.Get();
  stats->accept_shed += counters_.accept_shed.Get();
  stats->handler_exceptions += counters_.handler_exceptions.Get();
  stats->posts_dropped += counters_.posts_dropped.Get();
  stats->stale_events += counters_.stale_events.Get();
  stats->rate_paused += counters_.rate_paused.Get();
  stats->readers_paused += counters_.readers_paused.Get();
  stats->buffers_outstanding += pool_.outstanding_bytes();
  stats->buffers_cached += pool_.cached_bytes();
  stats->turns += counters_.turns.Get();
  stats->timers += counters_.timers.Get();
}

void ReactorImpl::DieOffLoop(const char* method) const {
  std::ostringstream text;
  text << method << " was called on thread " << std::this_thread::get_id()
       << "; it belongs to the loop of reactor " << index_ << ", thread "
       << thread_ << ". From elsewhere use ConnectionRef or Reactor::Post.";
  Die(__FILE__, __LINE__, text.str().c_str());
}

}  // namespace sluice::internal
