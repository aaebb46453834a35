// B116: local ports run out on a source address. The load generator names the
// cause, goes on from the next address or stops with counts, and makes no storm
// of attempts.
// wrap: connect
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "absl/strings/str_join.h"
#include "examples/c1000k/controller.h"

namespace {

// How connect(2) behaves, and what was asked of it.
struct Ports {
  std::mutex mutex;
  int each = 0;                      // successes of one source address
  std::map<in_addr_t, int> granted;  // so far
  int attempts = 0;

  void Reset(int new_each) {
    std::lock_guard<std::mutex> lock(mutex);
    each = new_each;
    granted.clear();
    attempts = 0;
  }
};
Ports& ports() {
  static Ports& instance = *new Ports;
  return instance;
}

}  // namespace

extern "C" {
int __real_connect(int fd, const sockaddr* address, socklen_t length);
int __wrap_connect(int fd, const sockaddr* address, socklen_t length);

int __wrap_connect(int fd, const sockaddr* address, socklen_t length) {
  sockaddr_in source{};
  socklen_t size = sizeof(source);
  if (address->sa_family == AF_INET &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&source), &size) == 0) {
    std::lock_guard<std::mutex> lock(ports().mutex);
    ++ports().attempts;
    int& granted = ports().granted[source.sin_addr.s_addr];
    if (granted >= ports().each) {
      errno = EADDRNOTAVAIL;
      return -1;
    }
    ++granted;
  }
  return __real_connect(fd, address, length);
}
}

namespace sluice::c1000k {
namespace {

using testing::HasSubstr;

constexpr uint64_t kWindow = 16;

Plan SmallPlan(uint64_t connections, size_t sources) {
  Plan plan;
  plan.connections = connections;
  plan.reactors = 2;
  plan.per_source = 100;
  plan.sources = sources;
  plan.sources_most = sources;
  plan.window = kWindow;
  plan.idle_timeout = std::chrono::minutes(10);
  return plan;
}

Result RunPlan(const Plan& plan, std::string* output) {
  const Settings settings{.hold_seconds = 0, .heartbeat_qps = 0};
  auto watch = Watch::Create();
  auto mapping = SharedMapping::Create();
  EXPECT_TRUE(watch.ok() && mapping.ok());
  auto server = ServerProcess::Start(plan, mapping->page());
  EXPECT_TRUE(server.ok()) << server.status();
  auto client = LoadClient::Start(
      plan, static_cast<uint16_t>(mapping->page()->port.load()));
  EXPECT_TRUE(client.ok()) << client.status();
  testing::internal::CaptureStdout();
  Progress progress;
  Controller controller(settings, plan, **server, *mapping->page(), **client,
                        **watch, progress);
  Result result = controller.Run();
  *output = testing::internal::GetCapturedStdout();
  EXPECT_TRUE((*client)->Stop().ok());
  EXPECT_EQ((*server)->Stop(60), "exit code 0");
  return result;
}

TEST(PortsRunOut, GoesOnFromTheNextSourceAddress) {
  ports().Reset(50);
  std::string output;
  const Result result = RunPlan(SmallPlan(120, 4), &output);
  EXPECT_EQ(result.exit_code(), 0) << Table(result);
  EXPECT_EQ(result.peak, 120u);
  EXPECT_EQ(result.dials_failed, 0u);
  EXPECT_GT(result.dials_moved, 0u);
  // Only what was on its way when an address had no port left is tried again.
  EXPECT_LE(result.dials_moved, 2 * kWindow);
  EXPECT_EQ(ports().attempts, 120 + static_cast<int>(result.dials_moved));
  EXPECT_THAT(output, HasSubstr("127.0.0.2: "));
  EXPECT_THAT(output, HasSubstr("port"));
  EXPECT_THAT(output, HasSubstr("going on from the next source address"));
  EXPECT_THAT(Table(result), HasSubstr("dials made again"));
}

TEST(PortsRunOut, StopsWithCountsWhenNoAddressIsLeft) {
  ports().Reset(10);
  std::string output;
  const Result result = RunPlan(SmallPlan(120, 4), &output);
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_EQ(result.peak, 40u);
  EXPECT_GT(result.dials_failed, 0u);
  EXPECT_EQ(result.lost, 0u);
  EXPECT_LE(ports().attempts, 40 + 4 * static_cast<int>(kWindow));
  EXPECT_THAT(absl::StrJoin(result.troubles, "; "),
              HasSubstr("no source address is left"));
}

}  // namespace
}  // namespace sluice::c1000k
