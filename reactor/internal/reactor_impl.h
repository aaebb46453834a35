// Internal: the loop of one reactor.
#ifndef SLUICE_REACTOR_INTERNAL_REACTOR_IMPL_H_
#define SLUICE_REACTOR_INTERNAL_REACTOR_IMPL_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "reactor/buffer_budget.h"
#include "reactor/buffer_pool.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/internal/accepted_socket.h"
#include "reactor/internal/active_state.h"
#include "reactor/internal/connection_slab.h"
#include "reactor/internal/counters.h"
#include "reactor/internal/embedded_base.h"
#include "reactor/internal/event_source.h"
#include "reactor/internal/mailbox.h"
#include "reactor/internal/poller.h"
#include "reactor/internal/timer_queue.h"
#include "reactor/internal/timer_wheel.h"
#include "reactor/internal/unique_fd.h"
#include "reactor/payload.h"
#include "reactor/reactor.h"

namespace sluice::internal {

class BroadcastShard;
class EngineImpl;

// One loop. The order of a turn is in reactor/reactor.h; which file does what:
//   reactor_impl.cc   the turn itself, sources, timers, tasks
//   reactor_io.cc     bytes in and out of a connection
//   reactor_close.cc  from Close to OnClose to the released descriptor
//   reactor_tell.cc   what a handler is told besides traffic
//   reactor_share.cc  output that connections share: payloads, broadcasts
//   reactor_dial.cc   connections in the making: accepted, dialed
//   reactor_limits.cc deadlines of connections
//   reactor_rate.cc   how much a peer may send
//   reactor_memory.cc the BufferBudget
// Thread: all on the loop's thread, except where marked [any] and the
//   constructor.
class ReactorImpl final : public Reactor {
 public:
  static constexpr size_t kEventBatch = 256;
  // OnClose calls a turn: a million connections that end at once must not
  // hold the loop for seconds.
  static constexpr size_t kClosesPerTurn = 256;
  // Connections a turn that are sent what others than their own callback wrote,
  // or closed: a task may do that to all there are.
  static constexpr size_t kFlushesPerTurn = 256;
  // Output of one callback that is gathered before it is sent.
  static constexpr size_t kCorkBytes = size_t{64} << 10;
  // Writes of this size go to the kernel at once instead of through the cork: a
  // copy would cost more than a system call.
  static constexpr size_t kDirectBytes = size_t{16} << 10;
  // Connection::listener_ of a dialed one.
  static constexpr uint16_t kDialed = UINT16_MAX;

  // Opens the mailbox: from here on tasks may be posted. Check init_status().
  ReactorImpl(EngineImpl& engine, int index, size_t max_connections);
  ~ReactorImpl();

  const absl::Status& init_status() const { return init_status_; }

  // --- Life, in this order, on the loop's thread.
  absl::Status Prepare(int cpu);  // everything that needs descriptors
  void StartTicking();
  // For a reactor that never serves, and at the end of one that did: what was
  // posted runs, dials fail, later posts are refused.
  void EndWithoutServing();
  void RunLoop();   // until Quit, or BeginStop is done
  void Teardown();  // gives back what Prepare took, from the same table

  // Closes every connection for `reason`; RunLoop then returns. With a
  // channel, only after its sender has closed it.
  void BeginStop(CloseReason reason);
  void Quit() { quit_ = true; }

  // --- Reactor.
  absl::Status Post(Task task) override;  // [any]
  TimerId RunAfter(std::chrono::nanoseconds delay, Task task) override;
  TimerId RunEvery(std::chrono::nanoseconds period, TimerTask task) override;
  bool Cancel(TimerId timer) override;
  Connection* Find(const ConnectionRef& ref) override;
  event_base* base() override;
  BufferPool& buffers() override;
  int index() const override { return index_; }
  int cpu() const override { return cpu_.load(std::memory_order_relaxed); }
  size_t connections() const override { return load_.load(); }
  Engine& engine() const override;
  bool InLoop() const override { return Mailbox::Current() == mailbox_; }

