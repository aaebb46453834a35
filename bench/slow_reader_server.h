// Internal: the server that slow_reader measures.
#ifndef SLUICE_BENCH_SLOW_READER_SERVER_H_
#define SLUICE_BENCH_SLOW_READER_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "bench/server_process.h"
#include "reactor/options.h"

namespace sluice::bench {

// What is written begins with its number; the rest is the same in all.
inline constexpr size_t kPieceBytes = size_t{64} << 10;
std::string Piece();
void NumberPiece(uint64_t number, std::string* piece);
uint64_t PieceNumber(const std::string& piece);

struct SlowReaderOptions {
  int cpu = 0;
  size_t cap = 0;  // ConnectionLimits::max_outbound
  WhenOverflow when_overflow = WhenOverflow::kRefuse;
  uint64_t pieces = 0;  // that each byte from a client of other_port asks for
  int slice = 1;        // of them in one turn of the loop
  std::chrono::microseconds pace{0};  // at least, from turn to turn
};

// ServerReport::counts: what became of the pieces, and of the connections they
// were for.
enum SlowReaderCount : size_t {
  kAccepted,  // Write answered OK
  kRefused,   // ... ResourceExhausted: over the cap
  kGone,      // the connection was closing or closed
  kEnded,
  kSlowConsumers,  // ended for that reason
};
inline uint64_t PiecesOffered(const ServerReport& report) {
  return report.counts[kAccepted] + report.counts[kRefused] +
         report.counts[kGone];
}

// One reactor: echoes on `port`, writes on `other_port`. Says that it is ready
// on `control`. Returns only when it failed.
absl::Status RunSlowReaderServer(const SlowReaderOptions& options, int control);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_SLOW_READER_SERVER_H_
