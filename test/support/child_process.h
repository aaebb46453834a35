// Internal: runs a program and reads what it says.
#ifndef SLUICE_TEST_SUPPORT_CHILD_PROCESS_H_
#define SLUICE_TEST_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "test/support/wait.h"

namespace sluice::test {

// A program in a process group of its own, so that its children can be found.
// Thread: one at a time.
// Lifetime: the destructor kills the whole group.
class ChildProcess {
 public:
  // arguments[0]: the program's path. Fails the test if it cannot be started.
  explicit ChildProcess(std::vector<std::string> arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);       // to the program
  void SignalGroup(int signal);  // to its children too, as a terminal does

  // Reads until standard output has a line that contains `text`, and gives that
  // line. Fails the test, and gives "", if the program ends before.
  std::string AwaitLine(const std::string& text);

  // Reads both outputs to their ends and waits. The exit code, or 128 + the
  // signal that ended it. Fails the test, and gives -1, if it takes too long.
  int Wait();

  // True if no process of the group is left. After Wait.
  bool GroupIsGone() const;

  const std::string& out() const { return out_; }
  const std::string& error() const { return error_; }

 private:
  // Reads what is there. False: both ended, or the time is up.
  bool ReadSome(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  bool reaped_ = false;
  int out_fd_ = -1;
  int error_fd_ = -1;
  std::string out_;
  std::string error_;
  size_t looked_at_ = 0;  // of out_, by AwaitLine
};

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_CHILD_PROCESS_H_