  // --- For connections.
  std::string_view Peek(Connection& c, size_t n);
  size_t Consume(Connection& c, size_t n);
  absl::Status Write(Connection& c, std::span<const std::string_view> pieces);
  absl::Status Write(Connection& c, Payload payload);
  size_t Outbound(const Connection& c) const;
  void Close(Connection& c, CloseMode mode, CloseReason reason);
  void ShutdownWrite(Connection& c);
  void NotifySent(Connection& c, SentCallback done);
  void PauseWhileHigh(Connection& c, const ConnectionRef& source);
  void Pause(Connection& c);
  void Unpause(Connection& c);
  void SetIdleTimeout(Connection& c, std::chrono::milliseconds timeout);
  absl::Status SetReadTimeout(Connection& c, std::chrono::milliseconds timeout);
  absl::Status SetWriteTimeout(Connection& c,
                               std::chrono::milliseconds timeout);
  absl::Status SetRateLimit(Connection& c, const sluice::RateLimit& limit);
  void HandshakeDone(Connection& c);
  bool CountMessages(Connection& c, size_t n) {
    return !rate_limited_ || ChargeMessages(c, n);
  }
  void Wake(Connection& c);
  // Runs `function` as a callback of this connection.
  void RunFor(Connection& c, absl::FunctionRef<void(Connection&)> function);
  ConnectionRef RefTo(const Connection& c) const {
    return ConnectionRef(mailbox_, slab_.SlotOf(c),
                         c.generation_.load(std::memory_order_relaxed));
  }
  static ReactorImpl& OwnerOf(const Connection& c) {
    return ConnectionSlab::OwnerOf(c);
  }
  static Mailbox* MailboxOf(const ConnectionRef& ref) { return ref.mailbox_; }
  // The reactor of `ref` if this is its thread, else nullptr.
  static ReactorImpl* Of(const ConnectionRef& ref);
  // [any] Has `act` called with the connection on its loop. If it is gone then,
  // or `act` answers false, the post counts as dropped.
  template <typename Act>
  static absl::Status PostTo(const ConnectionRef& ref, Act act) {
    return ref.mailbox_->PostFor(ref.slot_, ref.generation_,
                                 [ref, act = std::move(act)]() mutable {
                                   ReactorImpl& reactor = *Of(ref);
                                   Connection* c = reactor.FindLive(ref);
                                   if (c == nullptr || !act(*c))
                                     reactor.counters_.posts_dropped.Add(1);
                                 });
  }
  // Ends the program, naming both threads, if this is not the loop's thread.
  void CheckOnLoop(const char* method) const {
    if (!InLoop()) [[unlikely]]
      DieOffLoop(method);
  }

  // --- For broadcasts.
  void RefreshTick();  // what is stamped from here on is not older than this
  void CloseForLimit(Connection& c, CloseReason reason,
                     const std::string& detail);
  void AddShard(std::shared_ptr<BroadcastShard> shard);
  // At most kMostShared payloads, whole and in order, behind what is queued or
  // corked; no bound is looked at. False if the connection has failed.
  static constexpr size_t kMostShared = 64;
  bool SendShared(Connection& c, std::span<const Payload* const> payloads);
  // Would Write take bytes, if there are not too many?
  bool TakesOutput(const Connection& c) const {
    return StateOf(c.state_) == ConnectionState::kOpen &&
           !(c.flags_ & kFlagShutdownWrite);
  }
  // BroadcastShard::Drained will be called when its output, of which there is
  // some, has left.
  void TellDrained(Connection& c) { c.active_->group_waits = true; }
  // ConnectionLimits::max_outbound.
  size_t MostOutbound() const {
    const size_t most = options_.limits.max_outbound;
    return most == 0 ? SIZE_MAX : most;
  }
  // Of that reactor's own; one of a connection that lives is found.
  uint64_t KeyOf(const Connection& c) const {
    return Key(slab_.SlotOf(c), c.generation_.load(std::memory_order_relaxed));
  }
  Connection* FindKey(uint64_t key) {
    return slab_.Find(static_cast<uint32_t>(key),
                      static_cast<uint32_t>(key >> 32));
  }
  void Prefetch(uint64_t key) const {
    __builtin_prefetch(slab_.At(static_cast<uint32_t>(key)), /*rw=*/1);
  }

  // --- For the engine and its acceptors.
  uint32_t AddSource(int fd, uint32_t events, EventSource* source);
  void ModifySource(uint32_t source, int fd, uint32_t events);
  void RemoveSource(uint32_t source, int fd);
  void OpenAccepted(const AcceptedSocket& socket);
  void StartDial(const Address& address, const DialOptions& options,
                 DialDone done);
  // The sender of a descriptor channel has closed it (or there is none).
  void ArrivalsEnded() { arrivals_ended_ = true; }
  void ArrivalsExpected() { arrivals_ended_ = false; }
  void Log(LogLevel level, std::string_view line);
  // Runs a callback of the engine's; an exception is counted and logged.
  // False if there was one.
  bool Guard(const char* what, absl::FunctionRef<void()> callback);

