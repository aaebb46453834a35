// Internal: invariants. A check that fails is a bug of ours or of the caller,
// never of a peer or of the input: it prints what was wrong and ends the
// program.
#ifndef SLUICE_REACTOR_INTERNAL_CHECK_H_
#define SLUICE_REACTOR_INTERNAL_CHECK_H_

namespace sluice::internal {

// Prints "sluice: FILE:LINE: message" and aborts.
[[noreturn]] void Die(const char* file, int line, const char* message);

}  // namespace sluice::internal

#define SLUICE_CHECK(condition, message) \
  ((condition) ? void(0) : ::sluice::internal::Die(__FILE__, __LINE__, message))

#endif  // SLUICE_REACTOR_INTERNAL_CHECK_H_
