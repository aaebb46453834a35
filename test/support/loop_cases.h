// Internal: what the cases of single connections share: the loops they must
// hold on, listeners with small buffers, and loops that must be idle.
#ifndef SLUICE_TEST_SUPPORT_LOOP_CASES_H_
#define SLUICE_TEST_SUPPORT_LOOP_CASES_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "test/support/matrix.h"
#include "test/support/process_info.h"
#include "test/support/test_server.h"

namespace sluice::test {

// One and two reactors, level- and edge-triggered, over TCP.
inline std::vector<MatrixParam> LoopCombinations() {
  std::vector<MatrixParam> all;
  for (const int reactors : {1, 2}) {
    for (const Trigger trigger : {Trigger::kLevel, Trigger::kEdge}) {
      MatrixParam param;
      param.reactors = reactors;
      param.trigger = trigger;
      all.push_back(param);
    }
  }
  return all;
}

// A listener whose accepted sockets hold little: writes come up short soon.
inline ListenerSpec SmallBuffers(const std::string& address) {
  ListenOptions options;
  options.socket.send_buffer = 4096;
  return ListenerSpec(address, options);
}

// A client whose socket holds little, for a peer that does not read.
inline ClientOptions SmallReceiver() {
  ClientOptions options;
  options.receive_buffer = 4096;
  return options;
}

// The reactor that serves the connection of `ref`, which must be open.
inline Reactor& HomeOf(const TestServer& server, const ConnectionRef& ref) {
  auto index = std::make_shared<std::atomic<int>>(-1);
  const absl::Status posted =
      ref.Post([index](Connection& c) { index->store(c.reactor().index()); });
  EXPECT_TRUE(posted.ok()) << posted.ToString();
  EXPECT_TRUE(!posted.ok() || WaitUntil([&] { return *index >= 0; }));
  return server.engine().reactor(*index >= 0 ? index->load() : 0);
}

// The loops of `server` have nothing to do now, and must see it that way. The
// limits leave room for a timer or two, not for a loop that spins.
inline void ExpectIdle(
    const TestServer& server,
    std::chrono::milliseconds window = std::chrono::milliseconds(500)) {
  const uint64_t turns = server.stats().turns;
  const auto cpu = ProcessCpuTime();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(window);
  const double share =
      std::chrono::duration<double>(ProcessCpuTime() - cpu) /
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start);
  EXPECT_LE(server.stats().turns - turns, 25u) << "turns of idle loops";
  EXPECT_LT(share, 0.3) << "of a CPU, used by idle loops";
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_LOOP_CASES_H_