  Mailbox* mailbox() const { return mailbox_; }
  int wake_fd() const { return wake_fd_.get(); }
  Counters& counters() { return counters_; }
  void AddTo(EngineStats* stats) const;            // [any]
  std::atomic<uint32_t>& load() { return load_; }  // [any]
  EmbeddedBase& embedded_base() { return *base_; }

 private:
  // Keys in epoll: generation << 32 | slot for a connection, 0 << 32 | index
  // for a source. Generations are never 0.
  static uint64_t Key(uint32_t slot, uint32_t generation) {
    return uint64_t{generation} << 32 | slot;
  }
  // nullptr also when OnClose is due or has run.
  Connection* FindLive(const ConnectionRef& ref);

  // reactor_impl.cc
  void Turn();
  int64_t WaitTimeout();
  void Dispatch(const epoll_event& event);
  void RunTimers();
  void RunTasks();
  void RunReadyAgain();
  void RunBaseIfDue();
  void MoveTick(int64_t now);
  void ArmWheel();
  uint64_t TickAt(int64_t now) const;
  uint32_t TickAfter(std::chrono::milliseconds time);
  bool Reached(uint32_t tick) const {  // ticks wrap round
    return static_cast<int32_t>(tick_ - tick) >= 0;
  }
  static uint32_t TicksFor(std::chrono::milliseconds time);
  bool Finished() const;
  static WheelNode& FindNode(void* self, uint32_t slot);
  [[noreturn]] void DieOffLoop(const char* method) const;

  // reactor_io.cc
  void OnConnectionEvent(Connection& c, uint32_t events);
  void OnReadable(Connection& c, bool end_expected);
  void ReadForHandler(Connection& c, bool end_expected);
  void ThrowInputAway(Connection& c);
  void ReadAgain(Connection& c);
  void OnHangupUnread(Connection& c, uint32_t events);
  bool OwesInput(const Connection& c) const;
  void OnPeerFin(Connection& c);
  void RunCallback(Connection& c, absl::FunctionRef<Action()> callback);
  void FinishCallback(Connection& c, Action action);
  void SendCork(Connection& c);
  void SendDirect(Connection& c, std::span<const std::string_view> pieces);
  // Why a write of `total` bytes is not taken, if so.
  absl::Status CheckWrite(Connection& c, size_t total);
  void SendQueue(Connection& c);
  ssize_t Send(Connection& c, std::span<iovec> pieces);
  void AfterOutput(Connection& c);
  void FlushDirty();
  void Settle(Connection& c);
  void UpdateInterest(Connection& c);
  uint8_t WantedInterest(const Connection& c) const;
  void MarkDirty(Connection& c);
  ActiveState& Activate(Connection& c);
  bool ReadingWanted(const Connection& c) const;

  // reactor_limits.cc
  struct Due {
    int32_t left = INT32_MAX;  // ticks; 0 or less: now. INT32_MAX: nothing is
    CloseReason reason = CloseReason::kNone;  // what it ends the connection for
  };
  Due NextDue(const Connection& c) const;
  void Schedule(Connection& c);
  void OnDeadline(Connection& c);
  bool InputWaits(const Connection& c) const;
  void WaitBegins(Connection& c, uint8_t interest);
  void ApplyLimits(Connection& c);
  static Bounds BoundsFrom(const ConnectionLimits& limits);
  const Bounds& BoundsOf(const Connection& c) const {
    return c.active_ != nullptr && c.active_->own != nullptr ? *c.active_->own
                                                             : bounds_;
  }
  absl::Status SetOwn(Connection& c, const char* name,
                      std::chrono::milliseconds timeout,
                      uint32_t Bounds::*ticks);

  // reactor_rate.cc
  bool ChargeInput(Connection& c, size_t bytes);
  bool ChargeMessages(Connection& c, size_t n);
  void CloseOverRate(Connection& c, const RateLimit& limit, const char* unit);
  int64_t RateWait(const Connection& c, int64_t now) const;
  uint32_t RateTick(const Connection& c) const;
  void PauseForRate(Connection& c);
  void EndRatePause(Connection& c);
  void LookAtRate(Connection& c);

