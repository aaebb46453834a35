// Internal: an engine that runs in the background of a test.
#ifndef SLUICE_TEST_SUPPORT_TEST_SERVER_H_
#define SLUICE_TEST_SUPPORT_TEST_SERVER_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "reactor/address.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"
#include "reactor/options.h"
#include "reactor/stats.h"
#include "test/support/wait.h"

namespace sluice::test {

// Creates and runs an engine on a thread of its own; the constructor returns
// when every reactor serves (or Run has returned, or Create has failed).
// Thread: the test's. Lifetime: the handler must outlive it; the destructor
// stops the engine, waits for Run and destroys the engine.
class TestServer {
 public:
  TestServer(EventHandler& handler, std::vector<ListenerSpec> listeners,
             Options options = {});
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  // The result of Create. If it is not OK there is no engine.
  const absl::Status& created() const;

  Engine& engine() const;
  // The bound address of listener `index`.
  Address address(size_t index = 0) const;
  EngineStats stats() const;

  // Waits until no connection is left; false after kPatience.
  [[nodiscard]] bool WaitForNoConnections() const;

  void Stop() { engine().Stop(); }
  // Waits until Run returns (fails the test if it does not) and gives what it
  // returned. The engine is still there afterwards, for stats() and the like.
  absl::Status WaitForRun();
  bool run_returned() const;
  // Stop, WaitForRun, and the engine is destroyed. Again is harmless.
  absl::Status StopAndDestroy();

 private:
  class Watcher;
  struct State;

  void WaitUntilServing();

  std::shared_ptr<State> state_;
  std::thread thread_;
};

// Options for tests: `reactors` reactors that are not pinned (tests run side
// by side on few CPUs) and do not log.
Options TestOptions(int reactors);

// An address of a Unix socket that nobody else uses, as a file or abstract.
std::string UniqueUnixPath();
std::string UniqueUnixAddress();
std::string UniqueAbstractAddress();

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_TEST_SERVER_H_
