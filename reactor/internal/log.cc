#include "reactor/internal/log.h"

#include <cstdio>
#include <string>

#include "reactor/internal/clock.h"

namespace sluice::internal {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void Logger::Log(LogLevel level, std::string_view line) {
  std::string text(line);
  {
    MutexLock lock(mutex_);
    const int64_t second = CoarseNow() / kNanosPerSecond;
    if (second != second_) {
      second_ = second;
      lines_ = 0;
    }
    if (++lines_ > kLinesPerSecond) {
      ++suppressed_;
      return;
    }
    if (suppressed_ > 0) {
      text += " (" + std::to_string(suppressed_) + " lines left out before)";
      suppressed_ = 0;
    }
  }
  if (sink_) {
    try {
      sink_(level, text);
      return;
    } catch (...) {
      // Told below instead. We may be here because of an exception already.
    }
  }
  std::fprintf(stderr, "sluice: %s: %s\n", LevelName(level), text.c_str());
}

}  // namespace sluice::internal
