#include "examples/push_load/subscriber.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "examples/gateway_client/open_loop.h"
#include "examples/push/command.h"

namespace sluice::push {

void Subscriber::OnOpen(Connection& c) {
  // A failed write ends the connection, and OnEnd says so.
  c.Write(absl::StrCat("SUB ", lane_.settings_.topic, "\n")).IgnoreError();
}

void Subscriber::OnLine(Connection& c, std::string_view line) {
  if (!subscribed_) {
    if (line != "OK SUB " + lane_.settings_.topic) {
      Wrong("not the answer to SUB", line);
      return;
    }
    subscribed_ = true;
    lane_.Add(lane_.subscribed_);
    lane_.DialOver();
    if (slow_) pause_ = c.PauseRead();
    return;
  }
  const std::optional<uint32_t> number = lane_.messages_.Parse(line);
  if (!number) {
    Wrong("not a message that was sent", line);
  } else if (*number > lane_.settings_.messages) {
    Wrong("a message from beyond the end", line);
  } else if (*number < next_) {
    Wrong("a message again, or too late", line);
  } else {
    OnMessage(*number);
  }
}

void Subscriber::OnMessage(uint32_t number) {
  if (number > next_) lane_.Add(lane_.missed_, number - next_);
  next_ = number + 1;
  // One more than is counted and timed: whatever came twice came before it.
  if (number == lane_.settings_.messages) return lane_.Add(lane_.done_);
  lane_.receipts_.Received(number, gateway::NowNs());
  lane_.Add(lane_.received_);
}

void Subscriber::Wrong(std::string_view what, std::string_view line) {
  lane_.Add(lane_.wrong_);
  lane_.Trouble(absl::StrCat(std::string(what), ": ", Quoted(line)));
}

void Subscriber::OnEnd(CloseReason reason) {
  if (reason == CloseReason::kShutdown) return;  // we end
  // Push may close who does not read; it says how many it has.
  if (slow_ && subscribed_) return;
  lane_.Add(lane_.lost_);
  lane_.Trouble(absl::StrCat("a connection was lost: ",
                             std::string(CloseReasonName(reason))));
  if (!subscribed_) lane_.DialOver();
}

}  // namespace sluice::push
