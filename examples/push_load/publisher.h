// push_load: the connection that publishes.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_PUBLISHER_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_PUBLISHER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/push_load/line_user.h"
#include "examples/push_load/messages.h"
#include "examples/push_load/settings.h"
#include "reactor/connection_ref.h"

namespace sluice::push {

// What it is told and what it tells; outlives the connection.
// Thread: that of the connection's loop.
struct Publication {
  ConnectionRef ref;   // once it is there
  bool ready = false;  // push has answered it
  bool lost = false;
  std::vector<int64_t> due;  // when each message was, nanoseconds
  uint64_t sent = 0;
  uint64_t answered = 0;  // "OK PUB"
  uint64_t refused = 0;   // "ERR"
  std::string stats;      // the answer to STATS
  std::string trouble;    // the first one
};

class Publisher : public LineUser {
 public:
  Publisher(const LoadSettings& settings, Publication& publication)
      : settings_(settings), publication_(publication) {}

  void OnOpen(Connection& c) override;
  void OnLine(Connection& c, std::string_view line) override;
  void OnEnd(CloseReason reason) override;

 private:
  void Trouble(std::string what);

  const LoadSettings& settings_;
  Publication& publication_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_PUBLISHER_H_
