#include "reactor/internal/log.h"

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/wait.h"

namespace sluice::internal {
namespace {

using Clock = std::chrono::steady_clock;

// Keeps what a logger passes on.
class Kept {
 public:
  Logger logger{[this](LogLevel level, std::string_view line) {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_.emplace_back(level, line);
  }};
  std::vector<std::pair<LogLevel, std::string>> lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

// How many lines a line says were left out before it.
uint64_t LeftOut(const std::string& line) {
  const size_t end = line.find(" lines left out");
  if (end == std::string::npos) return 0;
  const size_t begin = line.rfind('(', end) + 1;
  return std::stoull(line.substr(begin, end - begin));
}

// The most that may pass in `time`: seconds begin anywhere, and the first and
// the last may be cut.
size_t MostLines(Clock::duration time) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(time).count();
  return static_cast<size_t>(seconds + 2) * Logger::kLinesPerSecond;
}

TEST(Log, PassesLevelAndLineOn) {
  Kept kept;
  kept.logger.Log(LogLevel::kInfo, "one");
  kept.logger.Log(LogLevel::kWarning, "two");
  kept.logger.Log(LogLevel::kError, std::string_view("three!", 5));
  const auto lines = kept.lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], std::make_pair(LogLevel::kInfo, std::string("one")));
  EXPECT_EQ(lines[1], std::make_pair(LogLevel::kWarning, std::string("two")));
  EXPECT_EQ(lines[2], std::make_pair(LogLevel::kError, std::string("three")));
}

TEST(Log, AFloodBecomesAFewLinesAndACount) {
  Kept kept;
  uint64_t logged = 0;
  const Clock::time_point start = Clock::now();
  for (; logged < 10'000; ++logged) kept.logger.Log(LogLevel::kError, "again");
  size_t passed = kept.lines().size();
  EXPECT_GE(passed, 1u);
  EXPECT_LE(passed, MostLines(Clock::now() - start));
  // A little later one comes through again and tells of the others.
  ASSERT_TRUE(test::WaitUntil([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kept.logger.Log(LogLevel::kError, "later");
    ++logged;
    return kept.lines().size() > passed;
  }));
  const auto lines = kept.lines();
  uint64_t told = lines.size();
  for (const auto& [level, line] : lines) told += LeftOut(line);
  EXPECT_EQ(told, logged);
  EXPECT_EQ(lines.back().second.find("later ("), 0u) << lines.back().second;
  // Once told, not again.
  EXPECT_LE(kept.lines().size(), MostLines(Clock::now() - start));
}

TEST(Log, SlowLinesAllPass) {
  Kept kept;
  for (int i = 0; i < Logger::kLinesPerSecond; ++i) {
    kept.logger.Log(LogLevel::kWarning, std::to_string(i));
  }
  EXPECT_EQ(kept.lines().size(), static_cast<size_t>(Logger::kLinesPerSecond));
  for (const auto& [level, line] : kept.lines()) EXPECT_EQ(LeftOut(line), 0u);
}

TEST(Log, ManyThreadsLoseNoCount) {
  constexpr int kThreads = 8;
  constexpr int kEach = 2'000;
  Kept kept;
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) kept.logger.Log(LogLevel::kInfo, "x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(kept.lines().size(), MostLines(Clock::now() - start));
  uint64_t logged = kThreads * kEach;
  const size_t passed = kept.lines().size();
  ASSERT_TRUE(test::WaitUntil([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kept.logger.Log(LogLevel::kInfo, "later");
    ++logged;
    return kept.lines().size() > passed;
  }));
  uint64_t told = kept.lines().size();
  for (const auto& [level, line] : kept.lines()) told += LeftOut(line);
  EXPECT_EQ(told, logged);
}

// A sink may log itself, say because what it writes to fails.
TEST(Log, ASinkMayLog) {
  Logger* self = nullptr;
  std::vector<std::string> lines;
  Logger logger([&](LogLevel, std::string_view line) {
    lines.emplace_back(line);
    if (line == "outer") self->Log(LogLevel::kError, "inner");
  });
  self = &logger;
  logger.Log(LogLevel::kWarning, "outer");
  EXPECT_EQ(lines, (std::vector<std::string>{"outer", "inner"}));
}

TEST(Log, WithoutASinkItIsStandardError) {
  Logger logger(nullptr);
  testing::internal::CaptureStderr();
  logger.Log(LogLevel::kWarning, "something odd");
  logger.Log(LogLevel::kError, "worse");
  std::fflush(stderr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "sluice: warning: something odd\nsluice: error: worse\n");
}

}  // namespace
}  // namespace sluice::internal
