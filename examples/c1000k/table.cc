// The table of report.h.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/c1000k/report.h"
#include "examples/format.h"

namespace sluice::c1000k {
namespace {

using examples::FormatBytes;
using examples::FormatMicros;
using examples::FormatSeconds;
using examples::WithCommas;

struct Row {
  std::string label;
  std::string value;
  std::string note;
};
using Rows = std::vector<Row>;

constexpr const char* kNone = "-";

std::string Bytes(const std::optional<double>& bytes) {
  return bytes ? FormatBytes(*bytes) : kNone;
}

std::string Seconds(const std::optional<double>& seconds) {
  return seconds ? FormatSeconds(*seconds) : kNone;
}

std::string Trips(const std::optional<RoundTrips>& t) {
  if (!t) return kNone;
  return absl::StrCat(FormatMicros(t->p50), " / ", FormatMicros(t->p99), " / ",
                      FormatMicros(t->p999), " / ", FormatMicros(t->max));
}

std::string OfAll(uint64_t part, uint64_t all) {
  return absl::StrCat(WithCommas(part), " of ", WithCommas(all));
}

std::string PerSecond(uint64_t count, double seconds) {
  if (seconds <= 0 || count == 0) return "";
  return absl::StrCat(WithCommas(static_cast<uint64_t>(
                          std::llround(static_cast<double>(count) / seconds))),
                      " a second");
}

void Connections(const Result& r, Rows& rows) {
  rows.push_back(
      {"connections held at the peak", OfAll(r.peak, r.target),
       absl::StrCat(r.reactors, r.reactors == 1 ? " reactor, " : " reactors, ",
                    r.fd_tables, " descriptor tables")});
  rows.push_back({"dials failed", WithCommas(r.dials_failed), ""});
  if (r.dials_moved > 0) {
    rows.push_back({"dials made again", WithCommas(r.dials_moved),
                    "their source address had no port left"});
  }
  rows.push_back({"connections lost", WithCommas(r.lost), ""});
  rows.push_back({"time to connect", FormatSeconds(r.connect_seconds),
                  PerSecond(r.peak, r.connect_seconds)});
  rows.push_back({"time held", FormatSeconds(r.hold_seconds), ""});
}

void Heartbeats(const Result& r, Rows& rows) {
  rows.push_back({"heartbeats answered", OfAll(r.paced_answered, r.paced_sent),
                  PerSecond(r.paced_sent, r.hold_seconds)});
  rows.push_back({"roll call answered", OfAll(r.roll_answered, r.target),
                  "one last message to each connection, at full speed"});
  rows.push_back({"all messages answered",
                  OfAll(r.heartbeats_answered(), r.heartbeats_sent()),
                  "heartbeats and roll call, checked byte for byte"});
  if (r.wrong > 0) {
    rows.push_back({"wrong replies", WithCommas(r.wrong), ""});
  }
  rows.push_back(
      {"round trip p50 / p99 / p99.9 / max", Trips(r.rtt), "heartbeats only"});
  rows.push_back({"  in the roll call", Trips(r.roll_rtt),
                  PerSecond(r.roll_answered, r.roll_seconds)});
}

void Costs(const Result& r, Rows& rows) {
  std::string split;
  if (r.cpu_connect && r.cpu_hold && r.cpu_total) {
    split = absl::StrCat(FormatSeconds(*r.cpu_connect), " connecting, ",
                         FormatSeconds(*r.cpu_hold), " holding, ",
                         FormatSeconds(std::max(
                             0.0, *r.cpu_total - *r.cpu_connect - *r.cpu_hold)),
                         " in the roll call");
  }
  rows.push_back({"server CPU", Seconds(r.cpu_total), split});
  rows.push_back(
      {"server user memory (RSS)",
       r.server_rss ? FormatBytes(static_cast<double>(*r.server_rss)) : kNone,
       "the whole process"});
  rows.push_back(
      {"  each connection",
       r.user_slope ? absl::StrFormat("%.1f B", *r.user_slope) : kNone,
       r.user_slope ? "slope of RSS over connections"
                    : "too few connections to tell"});
  const std::optional<double> end = r.KernelBytesPerEnd();
  std::string of = "slab and socket buffers, both ends of each connection";
  if (r.foreign_sockets > r.kernel_connections / 50) {
    absl::StrAppend(&of, ", and ", WithCommas(r.foreign_sockets),
                    " sockets of other programs");
  }
  rows.push_back({"kernel memory", Bytes(r.kernel_bytes), of});
  rows.push_back({"  each connection, both ends",
                  Bytes(end ? std::optional<double>(*end * 2) : end),
                  end ? "server and client on this machine"
                      : "too few connections to tell"});
  rows.push_back({"  each connection, one end", Bytes(end),
                  end ? "what a server alone pays" : ""});
  if (r.page_table_bytes && r.stack_bytes) {
    rows.push_back(
        {"  page tables / kernel stacks",
         absl::StrCat(FormatBytes(static_cast<double>(*r.page_table_bytes)),
                      " / ", FormatBytes(static_cast<double>(*r.stack_bytes))),
         "beside it, of the whole system"});
  }
}

}  // namespace

std::string Table(const Result& r) {
  Rows rows;
  Connections(r, rows);
  Heartbeats(r, rows);
  Costs(r, rows);
  size_t label = 0;
  size_t value = 0;
  for (const Row& row : rows) {
    label = std::max(label, row.label.size());
    // The widest values are the four round trips: they would push all notes far
    // to the right, so they stick out instead.
    if (row.value.size() <= 26) value = std::max(value, row.value.size());
  }
  std::string text = "\n";
  for (const Row& row : rows) {
    std::string line =
        absl::StrFormat("  %-*s  %*s", static_cast<int>(label), row.label,
                        static_cast<int>(value), row.value);
    if (!row.note.empty()) absl::StrAppend(&line, "  ", row.note);
    absl::StrAppend(&text, line, "\n");
  }
  absl::StrAppend(&text, "\n");
  for (const std::string& trouble : r.troubles) {
    absl::StrAppend(&text, "trouble: ", trouble, "\n");
  }
  absl::StrAppend(&text,
                  r.interrupted ? "interrupted: the figures are of the part "
                                  "that was done\n"
                  : r.ok() ? "ok: every connection was made, held to the end "
                             "and answered\n"
                           : "failed: not every connection was made, held to "
                             "the end and answered\n");
  return text;
}

}  // namespace sluice::c1000k
