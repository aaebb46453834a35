#include "examples/c1000k/proc_file.h"

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace sluice::c1000k {
namespace {

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

}  // namespace

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  // An empty file sets failbit on the copy; it was read all the same.
  if (!in.is_open()) return std::nullopt;
  text << in.rdbuf();
  return in.bad() ? std::nullopt : std::optional<std::string>(text.str());
}

std::vector<std::string> ReadWords(const std::string& path) {
  return Words(ReadFile(path).value_or(""));
}

std::optional<uint64_t> ParseNumber(const std::string& word) {
  uint64_t n = 0;
  if (!absl::SimpleAtoi(word, &n)) return std::nullopt;
  return n;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::vector<std::string> words = ReadWords(path);
  return words.empty() ? std::nullopt : ParseNumber(words[0]);
}

std::vector<std::string> WordsAfter(const std::string& text,
                                    const std::string& label) {
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (line.compare(0, label.size(), label) == 0) {
      return Words(line.substr(label.size()));
    }
  }
  return {};
}

std::optional<uint64_t> NumberAfter(const std::string& text,
                                    const std::string& label) {
  const std::vector<std::string> words = WordsAfter(text, label);
  return words.empty() ? std::nullopt : ParseNumber(words[0]);
}

}  // namespace sluice::c1000k
