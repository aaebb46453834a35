#include "examples/gateway_client/result.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/format.h"

namespace sluice::gateway {
namespace {

using examples::FormatMicros;
using examples::Histogram;
using examples::WithCommas;

constexpr size_t kMostTroubles = 5;

void AddRow(std::string* table, const char* label, const std::string& value) {
  absl::StrAppendFormat(table, "  %-34s %s\n", label, value);
}

std::string OfAll(uint64_t part, uint64_t all) {
  return absl::StrCat(WithCommas(part), " of ", WithCommas(all));
}

std::string Times(const Histogram& h) {
  if (h.count() == 0) return "-";
  return absl::StrCat(
      FormatMicros(h.Quantile(0.5)), " / ", FormatMicros(h.Quantile(0.99)),
      " / ", FormatMicros(h.Quantile(0.999)), " / ", FormatMicros(h.max()));
}

std::string JsonTimes(const Histogram& h) {
  if (h.count() == 0) return "null";
  return absl::StrCat(
      "{\"p50\": ", h.Quantile(0.5), ", \"p99\": ", h.Quantile(0.99),
      ", \"p999\": ", h.Quantile(0.999), ", \"max\": ", h.max(), "}");
}

}  // namespace

const char* BadInputName(BadInput input) {
  switch (input) {
    case BadInput::kTooLong:
      return "packet too long";
    case BadInput::kCorruptLength:
      return "corrupt length";
    case BadInput::kUnknownCommand:
      return "unknown command";
    case BadInput::kUnfinished:
      return "unfinished packet";
  }
  return "?";
}

void Result::Wrong(const std::string& what) {
  ++wrong;
  Trouble(what);
}

void Result::Trouble(const std::string& what) {
  if (troubles.size() < kMostTroubles) troubles.push_back(what);
}

bool Result::ok() const {
  return !interrupted && troubles.empty() && logged_in == players &&
         lost == 0 && moves_answered == moves_sent && logins_failed == 0 &&
         flood_lost == 0 && wrong == 0;
}

int Result::exit_code() const { return interrupted ? 130 : ok() ? 0 : 1; }

std::string Table(const Result& r) {
  std::string table;
  AddRow(&table, "players logged in", OfAll(r.logged_in, r.players));
  AddRow(&table, "players that lost their connection", WithCommas(r.lost));
  AddRow(&table, "moves answered", OfAll(r.moves_answered, r.moves_sent));
  AddRow(&table, "  p50 / p99 / p99.9 / max", Times(r.move_times));
  if (r.logins > 0) {
    AddRow(&table, "visitors logged in", OfAll(r.logins_ok, r.logins));
    AddRow(&table, "  told to come back", WithCommas(r.logins_come_back));
    AddRow(&table, "  failed", WithCommas(r.logins_failed));
    AddRow(&table, "  p50 / p99 / p99.9 / max", Times(r.login_times));
  }
  if (r.flood_sent > 0) {
    AddRow(&table, "flood answered", OfAll(r.flood_answered, r.flood_sent));
  }
  const uint64_t bad =
      std::accumulate(r.bad_closed.begin(), r.bad_closed.end(), uint64_t{0});
  if (bad + r.bad_open > 0) {
    for (size_t i = 0; i < kBadInputs; ++i) {
      AddRow(&table,
             absl::StrCat("closed for ", BadInputName(static_cast<BadInput>(i)))
                 .c_str(),
             WithCommas(r.bad_closed[i]));
    }
    AddRow(&table, "bad clients not closed yet", WithCommas(r.bad_open));
  }
  AddRow(&table, "wrong answers", WithCommas(r.wrong));
  for (const std::string& trouble : r.troubles) {
    absl::StrAppend(&table, "trouble: ", trouble, "\n");
  }
  absl::StrAppend(&table,
                  r.interrupted ? "interrupted: the figures are of the part "
                                  "that was done\n"
                  : r.ok() ? "ok: every player kept its connection and had "
                             "every answer\n"
                           : "failed: not every player kept its connection "
                             "and had every answer\n");
  return table;
}

std::string Json(const Result& r) {
  return absl::StrCat(
      "{\n  \"players\": ", r.players, ",\n  \"lost\": ", r.lost,
      ",\n  \"seconds\": ", absl::StrFormat("%.3f", r.seconds),
      ",\n  \"moves_sent\": ", r.moves_sent,
      ",\n  \"moves_answered\": ", r.moves_answered,
      ",\n  \"move_us\": ", JsonTimes(r.move_times),
      ",\n  \"logins\": ", r.logins, ",\n  \"logins_ok\": ", r.logins_ok,
      ",\n  \"logins_come_back\": ", r.logins_come_back,
      ",\n  \"login_us\": ", JsonTimes(r.login_times),
      ",\n  \"flood_sent\": ", r.flood_sent,
      ",\n  \"flood_answered\": ", r.flood_answered,
      ",\n  \"wrong\": ", r.wrong, "\n}\n");
}

}  // namespace sluice::gateway
