// What is printed: progress, the table and the JSON.
#include "examples/c1000k/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "examples/c1000k/progress.h"

namespace sluice::c1000k {
namespace {

using testing::HasSubstr;
using testing::Not;

Result Good() {
  Result r;
  r.target = 1'000'000;
  r.reactors = 52;
  r.fd_tables = "per_reactor";
  r.peak = 1'000'000;
  r.paced_sent = r.paced_answered = 150'000;
  r.roll_asked = r.roll_answered = 1'000'000;
  r.rtt = RoundTrips{.p50 = 85, .p99 = 1'250, .p999 = 3'300, .max = 9'001};
  r.roll_rtt = RoundTrips{.p50 = 5, .p99 = 6, .p999 = 7, .max = 8};
  r.connect_seconds = 31.25;
  r.hold_seconds = 30;
  r.roll_seconds = 10;
  r.server_rss = 90'000'000;
  r.user_slope = 80.25;
  r.kernel_bytes = 8.2e9;
  r.kernel_connections = 1'000'000;
  r.page_table_bytes = 1'000'000;
  r.stack_bytes = 0;
  r.cpu_connect = 14;
  r.cpu_hold = 1;
  r.cpu_total = 21.5;
  return r;
}

TEST(Json, HasEveryKey) {
  EXPECT_EQ(Json(Good()), R"({
  "connections_target": 1000000,
  "connections_peak": 1000000,
  "dials_failed": 0,
  "connections_lost": 0,
  "heartbeats_sent": 1150000,
  "heartbeats_answered": 1150000,
  "rtt_us": {"p50": 85, "p99": 1250, "p999": 3300, "max": 9001},
  "server_user_bytes_per_connection": 80.250,
  "server_rss_bytes": 90000000,
  "kernel_bytes_per_connection": 4100.000,
  "connect_seconds": 31.250,
  "server_cpu_seconds": 21.500,
  "reactors": 52,
  "fd_tables": "per_reactor"
}
)");
}

TEST(Json, WhatCouldNotBeHadIsNull) {
  Result r;
  r.fd_tables = "shared";
  const std::string json = Json(r);
  EXPECT_THAT(json, HasSubstr("\"p50\": null"));
  EXPECT_THAT(json, HasSubstr("\"server_user_bytes_per_connection\": null"));
  EXPECT_THAT(json, HasSubstr("\"server_rss_bytes\": null"));
  EXPECT_THAT(json, HasSubstr("\"kernel_bytes_per_connection\": null"));
  EXPECT_THAT(json, HasSubstr("\"server_cpu_seconds\": null"));
}

TEST(Result, EachFailedConditionCounts) {
  EXPECT_EQ(Good().exit_code(), 0);
  const auto code = [](auto change) {
    Result r = Good();
    change(r);
    return r.exit_code();
  };
  EXPECT_EQ(code([](Result& r) { r.peak = 999'999; }), 1);
  EXPECT_EQ(code([](Result& r) { r.dials_failed = 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.lost = 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.paced_answered -= 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.paced_answered += 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.roll_answered -= 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.wrong = 1; }), 1);
  EXPECT_EQ(code([](Result& r) { r.troubles.push_back("x"); }), 1);
  EXPECT_EQ(code([](Result& r) { r.interrupted = true; }), 130);
  // Moved dials were made in the end.
  EXPECT_EQ(code([](Result& r) { r.dials_moved = 5; }), 0);
}

TEST(Table, SaysEverything) {
  const std::string table = Table(Good());
  for (const char* text : {"1,000,000 of 1,000,000",
                           "52 reactors, per_reactor",
                           "dials failed",
                           "connections lost",
                           "31.2 s",
                           "150,000 of 150,000",
                           "1,150,000 of 1,150,000",
                           "85 us / 1.25 ms / 3.30 ms / 9.00 ms",
                           "21.5 s",
                           "14.0 s connecting",
                           "90.0 MB",
                           "80.2 B",
                           "8.20 GB",
                           "8.20 KB",
                           "4.10 KB",
                           "both ends",
                           "one end",
                           "heartbeats only",
                           "in the roll call",
                           "ok: every connection"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(Table, SaysWhatWentWrong) {
  Result r = Good();
  r.troubles.push_back("the server died");
  r.lost = 3;
  const std::string table = Table(r);
  EXPECT_THAT(table, HasSubstr("trouble: the server died"));
  EXPECT_THAT(table, HasSubstr("failed: not every connection"));
  EXPECT_THAT(table, Not(HasSubstr("ok:")));
  r.interrupted = true;
  EXPECT_THAT(Table(r), HasSubstr("interrupted"));
}

TEST(Table, FewConnectionsGiveNoBytesEach) {
  Result r = Good();
  r.kernel_connections = 100;
  r.user_slope = std::nullopt;
  EXPECT_THAT(Table(r), HasSubstr("too few connections to tell"));
  EXPECT_FALSE(r.KernelBytesPerEnd().has_value());
}

// The kernel counts for the whole system: what others opened is no cost of
// ours.
TEST(Table, SocketsOfOthersAreTakenOut) {
  Result r = Good();
  r.foreign_sockets = 2'000'000;
  r.kernel_bytes = 16.4e9;
  EXPECT_NEAR(r.KernelBytesPerEnd().value(), 4100, 0.1);
  EXPECT_THAT(Table(r), HasSubstr("2,000,000 sockets of other programs"));
  EXPECT_THAT(Table(Good()), Not(HasSubstr("other programs")));
}

TEST(Progress, LineAndBar) {
  Moment m;
  m.phase = "connect";
  m.done = 0.5;
  m.held = 500'000;
  m.target = 1'000'000;
  m.connects_per_second = 41'200.4;
  m.failures = 2;
  m.rtt_p50_us = 85;
  m.rtt_p99_us = 1250;
  m.server_rss = 45'000'000;
  m.kernel_bytes = 4.1e9;
  EXPECT_EQ(PlainLine(m),
            "connect    50 %  500,000/1,000,000 held  41,200/s  2 failed  rtt "
            "p50 85 us p99 1.25 ms  user RSS 45.0 MB  kernel 4.10 GB");
  // Both fit into 80 columns.
  const BarLines lines = Bar(m, 80);
  EXPECT_EQ(
      lines.bar,
      "connect   [##########..........] 500,000/1,000,000 held  41,200/s  "
      "2 failed");
  EXPECT_EQ(
      lines.figures,
      "          rtt p50 85 us p99 1.25 ms  user RSS 45.0 MB  kernel 4.10 "
      "GB");
}

TEST(Progress, ABarNeverFillsTheLastColumn) {
  Moment m;
  m.phase = "hold";
  m.done = 2;  // a late step
  for (const size_t width : {10u, 20u, 40u, 80u}) {
    EXPECT_LE(Bar(m, width).bar.size(), width - 1);
    EXPECT_LE(Bar(m, width).figures.size(), width - 1);
  }
  EXPECT_THAT(Bar(m, 300).bar, HasSubstr("[####################]"));
}

TEST(JsonFile, IsWrittenAndChecked) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "c1000k_report_test";
  std::filesystem::create_directories(folder);
  const std::string file = folder / "result.json";
  ASSERT_TRUE(WriteFile(file, "old").ok());
  ASSERT_TRUE(CheckWritable(file).ok());
  std::ifstream kept(file);
  std::string text;
  kept >> text;
  EXPECT_EQ(text, "old");  // asking changes nothing
  ASSERT_TRUE(WriteFile(file, "{}").ok());
  std::ifstream in(file);
  in >> text;
  EXPECT_EQ(text, "{}");

  const std::string nowhere = folder / "no" / "such" / "folder.json";
  const absl::Status s = CheckWritable(nowhere);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(s.message()), HasSubstr(nowhere));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::c1000k
