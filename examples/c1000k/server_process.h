// c1000k: the server process, as its parent sees it.
#ifndef SLUICE_EXAMPLES_C1000K_SERVER_PROCESS_H_
#define SLUICE_EXAMPLES_C1000K_SERVER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/c1000k/plan.h"
#include "examples/c1000k/shared_page.h"

namespace sluice::c1000k {

// A child that runs RunServer. Owned by the controller.
// Thread: one, the one that started it: the child dies with that thread.
// Lifetime: the destructor ends the child, whatever state it is in.
class ServerProcess {
 public:
  // Forks, and waits until the child listens. Must be called before this
  // process has threads. The error is the child's own, where it has one.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const Plan& plan,
                                                              SharedPage* page);

  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess();

  pid_t pid() const { return pid_; }
  // Readable (end of the stream) as soon as the child is gone.
  int channel() const { return channel_; }

  // Asks it to end and waits; kills it after `seconds`. Says how it ended;
  // "exit code 0" is as it should be.
  std::string Stop(double seconds);
  // At once, and waits for it. For the way out.
  void Kill();

 private:
  ServerProcess(pid_t pid, int channel) : pid_(pid), channel_(channel) {}

  pid_t pid_;  // 0: ended and waited for
  int channel_;
  std::string ended_;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SERVER_PROCESS_H_
