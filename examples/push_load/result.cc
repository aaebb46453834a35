#include "examples/push_load/result.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/format.h"

namespace sluice::push {
namespace {

using examples::FormatMicros;
using examples::FormatSeconds;
using examples::Histogram;
using examples::WithCommas;

void AddRow(std::string* table, const char* label, const std::string& value) {
  absl::StrAppendFormat(table, "  %-34s %s\n", label, value);
}

std::string OfAll(uint64_t part, uint64_t all) {
  return absl::StrCat(WithCommas(part), " of ", WithCommas(all));
}

std::string Times(const Histogram& h) {
  if (h.count() == 0) return "-";
  return absl::StrCat(FormatMicros(h.Quantile(0.5)), " / ",
                      FormatMicros(h.Quantile(0.99)), " / ",
                      FormatMicros(h.max()));
}

std::string JsonTimes(const Histogram& h) {
  if (h.count() == 0) return "null";
  return absl::StrCat("{\"p50\": ", h.Quantile(0.5),
                      ", \"p99\": ", h.Quantile(0.99), ", \"max\": ", h.max(),
                      "}");
}

}  // namespace

void Result::Trouble(const std::string& what) {
  if (std::find(troubles.begin(), troubles.end(), what) == troubles.end()) {
    troubles.push_back(what);
  }
}

double Result::per_second() const {
  return seconds > 0 ? static_cast<double>(counts.received) / seconds : 0;
}

bool Result::ok() const {
  return !interrupted && troubles.empty() && counts.subscribed == connections &&
         counts.failed == 0 && counts.lost == 0 && counts.missed == 0 &&
         counts.wrong == 0 && counts.received == expected &&
         counts.done == connections - slow && published == messages + 1 &&
         refused == 0;
}

int Result::exit_code() const { return interrupted ? 130 : ok() ? 0 : 1; }

std::string Table(const Result& r) {
  std::string table;
  AddRow(&table, "subscribed",
         absl::StrCat(OfAll(r.counts.subscribed, r.connections), " in ",
                      FormatSeconds(r.connect_seconds)));
  AddRow(&table, "connections lost", WithCommas(r.counts.lost));
  if (r.slow > 0) {
    AddRow(&table, "readers that never read", WithCommas(r.slow));
  }
  AddRow(&table, "messages",
         absl::StrCat(WithCommas(r.messages), " of ", WithCommas(r.bytes),
                      " bytes"));
  AddRow(&table, "received by the other readers",
         OfAll(r.counts.received, r.expected));
  AddRow(&table, "  a second",
         absl::StrCat(
             WithCommas(static_cast<uint64_t>(std::llround(r.per_second()))),
             ", in ", FormatSeconds(r.seconds)));
  AddRow(&table, "missed", WithCommas(r.counts.missed));
  AddRow(&table, "wrong, twice or out of order", WithCommas(r.counts.wrong));
  AddRow(&table, "first reader: p50 / p99 / max", Times(r.first));
  AddRow(&table, "last reader: p50 / p99 / max", Times(r.last));
  if (!r.server_stats.empty()) {
    // It has one message more: see OnMessage of a subscriber.
    AddRow(&table, "push says", r.server_stats);
  }
  for (const std::string& trouble : r.troubles) {
    absl::StrAppend(&table, "trouble: ", trouble, "\n");
  }
  absl::StrAppend(&table,
                  r.interrupted ? "interrupted: the figures are of the part "
                                  "that was done\n"
                  : r.ok() ? "ok: every reader had every message exactly once "
                             "and in order\n"
                           : "failed: not every reader had every message "
                             "exactly once and in order\n");
  return table;
}

std::string Json(const Result& r) {
  return absl::StrCat(
      "{\n  \"connections\": ", r.connections, ",\n  \"slow\": ", r.slow,
      ",\n  \"subscribed\": ", r.counts.subscribed,
      ",\n  \"lost\": ", r.counts.lost, ",\n  \"messages\": ", r.messages,
      ",\n  \"bytes\": ", r.bytes, ",\n  \"expected\": ", r.expected,
      ",\n  \"received\": ", r.counts.received,
      ",\n  \"missed\": ", r.counts.missed, ",\n  \"wrong\": ", r.counts.wrong,
      ",\n  \"seconds\": ", absl::StrFormat("%.3f", r.seconds),
      ",\n  \"per_second\": ", absl::StrFormat("%.0f", r.per_second()),
      ",\n  \"first_us\": ", JsonTimes(r.first),
      ",\n  \"last_us\": ", JsonTimes(r.last), "\n}\n");
}

}  // namespace sluice::push
