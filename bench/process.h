// Internal: what every program here asks of its own process.
#ifndef SLUICE_BENCH_PROCESS_H_
#define SLUICE_BENCH_PROCESS_H_

#include "absl/status/status.h"

namespace sluice::bench {

// SIGINT and SIGTERM set a flag instead of ending the program, and interrupt
// the system call that waits. A second one ends it (the children with it).
void CatchInterrupts();
bool Interrupted();

// Pins the whole process, which must have one thread. The error names the CPU
// and those that were allowed before the first pin.
absl::Status PinProcess(int cpu);

// Raises the soft limit of descriptors to the hard one, and says whether
// `needed` fit. Children inherit it.
absl::Status RaiseFdLimit(int needed);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_PROCESS_H_
