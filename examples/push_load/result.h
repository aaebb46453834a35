// push_load: what came out of a run.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_RESULT_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/histogram.h"
#include "examples/push_load/lane.h"
#include "examples/push_load/settings.h"

namespace sluice::push {

struct Result {
  uint64_t connections = 0;
  uint64_t slow = 0;  // of them
  double connect_seconds = 0;
  LaneCounts counts;

  uint64_t messages = 0;
  uint64_t bytes = 0;      // of text in each
  uint64_t published = 0;  // and push has said OK
  uint64_t refused = 0;    // and push has said something else
  uint64_t expected = 0;   // of counts.received: messages times fast readers
  double seconds = 0;      // from when the first was due to the last receipt
  // From when a message was due until its first and its last reader had it,
  // microseconds.
  examples::Histogram first;
  examples::Histogram last;

  std::string server_stats;           // what push counted, in its words
  std::vector<std::string> troubles;  // the first ones, in words
  bool interrupted = false;

  void Trouble(const std::string& what);  // the same again is left out

  double per_second() const;
  bool ok() const;
  int exit_code() const;  // 0, 1, or 130 if interrupted
};

std::string Table(const Result& result);
std::string Json(const Result& result);

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_RESULT_H_
