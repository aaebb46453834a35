#include "examples/c1000k/report.h"

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/c1000k/limits.h"

namespace sluice::c1000k {
namespace {

using examples::Histogram;

// Below this, what other programs do to the slab is as large as what we do.
constexpr uint64_t kFewestForKernel = 1'000;

}  // namespace

std::optional<RoundTrips> Summarize(const Histogram& h) {
  if (h.count() == 0) return std::nullopt;
  return RoundTrips{.p50 = h.Quantile(0.5),
                    .p99 = h.Quantile(0.99),
                    .p999 = h.Quantile(0.999),
                    .max = h.max()};
}

std::optional<double> Result::KernelBytesPerEnd() const {
  if (!kernel_bytes || kernel_connections < kFewestForKernel) {
    return std::nullopt;
  }
  return *kernel_bytes /
         static_cast<double>(kernel_connections * kEnds + foreign_sockets);
}

bool Result::ok() const {
  return !interrupted && troubles.empty() && peak >= target &&
         dials_failed == 0 && lost == 0 && wrong == 0 &&
         paced_answered == paced_sent && roll_asked == target &&
         roll_answered == target;
}

int Result::exit_code() const { return interrupted ? 130 : ok() ? 0 : 1; }

std::string Json(const Result& r) {
  const auto number = [](const std::optional<double>& value) {
    return value ? absl::StrFormat("%.3f", *value) : std::string("null");
  };
  const auto trip = [&r](uint64_t RoundTrips::*which) {
    return r.rtt ? absl::StrCat(*r.rtt.*which) : std::string("null");
  };
  return absl::StrCat(
      "{\n  \"connections_target\": ", r.target,
      ",\n  \"connections_peak\": ", r.peak,
      ",\n  \"dials_failed\": ", r.dials_failed,
      ",\n  \"connections_lost\": ", r.lost,
      ",\n  \"heartbeats_sent\": ", r.heartbeats_sent(),
      ",\n  \"heartbeats_answered\": ", r.heartbeats_answered(),
      ",\n  \"rtt_us\": {\"p50\": ", trip(&RoundTrips::p50),
      ", \"p99\": ", trip(&RoundTrips::p99),
      ", \"p999\": ", trip(&RoundTrips::p999),
      ", \"max\": ", trip(&RoundTrips::max), "}",
      ",\n  \"server_user_bytes_per_connection\": ", number(r.user_slope),
      ",\n  \"server_rss_bytes\": ",
      r.server_rss ? absl::StrCat(*r.server_rss) : "null",
      ",\n  \"kernel_bytes_per_connection\": ", number(r.KernelBytesPerEnd()),
      ",\n  \"connect_seconds\": ", number(r.connect_seconds),
      ",\n  \"server_cpu_seconds\": ", number(r.cpu_total),
      ",\n  \"reactors\": ", r.reactors, ",\n  \"fd_tables\": \"", r.fd_tables,
      "\"\n}\n");
}

absl::Status CheckWritable(const std::string& file) {
  // Appending: what is there stays until the run is over.
  std::FILE* f = std::fopen(file.c_str(), "ae");
  if (f == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--json=", file, ": ",
        std::string(
            absl::ErrnoToStatus(errno, "cannot be written").message())));
  }
  std::fclose(f);
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& file, const std::string& text) {
  std::FILE* f = std::fopen(file.c_str(), "we");
  if (f == nullptr) return absl::ErrnoToStatus(errno, file);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), f) == text.size();
  const int error = errno;
  if (std::fclose(f) != 0 || !written) return absl::ErrnoToStatus(error, file);
  return absl::OkStatus();
}

}  // namespace sluice::c1000k
