// Example support: command lines with clear errors.
#ifndef SLUICE_EXAMPLES_FLAGS_H_
#define SLUICE_EXAMPLES_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice::examples {

// Sets the gflags of this program from its command line. gflags itself ends
// the program with 1 on a bad flag and keeps only the last of repeated ones;
// here the caller decides, and a flag named in `repeatable` collects all its
// values, joined by commas.
//
// InvalidArgument names the argument and what is wrong with it; arguments that
// are no flags are wrong too. *help is set, and nothing else done, if --help is
// there.
absl::Status ParseFlags(int argc, const char* const* argv,
                        const std::vector<std::string>& repeatable, bool* help);

// What --help shows: `usage` and then each flag whose definition is in a source
// file called `file`.
std::string HelpText(const std::string& usage, const std::string& file);

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_FLAGS_H_