  // reactor_memory.cc; with a budget
  bool readers_wait() const {
    return budget_ != nullptr && !tracking_ && budget_->exceeded();
  }
  void MindBudget();
  void HoldBack(Connection& c);
  void ReadHeldBack();
  void CloseWorst();
  void CloseForMemory(Connection& c);
  static void DropOutput(ActiveState& active);
  void Track(Connection& c);
  void Unlist(Connection& c);

  // reactor_tell.cc; of a connection with an active state
  bool HasNews(const Connection& c) const;
  void TellNews(Connection& c);
  void TellUnsent(Connection& c);

  // reactor_share.cc
  bool ShardsDue() const;
  void RunShards();
  void TellShardsDrained(const Connection& c);
  void TellShardsEnded(const Connection& c);

  // reactor_close.cc
  void Fail(Connection& c, int error);
  void MarkForClose(Connection& c, CloseReason reason, int error);
  void AdvanceClose(Connection& c);
  void CloseMarked();
  void RunOnClose(Connection& c);
  void ReleaseClosed();
  void Release(Connection& c);
  void StopSome();

  // reactor_dial.cc
  Connection* NewConnection(int fd, uint16_t listener, const PeerName& peer);
  void GreetConnection(Connection& c);
  static PeerName PeerOf(const Connection& c);
  void OnDialEvent(Connection& c);
  void DialFailed(DialDone done, absl::Status status);

  EngineImpl& engine_;
  EventHandler& handler_;
  const Options& options_;
  const int index_;
  std::atomic<int> cpu_{-1};
  absl::Status init_status_;
  std::thread::id thread_;
  ReactorImpl* outer_ = nullptr;  // a loop whose callback ours runs inside of

  Mailbox* const mailbox_;
  UniqueFd wake_fd_;
  UniqueFd wheel_fd_;  // a timerfd: armed for the wheel's next tick
  Poller poller_;
  std::unique_ptr<EmbeddedBase> base_;
  std::vector<EventSource*> sources_;

  ConnectionSlab slab_;
  TimerWheel wheel_;
  TimerQueue timers_;
  BufferPool pool_;
  const int64_t epoch_;  // CoarseNow() at tick 1
  uint64_t ticks_ = 1;   // since then; tick_ is what fits in a record
  uint32_t tick_ = 1;    // of this turn
  int64_t wheel_armed_ = INT64_MAX;  // time the timerfd stands at
  bool wheel_changed_ = false;
  bool wheel_fired_ = false;
  TimerId trim_timer_;

  // Input of the connection whose callback runs, straight from the read
  // buffer.
  std::unique_ptr<char[]> read_buffer_;
  Connection* in_callback_ = nullptr;
  std::string_view direct_;
  // ConnectionLimits::high_water and low_water.
  const size_t high_water_;
  const size_t low_water_;
  // The other limits, and whether any connection has a RateLimit.
  const Bounds bounds_;
  bool rate_limited_;

  BufferBudget* const budget_;
  // With WhenOverBudget::kCloseWorst: those that have buffers; a slot, 0: none.
  const bool tracking_;
  uint32_t listed_ = 0;
  // Keys of those held back by the budget.
  std::vector<uint64_t> held_back_;
  size_t held_back_done_ = 0;  // of them: read again

  // Output of that connection, sent when its callback returns.
  std::unique_ptr<char[]> cork_;
  size_t cork_size_ = 0;

  // Keys of connections that want something later in this turn or the next.
  std::vector<uint64_t> dirty_;
  size_t dirty_done_ = 0;  // of them: flushed
  std::vector<uint64_t> marked_;
  size_t marked_done_ = 0;  // of them: OnClose was called
  std::vector<Connection*> graveyard_;
  std::vector<uint64_t> ready_again_;
  std::vector<uint64_t> ready_now_;

  std::vector<std::shared_ptr<BroadcastShard>> shards_;

  std::vector<Task> tasks_;
  std::vector<AcceptedSocket> arrivals_;
  std::array<epoll_event, kEventBatch> events_;

  bool quit_ = false;
  bool stopping_ = false;
  bool arrivals_ended_ = true;
  CloseReason stop_reason_ = CloseReason::kShutdown;
  uint32_t stop_cursor_ = 0;
  bool stop_walk_done_ = false;
  bool base_ran_in_vain_ = false;

  std::atomic<uint32_t> load_{0};
  Counters counters_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_REACTOR_IMPL_H_
