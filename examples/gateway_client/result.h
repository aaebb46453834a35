// gateway_client: what came out of a run.
#ifndef SLUICE_EXAMPLES_GATEWAY_CLIENT_RESULT_H_
#define SLUICE_EXAMPLES_GATEWAY_CLIENT_RESULT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/histogram.h"

namespace sluice::gateway {

// What BadClient does.
enum class BadInput : uint8_t {
  kTooLong,
  kCorruptLength,
  kUnknownCommand,
  kUnfinished,
};
inline constexpr size_t kBadInputs = 4;
const char* BadInputName(BadInput input);

struct Result {
  uint64_t players = 0;
  uint64_t logged_in = 0;
  uint64_t lost = 0;  // connections of honest players that we did not close
  double seconds = 0;

  uint64_t moves_sent = 0;
  uint64_t moves_answered = 0;
  examples::Histogram move_times;  // microseconds from when the move was due

  uint64_t logins = 0;  // of visitors
  uint64_t logins_ok = 0;
  uint64_t logins_come_back = 0;
  uint64_t logins_failed = 0;       // no answer, or no connection
  examples::Histogram login_times;  // from when due, with connecting

  uint64_t flood_sent = 0;
  uint64_t flood_answered = 0;
  uint64_t flood_lost = 0;

  std::array<uint64_t, kBadInputs> bad_closed = {};  // by the gateway
  uint64_t bad_open = 0;  // were still open at the end

  uint64_t wrong = 0;                 // answers that are not what was asked for
  std::vector<std::string> troubles;  // the first ones, in words
  bool interrupted = false;

  // Trouble that may come a million times: the first few are enough.
  void Wrong(const std::string& what);
  void Trouble(const std::string& what);

  bool ok() const;
  int exit_code() const;  // 0, 1, or 130 if interrupted
};

std::string Table(const Result& result);
std::string Json(const Result& result);

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_CLIENT_RESULT_H_
