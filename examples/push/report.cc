#include "examples/push/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::push {

std::string StatsLine(const TopicCounts& counts) {
  const GroupStats& g = counts.group;
  return absl::StrCat(counts.name, " subscribers=", counts.subscribers,
                      " published=", g.published, " delivered=", g.delivered,
                      " skipped=", g.skipped, " dropped=", g.dropped,
                      " closed=", g.closed, " pending=", g.pending);
}

std::string SummaryTable(const std::vector<TopicCounts>& topics,
                         uint64_t made_room, uint64_t refused) {
  int width = 5;
  for (const TopicCounts& topic : topics) {
    width = std::max(width, static_cast<int>(topic.name.size()));
  }
  std::string table =
      absl::StrFormat("  %-*s %12s %12s %12s %12s %12s\n", width, "topic",
                      "published", "delivered", "skipped", "dropped", "closed");
  for (const TopicCounts& topic : topics) {
    const GroupStats& g = topic.group;
    absl::StrAppendFormat(&table, "  %-*s %12d %12d %12d %12d %12d\n", width,
                          topic.name, g.published, g.delivered, g.skipped,
                          g.dropped, g.closed);
  }
  absl::StrAppend(&table, "  topics: ", topics.size(),
                  "; made room for others: ", made_room,
                  "; lines refused: ", refused, "\n");
  return table;
}

}  // namespace sluice::push
