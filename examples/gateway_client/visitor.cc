#include "examples/gateway_client/visitor.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "examples/gateway/accounts.h"
#include "examples/gateway_client/open_loop.h"

namespace sluice::gateway {

Visitor::Visitor(Run& run, uint64_t number, int64_t due)
    : Peer(run), name_(absl::StrCat("visitor", number)), due_(due) {
  ++run_.result.logins;
  ++run_.visiting;
}

void Visitor::OnOpen(Connection& c) {
  Send(c, Payload::Login(name_)).IgnoreError();  // OnEnd tells
}

void Visitor::OnPacket(Connection& c, const Packet& packet) {
  c.Close();
  answered_ = true;
  const bool refused = packet.command == Command::kRefused;
  if (refused &&
      ParseRefused(packet.body) ==
          Refusal{.command = Command::kLogin, .why = Why::kComeBack}) {
    ++run_.result.logins_come_back;
  } else if (packet.command == Command::kLoggedIn &&
             ParseLoggedIn(packet.body) == Accounts::Number(name_)) {
    ++run_.result.logins_ok;
    run_.result.login_times.Record(
        static_cast<uint64_t>(std::max<int64_t>(0, NowNs() - due_)) / 1'000);
  } else {
    run_.result.Wrong(absl::StrCat(name_, ": not the answer to its login"));
  }
}

void Visitor::OnEnd(std::string_view why) {
  --run_.visiting;
  if (answered_) return;
  ++run_.result.logins_failed;
  run_.result.Trouble(absl::StrCat(name_, ": ", std::string(why)));
}

}  // namespace sluice::gateway
