// push: counters for people and programs.
#ifndef SLUICE_EXAMPLES_PUSH_REPORT_H_
#define SLUICE_EXAMPLES_PUSH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/push/topics.h"

namespace sluice::push {

// "news subscribers=2 published=5 delivered=8 ...": the answer to STATS.
std::string StatsLine(const TopicCounts& counts);

// A table of all topics, and a line for what does not belong to one of them.
std::string SummaryTable(const std::vector<TopicCounts>& topics,
                         uint64_t made_room, uint64_t refused);

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_REPORT_H_
