#include "examples/gateway/counters.h"

#include <chrono>

#include "absl/strings/str_format.h"

namespace sluice::gateway {
namespace {

void AddRow(std::string* table, std::string_view name, uint64_t value,
            const char* unit = "") {
  absl::StrAppendFormat(table, "  %-36s %12d%s\n", std::string(name), value,
                        unit);
}

}  // namespace

std::string_view CountName(Count count) {
  switch (count) {
    case Count::kOpened:
      return "connections";
    case Count::kLogins:
      return "logins";
    case Count::kLoggedIn:
      return "logins: ok";
    case Count::kNobody:
      return "logins: no such player";
    case Count::kComeBack:
      return "logins: come back later";
    case Count::kLoginUnderWay:
      return "logins: one is under way";
    case Count::kMoves:
      return "moves";
    case Count::kLoginFirst:
      return "moves before the login";
    case Count::kPauses:
      return "pauses for too many packets";
    case Count::kTooLong:
      return "closed: packet too long";
    case Count::kCorruptLength:
      return "closed: corrupt length";
    case Count::kUnknownCommand:
      return "closed: unknown command";
    case Count::kBadBody:
      return "closed: body of the wrong size";
    case Count::kUnfinished:
      return "closed: unfinished packet";
    case Count::kIdle:
      return "closed: idle";
    case Count::kSlowReader:
      return "closed: does not read";
    case Count::kByPeer:
      return "closed: by the player";
    case Count::kReset:
      return "closed: reset";
    case Count::kDrained:
      return "closed: the gateway ends";
    case Count::kOther:
      return "closed: other";
    case Count::kHowMany:
      break;
  }
  return "?";
}

uint64_t Counters::Get(Count count) const {
  uint64_t sum = 0;
  for (const Lane& lane : lanes_) {
    sum +=
        lane.cells[static_cast<size_t>(count)].load(std::memory_order_relaxed);
  }
  return sum;
}

std::string Table(const Counters& counters, const WorkerPoolStats& pool) {
  std::string table;
  for (size_t i = 0; i < static_cast<size_t>(Count::kHowMany); ++i) {
    const auto count = static_cast<Count>(i);
    AddRow(&table, CountName(count), counters.Get(count));
  }
  AddRow(&table, "queries: in the queue", pool.queued);
  AddRow(&table, "queries: running", pool.running);
  AddRow(&table, "queries: done", pool.done);
  AddRow(&table, "queries: the player had gone", pool.dropped);
  AddRow(&table, "queries: no room in the queue", pool.rejected);
  AddRow(&table, "queries: p99 in the queue",
         static_cast<uint64_t>(
             std::chrono::duration_cast<std::chrono::microseconds>(
                 pool.queue_times.Percentile(0.99))
                 .count()),
         " us");
  return table;
}

}  // namespace sluice::gateway
