#include "examples/flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace sluice::examples {
namespace {

// "int64" as a user would say it.
std::string TypeInWords(const std::string& type) {
  if (type == "double") return "a number";
  if (type == "string") return "a text";
  return "a whole number";
}

absl::Status Set(const std::string& name, const std::string& value,
                 const gflags::CommandLineFlagInfo& info) {
  if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, "=", value, ": ", TypeInWords(info.type), " is wanted"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseFlags(int argc, const char* const* argv,
                        const std::vector<std::string>& repeatable,
                        bool* help) {
  *help = false;
  std::set<std::string> seen;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-') {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", argument, "\": only flags, --name=value, are expected"));
    }
    std::string name =
        argument.substr(argument.compare(0, 2, "--") == 0 ? 2 : 1);
    if (name == "help" || name == "h") {
      *help = true;
      return absl::OkStatus();
    }
    const size_t equals = name.find('=');
    std::string value;
    const bool has_value = equals != std::string::npos;
    if (has_value) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    gflags::CommandLineFlagInfo info;
    if (name.empty() || !gflags::GetCommandLineFlagInfo(name.c_str(), &info)) {
      return absl::InvalidArgumentError(
          absl::StrCat(argument, ": there is no such flag; see --help"));
    }
    if (!has_value) {
      if (i + 1 == argc) {
        return absl::InvalidArgumentError(
            absl::StrCat(argument, ": a value is missing, --", name, "=..."));
      }
      value = argv[++i];
    }
    const bool again = !seen.insert(name).second;
    const bool collects = std::find(repeatable.begin(), repeatable.end(),
                                    name) != repeatable.end();
    if (again && collects) {
      std::string so_far;
      gflags::GetCommandLineOption(name.c_str(), &so_far);
      value = absl::StrCat(so_far, ",", value);
    }
    if (absl::Status s = Set(name, value, info); !s.ok()) return s;
  }
  return absl::OkStatus();
}

std::string HelpText(const std::string& usage, const std::string& file) {
  std::string text = absl::StrCat(usage, "\n");
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  for (const gflags::CommandLineFlagInfo& flag : flags) {
    const size_t slash = flag.filename.rfind('/');
    const std::string base = slash == std::string::npos
                                 ? flag.filename
                                 : flag.filename.substr(slash + 1);
    if (base != file) continue;
    absl::StrAppend(&text, "\n  --", flag.name, "=", flag.default_value,
                    "\n      ", flag.description, "\n");
  }
  return text;
}

}  // namespace sluice::examples
