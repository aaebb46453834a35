// wrap: sched_setaffinity
// Cases of forking and of pinning.

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/client.h"
#include "test/support/lambda_handler.h"
#include "test/support/loop_block.h"
#include "test/support/matrix.h"
#include "test/support/test_server.h"

extern "C" {
int __real_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t* set);
int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t* set);
// LeakSanitizer asks it. A child's copies of other threads' objects are no
// leaks, but nothing in the child refers to them.
int __lsan_is_turned_off();
}

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

const pid_t original_process = getpid();

// Says, in the process that has a descriptor in it, that statics were
// destroyed. Before `engine`, so it goes after it.
struct Witness {
  int fd = -1;
  ~Witness() {
    if (fd >= 0) [[maybe_unused]]
      const ssize_t n = write(fd, "d", 1);
  }
};
Witness witness;

// Static, so that exit(3) destroys it in a child.
std::unique_ptr<Engine> engine;

// Makes, runs and destroys `engine` on a thread of its own.
class StaticServer {
 public:
  StaticServer(EventHandler& handler, std::vector<ListenerSpec> listeners,
               Options options)
      : thread_([this, &handler, listeners = std::move(listeners),
                 options = std::move(options)] {
          auto made = Engine::Create(handler, listeners, options);
          EXPECT_TRUE(made.ok()) << made.status().ToString();
          if (made.ok()) engine = *std::move(made);
          created_.Set();
          if (engine == nullptr) return;
          EXPECT_TRUE(run_.Wait());
          EXPECT_TRUE(engine->Run().ok());
          engine.reset();
        }) {
    if (!created_.Wait()) std::abort();
  }
  ~StaticServer() {
    run_.Set();
    if (engine != nullptr) engine->Stop();
    thread_.join();
  }
  void Run() { run_.Set(); }

 private:
  Event created_;
  Event run_;
  std::thread thread_;
};

struct Child {
  pid_t pid = -1;
  int witness_fd = -1;  // the reading end
};

// Returns in the parent only; the child leaves through exit(3) at once.
Child ForkAndExit() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::fflush(nullptr);  // the child's exit would write it again
  const pid_t pid = fork();
  if (pid == 0) {
    witness.fd = ends[1];
    std::exit(engine != nullptr ? 0 : 1);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

void ExpectCleanExit(const Child& child) {
  ASSERT_GT(child.pid, 0);
  int status = -1;
  EXPECT_TRUE(WaitUntil([&] {
    return waitpid(child.pid, &status, WNOHANG) == child.pid;
  })) << "the child does not end";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child's status is " << status;
  char byte = 0;
  EXPECT_EQ(read(child.witness_fd, &byte, 1), 1) << "destructors did not run";
  close(child.witness_fd);
}

class ForkCases : public ::testing::TestWithParam<MatrixParam> {};

TEST_P(ForkCases, B122_AChildThatExitsLeavesTheParentAlone) {
  const std::string path = UniqueUnixPath();
  LambdaHandler handler;
  handler.on_traffic = [&](Connection& c) {
    if (c.Peek() == "fork") {
      // Here, as the pipe may be in this thread's own table only.
      ExpectCleanExit(ForkAndExit());
    }
    return EchoTraffic(c);
  };
  Options options = GetParam().MakeOptions();
  StaticServer server(handler, {"tcp://127.0.0.1:0", "unix://" + path},
                      options);
  ASSERT_NE(engine, nullptr);
  // Before Run, ...
  ExpectCleanExit(ForkAndExit());
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  server.Run();
  const std::vector<Address> addresses(engine->bound().begin(),
                                       engine->bound().end());
  Client tcp = Client::Connect(addresses[0]);
  Client unix_client = Client::Connect(addresses[1]);
  const auto expect_served = [&] {
    EXPECT_EQ(access(path.c_str(), F_OK), 0) << "the socket file is gone";
    EXPECT_TRUE(tcp.Echo("still here"));
    EXPECT_TRUE(unix_client.Echo("still here"));
    for (int i = 0; i < 10; ++i) {
      Client client = Client::Connect(addresses[static_cast<size_t>(i % 2)]);
      EXPECT_TRUE(client.Echo("hello"));
      EXPECT_TRUE(client.ShutdownWrite());
      EXPECT_EQ(client.ReadToEof(), "");
    }
    EXPECT_TRUE(WaitUntil([&] { return engine->stats().connections == 2; }));
  };
  expect_served();
  // ... from a thread that is no loop's, ...
  ExpectCleanExit(ForkAndExit());
  expect_served();
  // ... and from inside a callback.
  EXPECT_TRUE(tcp.Echo("fork"));
  expect_served();
  EXPECT_EQ(handler.shutdowns, 0);
}

// The numbers that a program finds open when this process starts it.
std::string FdsOfAProgram() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = "ls";
  std::string folder = "/proc/self/fd";
  char* arguments[] = {program.data(), folder.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr,
                                 arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  if (error == 0) {
    char block[4096];
    ssize_t got;
    while ((got = read(ends[0], block, sizeof(block))) > 0) {
      out.append(block, static_cast<size_t>(got));
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  } else {
    ADD_FAILURE() << "starting ls: " << std::strerror(error);
  }
  close(ends[0]);
  return out;
}

TEST_P(ForkCases, B122_EveryDescriptorIsCloseOnExec) {
  const std::string before = FdsOfAProgram();
  EXPECT_NE(before, "");
  const std::string path = UniqueUnixPath();
  LambdaHandler handler;
  std::string on_loop;
  handler.on_traffic = [&](Connection& c) {
    if (c.Peek() == "exec") on_loop = FdsOfAProgram();
    return EchoTraffic(c);
  };
  Options options = GetParam().MakeOptions();
  options.limits.idle_timeout = std::chrono::hours(1);
  TestServer server(handler, {"tcp://127.0.0.1:0", "unix://" + path}, options);
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(
        Client::Connect(server.address(static_cast<size_t>(i % 2))));
    EXPECT_TRUE(clients.back().Echo("hello"));
  }
  Event dialed;
  ASSERT_TRUE(server.engine()
                  .Dial(server.address(), {},
                        [&](absl::StatusOr<Connection*> result) {
                          EXPECT_TRUE(result.ok());
                          dialed.Set();
                        })
                  .ok());
  ASSERT_TRUE(dialed.Wait());
  EXPECT_EQ(FdsOfAProgram(), before);
  EXPECT_TRUE(clients[0].Echo("exec"));
  EXPECT_EQ(on_loop, before);
}

INSTANTIATE_TEST_SUITE_P(Some, ForkCases, ::testing::ValuesIn([] {
                           std::vector<MatrixParam> some;
                           for (const MatrixParam& param : AllCombinations()) {
                             if (param.family == Family::kTcp4 &&
                                 param.reactors != 2) {
                               some.push_back(param);
                             }
                           }
                           return some;
                         }()),
                         MatrixName);

// --- B124: pinning

std::atomic<bool> pin_fails{false};
std::atomic<int> pins_tried{0};

// Sets the affinity of the test's thread, which the engine's inherit.
class AffinityCases : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
  }
  void TearDown() override {
    pin_fails = false;
    EXPECT_EQ(__real_sched_setaffinity(0, sizeof(before_), &before_), 0);
  }
  std::vector<int> CpusBefore() {
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) cpus.push_back(cpu);
    }
    return cpus;
  }
  void Allow(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    ASSERT_EQ(__real_sched_setaffinity(0, sizeof(set), &set), 0);
  }

  cpu_set_t before_;
};

