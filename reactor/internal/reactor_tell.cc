// What a handler is told about output that waits or has left, and about input
// it left unread while reading was paused. All of it from FlushDirty, one thing
// at a time and never inside another callback of the connection: what a handler
// does about one may change what is to be told next.
#include <string>
#include <utility>

#include "reactor/internal/reactor_impl.h"

namespace sluice::internal {

bool ReactorImpl::HasNews(const Connection& c) const {
  const ActiveState& active = *c.active_;
  const OutputWatch* watch = active.watch.get();
  if (watch != nullptr && !watch->marks.empty() &&
      watch->marks.front().at <= watch->taken) {
    return true;
  }
  if (StateOf(c.state_) != ConnectionState::kOpen) return false;
  const size_t bytes = active.out.bytes();
  return (active.above_high ? bytes <= low_water_ : bytes > high_water_) ||
         (active.tell_again && active.pauses == 0 && !active.rate_paused);
}

void ReactorImpl::TellNews(Connection& c) {
  ActiveState& active = *c.active_;
  OutputWatch* const watch = active.watch.get();
  if (watch != nullptr && !watch->marks.empty() &&
      watch->marks.front().at <= watch->taken) {
    SentCallback done = std::move(watch->marks.front().done);
    watch->marks.pop_front();
    if (watch->empty()) active.watch = nullptr;
    RunCallback(c, [&] {
      std::move(done)(c, absl::OkStatus());
      return Action::kNone;
    });
    return;
  }
  const size_t bytes = active.out.bytes();
  if (!active.above_high && bytes > high_water_) {
    active.above_high = true;
    if (watch != nullptr) watch->source_pause = ReadPause(watch->source);
    RunCallback(c, [&] {
      handler_.OnHighWater(c);
      return Action::kNone;
    });
  } else if (active.above_high && bytes <= low_water_) {
    active.above_high = false;
    if (watch != nullptr) watch->source_pause.Release();
    RunCallback(c, [&] {
      handler_.OnLowWater(c);
      return Action::kNone;
    });
  } else {
    active.tell_again = false;
    Wake(c);
  }
}

// At the end, before OnClose: nobody is left without an answer.
void ReactorImpl::TellUnsent(Connection& c) {
  OutputWatch& watch = *c.active_->watch;
  const size_t unsent = c.active_->unsent + c.active_->out.bytes();
  const absl::Status lost = absl::UnavailableError(
      "the connection ended (" + std::string(CloseReasonName(c.reason_)) +
      ") with " + std::to_string(unsent) + " bytes of output unsent");
  while (!watch.marks.empty()) {
    OutputWatch::Mark mark = std::move(watch.marks.front());
    watch.marks.pop_front();
    Guard("a NotifySent callback", [&] {
      std::move(mark.done)(c, mark.at <= watch.taken ? absl::OkStatus() : lost);
    });
  }
}

void ReactorImpl::NotifySent(Connection& c, SentCallback done) {
  if (StateOf(c.state_) == ConnectionState::kClosed) {
    std::move(done)(c, absl::UnavailableError("the connection is closed"));
    return;
  }
  const size_t ahead = Outbound(c);
  ActiveState& active = Activate(c);
  if (active.watch == nullptr) active.watch = std::make_unique<OutputWatch>();
  active.watch->marks.push_back({active.watch->taken + ahead, std::move(done)});
  if (in_callback_ != &c) MarkDirty(c);
}

void ReactorImpl::PauseWhileHigh(Connection& c, const ConnectionRef& source) {
  if (StateOf(c.state_) >= ConnectionState::kMarked) return;
  ActiveState& active = Activate(c);
  if (active.watch == nullptr) active.watch = std::make_unique<OutputWatch>();
  active.watch->source = source;
  active.watch->source_pause =
      active.above_high ? ReadPause(source) : ReadPause();
  if (active.watch->empty()) active.watch = nullptr;
  if (in_callback_ != &c) MarkDirty(c);
}

}  // namespace sluice::internal
