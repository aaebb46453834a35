// Internal: the scripts in sysctl/, run by a shell.
#ifndef SLUICE_TEST_SYSCTL_SCRIPT_H_
#define SLUICE_TEST_SYSCTL_SCRIPT_H_

#include <unistd.h>

#include <string>
#include <vector>

#include "test/support/child_process.h"

namespace sluice::test {

struct ScriptResult {
  int code = -1;
  std::string out;
  std::string error;

  // The line about one setting; "" if there is none.
  std::string Line(const std::string& name) const {
    const size_t at = out.find("  " + name + " ");
    if (at == std::string::npos) return "";
    return out.substr(at, out.find('\n', at) - at);
  }
};

// The shells that are there: where nothing else is, there is busybox.
inline std::vector<std::string> Shells() {
  std::vector<std::string> shells = {"sh"};
  if (access("/bin/busybox", X_OK) == 0) shells.push_back("busybox");
  return shells;
}

inline ScriptResult RunScript(const std::string& shell, const std::string& name,
                              const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"/bin/" + shell};
  if (shell == "busybox") all.push_back("sh");
  all.push_back(SLUICE_SOURCE_DIR "/sysctl/" + name);
  all.insert(all.end(), arguments.begin(), arguments.end());
  ChildProcess script(all);
  ScriptResult result;
  result.code = script.Wait();
  result.out = script.out();
  result.error = script.error();
  return result;
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SYSCTL_SCRIPT_H_
