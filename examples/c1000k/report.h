// c1000k: what came out of it.
#ifndef SLUICE_EXAMPLES_C1000K_REPORT_H_
#define SLUICE_EXAMPLES_C1000K_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/c1000k/usage.h"
#include "examples/histogram.h"

namespace sluice::c1000k {

// Round trips in microseconds.
struct RoundTrips {
  uint64_t p50 = 0;
  uint64_t p99 = 0;
  uint64_t p999 = 0;
  uint64_t max = 0;
};
// nullopt if there were none.
std::optional<RoundTrips> Summarize(const examples::Histogram& histogram);

// The whole run, or the part of it that was done.
struct Result {
  uint64_t target = 0;
  int reactors = 0;
  std::string fd_tables;

  uint64_t peak = 0;          // held at the same time
  uint64_t dials_failed = 0;  // for good
  uint64_t dials_moved = 0;   // made again from another source address
  uint64_t lost = 0;

  // Paced heartbeats and, kept apart, the roll call.
  uint64_t paced_sent = 0;
  uint64_t paced_answered = 0;
  uint64_t roll_asked = 0;
  uint64_t roll_answered = 0;
  uint64_t wrong = 0;                  // replies that were not what was sent
  std::optional<RoundTrips> rtt;       // of the paced ones
  std::optional<RoundTrips> roll_rtt;  // of the roll call

  double connect_seconds = 0;
  double hold_seconds = 0;  // as it was, not as asked for
  double roll_seconds = 0;

  // At the peak, before the roll call.
  std::optional<uint64_t> server_rss;
  std::optional<double> user_slope;    // bytes a connection
  std::optional<double> kernel_bytes;  // slab and socket pages, both ends
  uint64_t kernel_connections = 0;     // ours at that moment
  // Sockets that other programs opened meanwhile: the kernel's figures are of
  // the whole system, so those are among the bytes.
  uint64_t foreign_sockets = 0;
  std::optional<int64_t> page_table_bytes;
  std::optional<int64_t> stack_bytes;

  std::optional<double> cpu_connect;  // of the server, seconds
  std::optional<double> cpu_hold;
  std::optional<double> cpu_total;  // until closing began

  bool interrupted = false;
  std::vector<std::string> troubles;  // in words

  uint64_t heartbeats_sent() const { return paced_sent + roll_asked; }
  uint64_t heartbeats_answered() const {
    return paced_answered + roll_answered;
  }
  // Kernel memory of one end of one connection: what a server alone would have
  // to pay. nullopt with fewer connections than tell themselves from the rest
  // of the system.
  std::optional<double> KernelBytesPerEnd() const;
  // Every connection was made, held to the end and answered.
  bool ok() const;
  int exit_code() const;  // 0, 1, or 130 if interrupted
};

// The table at the end.
std::string Table(const Result& result);

// The same as JSON, with the keys that are named in the README. Figures that
// could not be had are null. server_user_bytes_per_connection and
// kernel_bytes_per_connection are of one end, the server's: double the latter
// for what this machine spent on both.
std::string Json(const Result& result);

// InvalidArgument, naming the file, if it cannot be written.
absl::Status CheckWritable(const std::string& file);
absl::Status WriteFile(const std::string& file, const std::string& text);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_REPORT_H_
