#include "reactor/internal/check.h"

#include <cstdio>
#include <cstdlib>

namespace sluice::internal {

void Die(const char* file, int line, const char* message) {
  std::fprintf(stderr, "sluice: %s:%d: %s\n", file, line, message);
  std::abort();
}

}  // namespace sluice::internal
