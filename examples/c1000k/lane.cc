#include "examples/c1000k/lane.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

namespace sluice::c1000k {
namespace {

// Heartbeats that go out together wait for each other at both ends, so portions
// are small; and the timer not so quick that it is the load.
constexpr double kPortion = 4;
constexpr double kShortest = 0.001;  // seconds between portions
constexpr double kLongest = 0.010;
// A loop that was held up makes good at most this much, in seconds.
constexpr double kCatchUp = 1.0;
constexpr size_t kCloseSlice = 256;

uint64_t NowNs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

LaneCounts& LaneCounts::operator+=(const LaneCounts& o) {
  connected += o.connected;
  closed += o.closed;
  lost += o.lost;
  sent += o.sent;
  answered += o.answered;
  roll_asked += o.roll_asked;
  roll_answered += o.roll_answered;
  wrong += o.wrong;
  return *this;
}

Lane::Lane(uint32_t index, size_t expected) : index_(index) {
  refs_.reserve(expected);
}

void Lane::Opened(Connection& connection) {
  Add(connected_);
  refs_.push_back(connection.ref());
  // A dial that was under way when the end was decided.
  if (closing_) connection.Close(CloseMode::kReset);
}

void Lane::Arrived(Connection& connection) {
  // A reply may come in pieces: what is there of it stays until it is whole.
  while (connection.open() && connection.inbound() >= kHeartbeatSize) {
    Check(connection, connection.Next(kHeartbeatSize));
  }
}

void Lane::Check(Connection& connection, std::string_view reply) {
  const std::optional<Heartbeat> h = DecodeHeartbeat(reply);
  const size_t i = h ? IndexOf(h->connection) : 0;
  if (!h || LaneOf(h->connection) != index_ || i >= refs_.size() ||
      refs_[i] != connection.ref()) {
    // Not what went out on this connection. From here on its stream means
    // nothing; it counts as lost, too.
    Add(wrong_);
    connection.Close(CloseMode::kReset);
    return;
  }
  const uint64_t now = NowNs();
  const uint64_t micros =
      now > h->sent_ns ? (now - h->sent_ns + 999) / 1000 : 0;
  if (h->kind == Heartbeat::Kind::kPaced) {
    Add(answered_);
    rtt_.Record(micros);
    return;
  }
  if (i >= roll_heard_.size() || roll_heard_[i]) {
    Add(wrong_);  // an answer nobody asked for
    return;
  }
  roll_heard_[i] = true;
  Add(roll_answered_);
  roll_rtt_.Record(micros);
  if (roll_outstanding_ > 0) --roll_outstanding_;
  PumpRollCall(connection.reactor());
}

void Lane::Closed() {
  if (!closing_) Add(lost_);
  Add(closed_);
}

bool Lane::Send(Reactor& reactor, size_t i, Heartbeat::Kind kind) {
  Connection* c = reactor.Find(refs_[i]);
  if (c == nullptr || !c->open()) return false;
  const HeartbeatBytes bytes = EncodeHeartbeat(
      {.kind = kind,
       .connection = ConnectionId(index_, static_cast<uint32_t>(i)),
       .sent_ns = NowNs()});
  // Counted first: the answer must never be seen before the question.
  Count& count = kind == Heartbeat::Kind::kPaced ? sent_ : roll_asked_;
  Add(count);
  if (c->Write(std::string_view(bytes.data(), bytes.size())).ok()) return true;
  Add(count, static_cast<uint64_t>(-1));
  return false;
}

void Lane::StartHeartbeats(Reactor& reactor, double each_per_second,
                           int offset_ms) {
  if (closing_ || each_per_second <= 0) return;
  stopped_.store(false, std::memory_order_release);
  per_second_ = each_per_second * static_cast<double>(refs_.size());
  credit_ = 0;
  if (refs_.empty()) return;
  const std::chrono::nanoseconds period(static_cast<int64_t>(
      1e9 * std::clamp(kPortion / per_second_, kShortest, kLongest)));
  timer_ = reactor.RunAfter(
      std::chrono::milliseconds(offset_ms), [this, &reactor, period] {
        last_ns_ = NowNs();
        timer_ = reactor.RunEvery(period, [this, &reactor] { Tick(reactor); });
      });
}

void Lane::StopHeartbeats(Reactor& reactor) {
  reactor.Cancel(timer_);
  timer_ = TimerId();
  stopped_.store(true, std::memory_order_release);
}

void Lane::Tick(Reactor& reactor) {
  const uint64_t now = NowNs();
  credit_ += static_cast<double>(now - last_ns_) * 1e-9 * per_second_;
  credit_ = std::min(credit_, std::max(1.0, per_second_ * kCatchUp));
  last_ns_ = now;
  // With every connection gone there is nobody to send to: one round at most.
  for (size_t gone = 0; credit_ >= 1 && gone < refs_.size();) {
    if (next_ >= refs_.size()) next_ = 0;
    if (Send(reactor, next_++, Heartbeat::Kind::kPaced)) {
      credit_ -= 1;
      gone = 0;
    } else {
      ++gone;
    }
  }
}

void Lane::StartRollCall(Reactor& reactor, size_t window) {
  if (closing_) return;
  roll_heard_.assign(refs_.size(), false);
  roll_window_ = std::max<size_t>(1, window);
  roll_next_ = 0;
  PumpRollCall(reactor);
  // Answers of connections that are lost meanwhile never come. If none came for
  // a second, they no longer hold up the others.
  timer_ = reactor.RunEvery(std::chrono::seconds(1), [this, &reactor] {
    const uint64_t answered = roll_answered_.load(std::memory_order_relaxed);
    if (answered == roll_answered_before_) roll_outstanding_ = 0;
    roll_answered_before_ = answered;
    PumpRollCall(reactor);
  });
}

void Lane::PumpRollCall(Reactor& reactor) {
  while (roll_next_ < roll_heard_.size() && roll_outstanding_ < roll_window_) {
    if (Send(reactor, roll_next_++, Heartbeat::Kind::kRollCall)) {
      ++roll_outstanding_;
    }
  }
  if (roll_next_ >= roll_heard_.size()) {
    roll_sent_.store(true, std::memory_order_release);
  }
}

void Lane::StartClose(Reactor& reactor) {
  if (closing_) return;
  closing_ = true;
  StopHeartbeats(reactor);  // or the timer of the roll call
  CloseSlice(reactor);
}

void Lane::CloseSlice(Reactor& reactor) {
  const size_t end = std::min(refs_.size(), close_next_ + kCloseSlice);
  for (; close_next_ < end; ++close_next_) {
    if (Connection* c = reactor.Find(refs_[close_next_])) {
      c->Close(CloseMode::kReset);
    }
  }
  if (close_next_ >= refs_.size()) return;
  // Refused only if the reactor has ended, with every connection then.
  reactor.Post([this, &reactor] { CloseSlice(reactor); }).IgnoreError();
}

LaneCounts Lane::counts() const {
  constexpr auto kAcquire = std::memory_order_acquire;
  // Answers and ends before questions and beginnings: a difference of two
  // counts must not come out below zero while the loop goes on.
  LaneCounts c;
  c.answered = answered_.load(kAcquire);
  c.roll_answered = roll_answered_.load(kAcquire);
  c.lost = lost_.load(kAcquire);
  c.closed = closed_.load(kAcquire);
  c.wrong = wrong_.load(kAcquire);
  c.sent = sent_.load(kAcquire);
  c.roll_asked = roll_asked_.load(kAcquire);
  c.connected = connected_.load(kAcquire);
  return c;
}

}  // namespace sluice::c1000k