// What a reactor's thread may run on.
std::vector<int> CpusOf(Reactor& loop) {
  std::vector<int> cpus;
  RunOn(loop, [&] {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  });
  return cpus;
}

TEST_F(AffinityCases, B124_AsManyReactorsAsAllowedCpusEachPinnedToOne) {
  const std::vector<int> all = CpusBefore();
  std::vector<std::vector<int>> sets = {all, {all.back()}};
  // One with a gap.
  if (all.size() >= 4) sets.push_back({all[1], all[3]});
  for (const std::vector<int>& allowed : sets) {
    Allow(allowed);
    LambdaHandler handler;
    handler.on_traffic = EchoTraffic;
    Options options = TestOptions(0);
    options.pinning.mode = CpuPinning::Mode::kAuto;
    TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    ASSERT_EQ(server.engine().reactors(), static_cast<int>(allowed.size()));
    for (size_t i = 0; i < allowed.size(); ++i) {
      Reactor& loop = server.engine().reactor(static_cast<int>(i));
      EXPECT_EQ(loop.cpu(), allowed[i]);
      EXPECT_EQ(CpusOf(loop), std::vector<int>{allowed[i]});
    }
    Client client = Client::Connect(server.address());
    EXPECT_TRUE(client.Echo("hello"));
  }
}

TEST_F(AffinityCases, B124_MoreReactorsThanCpusRunUnpinned) {
  const int last = CpusBefore().back();
  Allow({last});
  LambdaHandler handler;
  Options options = TestOptions(2);
  options.pinning.mode = CpuPinning::Mode::kAuto;
  TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(server.engine().reactor(i).cpu(), -1);
    EXPECT_EQ(CpusOf(server.engine().reactor(i)), std::vector<int>{last});
  }
}

TEST_F(AffinityCases, B124_APinThatFailsIsAWarning) {
  const std::vector<int> all = CpusBefore();
  for (const std::vector<int>& allowed : {all, std::vector<int>{all.back()}}) {
    Allow(allowed);
    LambdaHandler handler;
    handler.on_traffic = EchoTraffic;
    std::mutex mutex;
    std::vector<std::string> lines;
    Options options = TestOptions(0);
    options.pinning.mode = CpuPinning::Mode::kAuto;
    options.log = [&](LogLevel level, std::string_view line) {
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(level, LogLevel::kWarning) << line;
      lines.emplace_back(line);
    };
    pin_fails = true;
    pins_tried = 0;
    TestServer server(handler, {"tcp://127.0.0.1:0"}, options);
    ASSERT_TRUE(server.created().ok()) << server.created().ToString();
    EXPECT_GE(pins_tried, static_cast<int>(allowed.size()));
    for (int i = 0; i < server.engine().reactors(); ++i) {
      EXPECT_EQ(server.engine().reactor(i).cpu(), -1);
      EXPECT_EQ(CpusOf(server.engine().reactor(i)), allowed);
    }
    Client client = Client::Connect(server.address());
    EXPECT_TRUE(client.Echo("hello"));
    EXPECT_TRUE(server.StopAndDestroy().ok());
    pin_fails = false;
    std::lock_guard<std::mutex> lock(mutex);
    // The log is limited to a few lines a second.
    ASSERT_GE(lines.size(), 1u);
    EXPECT_LE(lines.size(), allowed.size());
    for (const std::string& line : lines) {
      EXPECT_NE(line.find("unpinned"), std::string::npos) << line;
      EXPECT_NE(line.find("Invalid argument"), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace sluice::test

int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t* set) {
  ++sluice::test::pins_tried;
  if (sluice::test::pin_fails) {
    errno = EINVAL;
    return -1;
  }
  return __real_sched_setaffinity(pid, size, set);
}

int __lsan_is_turned_off() {
  return getpid() != sluice::test::original_process;
}
