// c1000k: small files of /proc, /sys and cgroups.
#ifndef SLUICE_EXAMPLES_C1000K_PROC_FILE_H_
#define SLUICE_EXAMPLES_C1000K_PROC_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::c1000k {

// The whole file; nullopt if it cannot be read.
std::optional<std::string> ReadFile(const std::string& path);

// Its words, split at white space; empty if it cannot be read.
std::vector<std::string> ReadWords(const std::string& path);

// The first word as a number; nullopt if it is none ("max", for example).
std::optional<uint64_t> ReadNumber(const std::string& path);

// The words after `label` on the first line that begins with it.
std::vector<std::string> WordsAfter(const std::string& text,
                                    const std::string& label);

// The first number after `label`, as in "MemAvailable:   1234 kB".
std::optional<uint64_t> NumberAfter(const std::string& text,
                                    const std::string& label);

std::optional<uint64_t> ParseNumber(const std::string& word);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_PROC_FILE_H_
