#include "examples/push_load/publisher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/push/command.h"

namespace sluice::push {

void Publisher::OnOpen(Connection& c) {
  publication_.ref = c.ref();
  c.Write("PING\n").IgnoreError();  // OnEnd tells what went wrong
}

void Publisher::OnLine(Connection&, std::string_view line) {
  const std::string stats = "OK STATS " + settings_.topic + " ";
  if (line == "PONG") {
    publication_.ready = true;
  } else if (line.starts_with("OK PUB " + settings_.topic + " ")) {
    ++publication_.answered;
  } else if (line.starts_with(stats)) {
    publication_.stats = line.substr(stats.size());
  } else {
    ++publication_.refused;
    Trouble(absl::StrCat("the publisher was told: ", Quoted(line)));
  }
}

void Publisher::OnEnd(CloseReason reason) {
  if (reason == CloseReason::kShutdown) return;  // we end
  publication_.lost = true;
  Trouble(absl::StrCat("the publisher's connection was lost: ",
                       std::string(CloseReasonName(reason))));
}

void Publisher::Trouble(std::string what) {
  if (publication_.trouble.empty()) publication_.trouble = std::move(what);
}

}  // namespace sluice::push
