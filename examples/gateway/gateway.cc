#include "examples/gateway/gateway.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codec/frames.h"

namespace sluice::gateway {
namespace {

// Of the ends that the gateway did not bring about itself.
Count CountOf(CloseReason reason) {
  switch (reason) {
    case CloseReason::kPeerClosed:
      return Count::kByPeer;
    case CloseReason::kReset:
      return Count::kReset;
    case CloseReason::kIdleTimeout:
      return Count::kIdle;
    case CloseReason::kSlowConsumer:
    case CloseReason::kWriteTimeout:
      return Count::kSlowReader;
    case CloseReason::kDrain:
    case CloseReason::kShutdown:
      return Count::kDrained;
    default:
      return Count::kOther;
  }
}

}  // namespace

Options BoundedOptions() {
  Options options;
  options.limits.max_inbound = size_t{64} << 10;
  options.limits.max_outbound = size_t{64} << 10;
  options.limits.when_overflow = WhenOverflow::kClose;
  return options;
}

ListenOptions BoundedListenOptions() {
  ListenOptions options;
  options.socket.receive_buffer = 64 << 10;
  return options;
}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Create(
    GatewayOptions options) {
  if (options.query == nullptr) {
    return absl::InvalidArgumentError("GatewayOptions::query is empty");
  }
  absl::StatusOr<std::unique_ptr<WorkerPool>> pool =
      WorkerPool::Create(options.pool);
  if (!pool.ok()) return pool.status();
  std::unique_ptr<Gateway> gateway(new Gateway(std::move(options)));
  gateway->pool_ = *std::move(pool);
  return gateway;
}

Gateway::Gateway(GatewayOptions options) : options_(std::move(options)) {}

Action Gateway::OnOpen(Connection& c) {
  c.Emplace<Session>();
  Add(c, Count::kOpened);
  return Action::kNone;
}

Action Gateway::OnTraffic(Connection& c) {
  Session& session = c.Get<Session>();
  const Clock::time_point now = Clock::now();
  bool any_packet = false;
  const Action action = ForEachFrame(
      c, decoder_, session.decode,
      [&](std::string_view frame) {
        any_packet = true;
        session.budget.Take(options_.rate, now);
        OnPacket(c, frame);
        PauseForBudget(c, now);
      },
      [&](const DecodeFault& fault) {
        Reject(c, fault.error == DecodeError::kTooLong ? Count::kTooLong
                                                       : Count::kCorruptLength);
      });
  if (!c.open()) return action;
  WatchUnfinished(c, any_packet);
  CloseIfDraining(c);
  return action;
}

void Gateway::OnPacket(Connection& c, std::string_view frame) {
  const std::optional<Packet> packet = ParsePacket(frame);
  if (!packet) return Reject(c, Count::kCorruptLength);
  switch (packet->command) {
    case Command::kLogin: {
      const std::optional<std::string_view> name = ParseLogin(packet->body);
      return name ? OnLogin(c, *name) : Reject(c, Count::kBadBody);
    }
    case Command::kMove: {
      const std::optional<Move> move = ParseMove(packet->body);
      return move ? OnMove(c, *move) : Reject(c, Count::kBadBody);
    }
    default:
      return Reject(c, Count::kUnknownCommand);
  }
}

// --- Logging in: on the pool, because the query blocks.

void Gateway::OnLogin(Connection& c, std::string_view name) {
  Session& session = c.Get<Session>();
  Add(c, Count::kLogins);
  // One at a time: a single player cannot fill the queue for all the others.
  if (session.state == Session::State::kLoggingIn) {
    return Refuse(c, Command::kLogin, Why::kLoginUnderWay,
                  Count::kLoginUnderWay);
  }
  // The name is copied: `name` is a view of bytes that are gone when a worker
  // comes to it. So is the connection, maybe: its ref is not, and if nobody is
  // left to hear the answer, the pool drops it and counts that.
  const absl::Status submitted = pool_->Submit(
      c.ref(),
      [this, copy = std::string(name)] { return options_.query(copy); },
      [this](Connection& connection, absl::StatusOr<uint32_t> player) {
        LoggedIn(connection, player);
      });
  if (!submitted.ok()) {
    // ResourceExhausted, the queue is full, or Unavailable, the pool ends. The
    // player hears it at once instead of waiting behind all the others, and the
    // connection stays.
    return Refuse(c, Command::kLogin, Why::kComeBack, Count::kComeBack);
  }
  session.state = Session::State::kLoggingIn;
}

// On the connection's loop again.
void Gateway::LoggedIn(Connection& c, const absl::StatusOr<uint32_t>& player) {
  Session& session = c.Get<Session>();
  if (player.ok()) {
    session.state = Session::State::kPlaying;
    session.player = *player;
    Add(c, Count::kLoggedIn);
    Answer(c, Payload::LoggedIn(*player));
  } else {
    session.state = Session::State::kNew;
    if (absl::IsNotFound(player.status())) {
      Refuse(c, Command::kLogin, Why::kNobody, Count::kNobody);
    } else {
      // The database is away, or the query threw (Internal).
      Refuse(c, Command::kLogin, Why::kComeBack, Count::kComeBack);
    }
  }
  CloseIfDraining(c);
}

// --- Moves: answered where they arrive.

void Gateway::OnMove(Connection& c, const Move& move) {
  if (c.Get<Session>().state != Session::State::kPlaying) {
    return Refuse(c, Command::kMove, Why::kLoginFirst, Count::kLoginFirst);
  }
  Add(c, Count::kMoves);
  Answer(c, Payload::MoveOf(Command::kMoved, InsideTheWorld(move)));
}

// --- Bounds.

// Who sends more than the rate is not read for a while. Reading and dropping
// what is too much would let it cost us as much as it likes to send; answering
// it would let it slow the others down. Not read, it costs nothing: what has
// arrived waits here (at most ConnectionLimits::max_inbound and one read) and
// in the kernel (SocketOptions::receive_buffer), TCP stops the sender, and
// nothing is lost for somebody who only had a burst. (Once the engine limits
// connections by itself, this and the budget can go.)
void Gateway::PauseForBudget(Connection& c, Clock::time_point now) {
  Session& session = c.Get<Session>();
  if (session.budget.Wait(options_.rate, 1, now) == Clock::duration::zero()) {
    return;
  }
  // ForEachFrame stops here, and OnTraffic is called for what it has left when
  // the pause goes.
  session.pause = c.PauseRead();
  Add(c, Count::kPauses);
  // Reading goes on when a tenth of the burst is back: somebody who is always
  // over the rate then wakes the loop for that many packets at once. A timer
  // only while it lasts; a connection that keeps to its rate has none.
  const int tokens = std::max(1, options_.rate.burst / 10);
  Reactor& reactor = c.reactor();
  reactor.RunAfter(session.budget.Wait(options_.rate, tokens, now),
                   [&reactor, ref = c.ref()] {
                     Connection* const resumed = reactor.Find(ref);
                     if (resumed == nullptr) return;  // it has ended meanwhile
                     resumed->Get<Session>().pause.Release();
                   });
}

// A timer only for a packet that arrived in part. Those are few: a packet is
// smaller than what one segment carries.
void Gateway::WatchUnfinished(Connection& c, bool any_packet) {
  Session& session = c.Get<Session>();
  Reactor& reactor = c.reactor();
  // With a packet done, what is left over is the beginning of another one.
  // What waits because we do not look at it is not the player's fault.
  if (any_packet || !c.reading()) {
    reactor.Cancel(session.unfinished);
    session.unfinished = TimerId();
  }
  const bool begun = c.inbound() > 0 && c.reading();
  if (!begun || session.unfinished != TimerId()) return;
  session.unfinished = reactor.RunAfter(
      options_.frame_deadline, [this, &reactor, ref = c.ref()] {
        Connection* const late = reactor.Find(ref);
        if (late == nullptr) return;
        late->Get<Session>().unfinished = TimerId();
        Reject(*late, Count::kUnfinished);
      });
}

// --- The end.

void Gateway::OnDrain(Engine&) { draining_.store(true); }

// Each player gets what it has asked for, and then its end. Who asks for
// nothing ends with the drain's deadline.
void Gateway::CloseIfDraining(Connection& c) {
  if (!draining_.load(std::memory_order_relaxed) || !c.open()) return;
  Session& session = c.Get<Session>();
  if (session.state == Session::State::kLoggingIn) return;
  session.closed = Count::kDrained;
  c.Close(CloseMode::kFlush);
}

void Gateway::OnClose(Connection& c, const CloseInfo& info) {
  Session& session = c.Get<Session>();
  c.reactor().Cancel(session.unfinished);
  Add(c, session.closed.value_or(CountOf(info.reason)));
}

void Gateway::OnShutdown(Engine&) {
  // No loop is left to hear an answer: what has not begun need not.
  pool_->Shutdown(AtShutdown::kCancel).IgnoreError();
}

// --- Small change.

void Gateway::Add(Connection& c, Count count) {
  counters_.Add(c.reactor().index(), count);
}

void Gateway::Answer(Connection& c, const Payload& payload) {
  // Fails only if the connection ends: OnClose is told why.
  Send(c, payload).IgnoreError();
}

void Gateway::Refuse(Connection& c, Command command, Why why, Count count) {
  Add(c, count);
  Answer(c, Payload::Refused(command, why));
}

void Gateway::Reject(Connection& c, Count count) {
  Session& session = c.Get<Session>();
  // The first reason is the one; what was answered before still leaves.
  if (!session.closed) session.closed = count;
  c.CloseFor(CloseReason::kProtocolError);
}

}  // namespace sluice::gateway
