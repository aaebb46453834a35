// Internal: warnings, a few a second at most.
#ifndef SLUICE_REACTOR_INTERNAL_LOG_H_
#define SLUICE_REACTOR_INTERNAL_LOG_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "reactor/internal/mutex.h"
#include "reactor/options.h"

namespace sluice::internal {

// Passes lines on to Options::log or standard error. A fault that repeats a
// thousand times a second must not become a flood: after kLinesPerSecond lines
// in one second the rest of that second is counted, and the count is told with
// the next line.
// Thread: any.
class Logger {
 public:
  static constexpr int kLinesPerSecond = 5;

  explicit Logger(std::function<void(LogLevel, std::string_view)> sink)
      : sink_(std::move(sink)) {}

  void Log(LogLevel level, std::string_view line) SLUICE_EXCLUDES(mutex_);

 private:
  const std::function<void(LogLevel, std::string_view)> sink_;
  Mutex mutex_;
  int64_t second_ SLUICE_GUARDED_BY(mutex_) = 0;
  int lines_ SLUICE_GUARDED_BY(mutex_) = 0;
  uint64_t suppressed_ SLUICE_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_LOG_H_
