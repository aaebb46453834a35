// Internal: main() of a program that measures.
#ifndef SLUICE_BENCH_PROGRAM_H_
#define SLUICE_BENCH_PROGRAM_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace sluice::bench {

// The flags of gflags, which are taken off the arguments.
void ParseFlags(const char* usage, int* argc, char*** argv);

// Runs `measure`, which answers whether every limit holds, with Ctrl-C caught,
// and gives the exit code: 0: measured; 1: a limit is missed, and `check`; 2:
// an error, or an argument that is no flag; 130: Ctrl-C. Says why.
int MeasureMain(const char* name, int argc, char** argv, bool check,
                absl::FunctionRef<absl::StatusOr<bool>()> measure);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_PROGRAM_H_
