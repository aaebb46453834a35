// Example support: numbers for people.
#ifndef SLUICE_EXAMPLES_FORMAT_H_
#define SLUICE_EXAMPLES_FORMAT_H_

#include <cstdint>
#include <string>

namespace sluice::examples {

std::string WithCommas(uint64_t n);         // "1,000,000"
std::string FormatBytes(double bytes);      // "512 B", "4.07 KB", "7.81 GB"
std::string FormatMicros(uint64_t micros);  // "85 us", "1.25 ms", "3.20 s"
std::string FormatSeconds(double seconds);  // "0.42 s", "25.3 s", "4 min 02 s"

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_FORMAT_H_
