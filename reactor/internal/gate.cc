#include "reactor/internal/gate.h"

#include <algorithm>
#include <string>

#include "reactor/internal/clock.h"
#include "reactor/internal/engine_impl.h"
#include "reactor/internal/source_counts.h"

namespace sluice::internal {
namespace {

// An acceptor that waits for tokens sleeps until about so many seconds' worth
// of them are there: a rate of 100,000 a second must not be as many wake-ups.
constexpr double kRest = 0.005;

RateLimit RateOf(const ListenOptions& options) {
  if (options.accept_rate == 0) return RateLimit();
  return RateLimit(options.accept_rate, AcceptBurstOf(options));
}

// At least one and, so that the bucket never fills up meanwhile, at most half
// of the burst.
int64_t TokensAtOnce(const ListenOptions& options) {
  const double most = AcceptBurstOf(options) / 2;
  return static_cast<int64_t>(
      std::max(std::min(options.accept_rate * kRest, most), 1.0));
}

}  // namespace

Gate::Gate(EngineImpl& engine, uint16_t listener, const ListenOptions& options,
           size_t acceptors)
    : engine_(engine),
      listener_(listener),
      several_acceptors_(acceptors > 1),
      engine_ahead_(engine.options().when_full == WhenFull::kWait),
      own_ahead_(options.max_connections != 0 &&
                 options.when_full == WhenFull::kWait),
      own_(options.max_connections),
      rate_(RateOf(options)),
      tokens_at_once_(TokensAtOnce(options)) {}

Gate::Answer Gate::Ask() {
  if (!engine_.accepting()) return Answer::kNoPlace;
  if (rate_.limited() && !TakeToken()) return Answer::kNoToken;
  if (TakeAhead()) return Answer::kYes;
  if (rate_.limited()) GiveBackToken();
  return Answer::kNoPlace;
}

void Gate::Cancel() {
  if (rate_.limited()) GiveBackToken();
  GiveBackAhead();
}

Gate::Verdict Gate::Admit(const PeerName& peer) {
  SourceCounts* const sources = engine_.sources();
  SourceCounts::Answer answer;
  if (sources == nullptr || peer.kind == PeerName::Kind::kUnix) {
    answer = TakeAfterwards() ? SourceCounts::Answer::kTaken
                              : SourceCounts::Answer::kRefused;
  } else {
    const Source source = Source::Of(peer);
    answer = sources->TryTake(source, [this] { return TakeAfterwards(); });
    if (answer == SourceCounts::Answer::kSourceFull) {
      engine_.logger().Log(
          LogLevel::kWarning,
          "a connection from " + source.ToString() +
              " was rejected: it has max_connections_per_source, " +
              std::to_string(engine_.options().max_connections_per_source));
    }
  }
  if (answer == SourceCounts::Answer::kTaken) return Verdict::kIn;
  GiveBackAhead();
  return answer == SourceCounts::Answer::kRefused ? Verdict::kFull
                                                  : Verdict::kSourceFull;
}

void Gate::GiveBack(const PeerName& peer) {
  if (SourceCounts* const sources = engine_.sources();
      sources != nullptr && peer.kind != PeerName::Kind::kUnix) {
    sources->GiveBack(Source::Of(peer));
  }
  if (own_.bounded()) own_.GiveBack();
}

void Gate::Wake() {
  if (own_.bounded() && own_.TakeWanted()) {
    engine_.ResumeAccepting(Lack::kPlace, listener_);
  }
}

// --- Bounds.

// Looks at the listener's bound before it takes a place of the engine's. If it
// took one only to give it back, two acceptors could wake each other for ever.
bool Gate::TakeAhead() {
  for (;;) {
    if (own_ahead_ && own_.full()) {
      own_.Want();
      // One may have ended before it could know that we wait.
      if (own_.full()) return false;
    }
    if (engine_ahead_ && !engine_.places().TryTake()) {
      engine_.places().Want();
      if (engine_.places().full()) return false;
      continue;
    }
    if (!own_ahead_ || own_.TryTake()) return true;
    // Another acceptor was quicker.
    if (engine_ahead_) engine_.CancelPlace();
  }
}

void Gate::GiveBackAhead() {
  if (own_ahead_) {
    own_.GiveBack();
    Wake();
  }
  if (engine_ahead_) engine_.CancelPlace();
}

bool Gate::TakeAfterwards() {
  const bool own = own_.bounded() && !own_ahead_;
  if (engine_ahead_) return !own || own_.TryTake();
  if (!own) return engine_.places().TryTake();
  // Both or none. Who is not in here only gives places back: what is found to
  // have room, keeps it.
  MutexLock lock(rejecting_);
  if (own_.full() || !engine_.places().TryTake()) return false;
  own_.Take();
  return true;
}

// --- Rate.

bool Gate::TakeToken() {
  if (bucket_.TryTake(rate_, 1, PreciseNow())) return true;
  if (!several_acceptors_) return false;
  // What lacks may have been taken by an acceptor whose queue is empty.
  token_wanted_.store(true);
  return bucket_.TryTake(rate_, 1, PreciseNow());
}

void Gate::GiveBackToken() {
  bucket_.GiveBack(rate_, 1);
  if (token_wanted_.load() && token_wanted_.exchange(false)) {
    engine_.ResumeAccepting(Lack::kToken, listener_);
  }
}

std::chrono::nanoseconds Gate::TokenWait() const {
  return std::chrono::nanoseconds(
      bucket_.WaitFor(rate_, tokens_at_once_, PreciseNow()));
}

}  // namespace sluice::internal
