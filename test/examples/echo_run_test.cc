// The program echo, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "reactor/address.h"
#include "test/support/child_process.h"
#include "test/support/client.h"
#include "test/support/sanitizers.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The one that was built with this test, unless the environment names another.
std::string Binary() {
  const char* chosen = std::getenv("ECHO_BINARY");
  return chosen != nullptr ? chosen : SLUICE_EXAMPLES_DIR "/echo";
}

// The address of the next "ready" line.
Address AwaitReady(ChildProcess& echo) {
  const std::string line = echo.AwaitLine("ready ");
  if (line.empty()) return Address();
  EXPECT_EQ(line.find("ready "), 0u) << line;
  const absl::StatusOr<Address> address = Address::Parse(line.substr(6));
  EXPECT_TRUE(address.ok()) << address.status();
  return address.ok() ? *address : Address();
}

void ExpectEcho(const Address& address) {
  Client client = Client::Connect(address);
  EXPECT_TRUE(client.Echo("hello, " + address.ToString()));
}

TEST(Echo, EveryListenerIsReadyAndServes) {
  const std::string name = "unix://@echo_run_test_" + std::to_string(getpid());
  // Repeated, and with a comma.
  ChildProcess echo({Binary(), "--listen=tcp://127.0.0.1:0",
                     "--listen=tcp4://127.0.0.2:0," + name, "--reactors=2"});
  const Address first = AwaitReady(echo);
  const Address second = AwaitReady(echo);
  const Address third = AwaitReady(echo);
  EXPECT_THAT(first.ToString(), HasSubstr("tcp://127.0.0.1:"));
  EXPECT_THAT(second.ToString(), HasSubstr("127.0.0.2:"));
  EXPECT_EQ(third.ToString(), name);
  EXPECT_NE(first.port(), 0);
  for (const Address& address : {first, second, third}) ExpectEcho(address);
  echo.Signal(SIGTERM);
  EXPECT_EQ(echo.Wait(), 0) << echo.error();
  EXPECT_EQ(echo.error(), "");
}

class EchoModes
    : public testing::TestWithParam<
          std::tuple<const char*, const char*, const char*, const char*>> {};

TEST_P(EchoModes, Serves) {
  const auto& [accept, trigger, tables, pin] = GetParam();
  if (kTsan && std::string(tables) == "per_reactor") {
    GTEST_SKIP() << "ThreadSanitizer takes equal descriptor numbers of "
                    "different tables for one descriptor";
  }
  ChildProcess echo(
      {Binary(), "--listen=tcp://127.0.0.1:0", "--reactors=2",
       std::string("--accept=") + accept, std::string("--trigger=") + trigger,
       std::string("--fd_tables=") + tables, std::string("--pin=") + pin});
  const Address address = AwaitReady(echo);
  for (int i = 0; i < 4; ++i) ExpectEcho(address);
  echo.Signal(SIGINT);
  EXPECT_EQ(echo.Wait(), 0) << echo.error();
}

INSTANTIATE_TEST_SUITE_P(
    Flags, EchoModes,
    testing::Combine(testing::Values("handoff", "reuseport"),
                     testing::Values("level", "edge"),
                     testing::Values("shared", "per_reactor"),
                     testing::Values("auto", "off")));

TEST(Echo, BadFlagsNameTheValue) {
  const std::pair<std::string, std::string> cases[] = {
      {"--listen=nonsense", "nonsense"},
      {"--listen=tcp://127.0.0.1:70000", "70000"},
      {"--listen=tcp://127.0.0.1:0,", "an address is empty"},
      {"--reactors=-1", "--reactors=-1"},
      {"--reactors=two", "--reactors=two"},
      {"--reactors=99999", "99999"},
      {"--accept=magic", "handoff or reuseport"},
      {"--trigger=hair", "--trigger=hair: level or edge"},
      {"--fd_tables=round", "--fd_tables=round: shared or per_reactor"},
      {"--pin=0,x", "--pin=0,x"},
      {"--pin=99999", "99999"},
      {"--nope=1", "--nope=1"},
      {"stray", "\"stray\""},
  };
  for (const auto& [flag, text] : cases) {
    std::vector<std::string> command = {Binary()};
    if (flag.find("--listen") != 0) {
      command.push_back("--listen=tcp://127.0.0.1:0");
    }
    command.push_back(flag);
    ChildProcess echo(command);
    EXPECT_EQ(echo.Wait(), 2) << flag << "\n" << echo.error();
    EXPECT_THAT(echo.error(), AllOf(HasSubstr("echo: "), HasSubstr(text)))
        << flag;
    EXPECT_EQ(echo.out(), "") << flag;
  }
}

TEST(Echo, APortInUseIsAFailureOfItsOwn) {
  ChildProcess first({Binary(), "--listen=tcp://127.0.0.1:0"});
  const Address address = AwaitReady(first);
  ChildProcess second({Binary(), "--listen=" + address.ToString()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.error(), HasSubstr(address.ToString()));
}

}  // namespace
}  // namespace sluice::test
