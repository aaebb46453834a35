#include "examples/c1000k/cgroup.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/c1000k/proc_file.h"

namespace sluice::c1000k {
namespace {

// How a resource is named in one version.
struct Names {
  const char* controller;  // version 1; nullptr: version 2
  const char* limit;
  const char* usage;
  const char* reclaimable;  // a field of memory.stat, or nullptr
};

// Version 1 says "no limit" with the largest number of whole pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

bool ListHas(const std::string& list, const std::string& item) {
  const std::vector<std::string> items = absl::StrSplit(list, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Where the hierarchy is mounted and which of its directories that shows.
struct Mount {
  std::string point;
  std::string shows;
};

std::optional<Mount> FindMount(const std::string& root,
                               const char* controller) {
  const std::string text = ReadFile(root + "/proc/self/mountinfo").value_or("");
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const std::vector<std::string> w =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    const auto dash = std::find(w.begin(), w.end(), "-");
    if (w.size() < 6 || w.end() - dash < 4) continue;
    const std::string& type = dash[1];
    if (controller == nullptr
            ? type == "cgroup2"
            : type == "cgroup" && ListHas(dash[3], controller)) {
      return Mount{.point = w[4], .shows = w[3]};
    }
  }
  return std::nullopt;
}

// This process's path in the hierarchy; empty if it is in none.
std::string FindPath(const std::string& root, const char* controller) {
  const std::string text = ReadFile(root + "/proc/self/cgroup").value_or("");
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const std::vector<std::string> w =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (w.size() != 3) continue;
    if (controller == nullptr ? w[0] == "0" && w[1].empty()
                              : ListHas(w[1], controller)) {
      return w[2];
    }
  }
  return "";
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

void Tighten(std::optional<CgroupRoom>& best, const std::string& root,
             const std::string& directory, const Names& names) {
  const std::string file = absl::StrCat(directory, "/", names.limit);
  const std::optional<uint64_t> limit = ReadNumber(root + file);
  if (!limit || *limit >= kNoLimit) return;
  uint64_t used =
      ReadNumber(absl::StrCat(root, directory, "/", names.usage)).value_or(0);
  if (names.reclaimable != nullptr) {
    // File pages nobody uses go as soon as memory is wanted.
    const std::string stat =
        ReadFile(absl::StrCat(root, directory, "/memory.stat")).value_or("");
    used -= std::min(used, NumberAfter(stat, names.reclaimable).value_or(0));
  }
  const uint64_t room = *limit > used ? *limit - used : 0;
  if (!best || room < best->room) {
    best = CgroupRoom{.limit = *limit, .room = room, .file = file};
  }
}

void TightenAll(std::optional<CgroupRoom>& best, const std::string& root,
                const Names& names) {
  const std::optional<Mount> mount = FindMount(root, names.controller);
  std::string below = FindPath(root, names.controller);
  if (!mount || below.empty()) return;
  // In a container the mount often shows only the container's own part.
  if (mount->shows != "/" && absl::StartsWith(below, mount->shows)) {
    below = below.substr(mount->shows.size());
  }
  if (below == "/") below.clear();
  // From our own directory up to the mount point, each of them binds. A path
  // that is not visible here leaves the mount point alone.
  for (int depth = 0; depth < 64; ++depth) {
    if (IsDirectory(root + mount->point + below)) {
      Tighten(best, root, mount->point + below, names);
    }
    const size_t slash = below.rfind('/');
    if (below.empty() || slash == std::string::npos) break;
    below.resize(slash);
  }
}

}  // namespace

std::optional<CgroupRoom> CgroupMemory(const std::string& root) {
  std::optional<CgroupRoom> best;
  TightenAll(best, root,
             {nullptr, "memory.max", "memory.current", "inactive_file "});
  TightenAll(best, root,
             {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
              "total_inactive_file "});
  return best;
}

std::optional<CgroupRoom> CgroupPids(const std::string& root) {
  std::optional<CgroupRoom> best;
  TightenAll(best, root, {nullptr, "pids.max", "pids.current", nullptr});
  TightenAll(best, root, {"pids", "pids.max", "pids.current", nullptr});
  return best;
}

}  // namespace sluice::c1000k
