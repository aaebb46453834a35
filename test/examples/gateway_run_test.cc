// The programs gateway and gateway_client, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "examples/gateway_client/bad_client.h"
#include "reactor/address.h"
#include "test/support/child_process.h"
#include "test/support/client.h"
#include "test/support/wait.h"

namespace sluice::gateway {
namespace {

using test::ChildProcess;
using test::Client;
using test::WaitUntil;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

const char kGateway[] = SLUICE_EXAMPLES_DIR "/gateway";
const char kClient[] = SLUICE_EXAMPLES_DIR "/gateway_client";

std::vector<std::string> GatewayCommand(std::vector<std::string> flags = {}) {
  // On a machine that stands still for seconds, honest players must not run
  // into deadlines; those have tests of their own.
  std::vector<std::string> command = {kGateway, "--listen=tcp://127.0.0.1:0",
                                      "--reactors=2", "--frame_deadline=2m",
                                      "--idle=10m"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::string AwaitReady(ChildProcess& gateway) {
  const std::string line = gateway.AwaitLine("ready ");
  return line.empty() ? "" : line.substr(6);
}

TEST(GatewayRun, AGameWithEverythingInIt) {
  ChildProcess gateway(GatewayCommand());
  const std::string address = AwaitReady(gateway);
  ChildProcess client({kClient, "--address=" + address, "--players=20",
                       "--rate=20", "--logins_per_second=40", "--flood=1",
                       "--bad=1", "--seconds=1.5"});
  EXPECT_EQ(client.Wait(), 0) << client.out() << client.error();
  EXPECT_THAT(client.out(),
              AllOf(HasSubstr("20 of 20"), HasSubstr("visitors logged in"),
                    HasSubstr("flood answered"),
                    HasSubstr("ok: every player kept its connection")));
  gateway.Signal(SIGTERM);
  EXPECT_EQ(gateway.Wait(), 0) << gateway.error();
  EXPECT_THAT(gateway.out(), AllOf(ContainsRegex("\n  moves +[1-9]"),
                                   ContainsRegex("logins: ok +[1-9]")));
  EXPECT_EQ(gateway.error(), "");
}

TEST(GatewayRun, BadInputIsInTheTableOnASignalAndAtTheEnd) {
  ChildProcess gateway(GatewayCommand());
  const auto address = Address::Parse(AwaitReady(gateway));
  ASSERT_TRUE(address.ok());
  for (const BadInput input : {BadInput::kTooLong, BadInput::kCorruptLength,
                               BadInput::kUnknownCommand}) {
    Client bad = Client::Connect(*address);
    ASSERT_TRUE(bad.SendAll(BadBytes(input)));
    int error = 0;
    bad.ReadToEnd(&error);
  }
  // The connections end on loops, one after the other: ask until all are there.
  EXPECT_TRUE(WaitUntil([&] {
    gateway.Signal(SIGUSR1);
    return gateway.AwaitLine("closed: unknown command").ends_with(" 1");
  }));
  gateway.Signal(SIGINT);
  EXPECT_EQ(gateway.Wait(), 0) << gateway.error();
  const std::string last =
      gateway.out().substr(gateway.out().rfind("closed: packet too long"));
  EXPECT_THAT(last, AllOf(ContainsRegex("packet too long +1\n"),
                          ContainsRegex("corrupt length +1\n"),
                          ContainsRegex("unknown command +1\n")));
}

TEST(GatewayRun, AClientWhoseGatewayGoesAwayFails) {
  ChildProcess gateway(GatewayCommand());
  const std::string address = AwaitReady(gateway);
  ChildProcess client(
      {kClient, "--address=" + address, "--players=5", "--seconds=600"});
  // Until they play.
  EXPECT_TRUE(WaitUntil([&] {
    gateway.Signal(SIGUSR1);
    return !gateway.AwaitLine("  moves   ").ends_with(" 0");
  }));
  gateway.Signal(SIGKILL);
  EXPECT_EQ(gateway.Wait(), 128 + SIGKILL);
  EXPECT_EQ(client.Wait(), 1) << client.out();
  EXPECT_THAT(client.out(), HasSubstr("failed: "));
}

TEST(GatewayRun, ADrainEndsAtItsDeadlineAndASecondSignalBeforeIt) {
  for (const bool twice : {false, true}) {
    ChildProcess gateway(
        GatewayCommand({twice ? "--drain=10m" : "--drain=50ms"}));
    const auto address = Address::Parse(AwaitReady(gateway));
    ASSERT_TRUE(address.ok());
    Client silent = Client::Connect(*address);
    // Only then is the connection the gateway's: it has answered.
    ASSERT_TRUE(silent.SendAll(Framed(Payload::MoveOf(Command::kMove, {}))));
    EXPECT_EQ(silent.ReadExactly(8).size(), 8u);
    gateway.Signal(SIGTERM);
    if (twice) {
      // It no longer accepts: the first one was taken.
      ASSERT_TRUE(WaitUntil([&] {
        int error = 0;
        Client::TryConnect(*address, &error);
        return error != 0;
      }));
      gateway.Signal(SIGTERM);
    }
    EXPECT_EQ(gateway.Wait(), 0) << gateway.error();
    EXPECT_THAT(gateway.out(), ContainsRegex("the gateway ends +1\n"));
  }
}

TEST(GatewayRun, BadFlagsNameTheValue) {
  const std::pair<std::string, std::string> gateway_cases[] = {
      {"--listen=nonsense", "nonsense"},
      {"--listen=tcp://127.0.0.1:0,", "\"\""},
      {"--reactors=-1", "--reactors=-1"},
      {"--workers=0", "--workers=0"},
      {"--queue=0", "--queue=0"},
      {"--packets_per_second=-5", "--packets_per_second=-5"},
      {"--packet_burst=0", "--packet_burst=0"},
      {"--login_query=50", "--login_query=50: a duration with its unit"},
      {"--idle=-1s", "--idle=-1s"},
      {"--frame_deadline=0s", "--frame_deadline=0s"},
      {"--drain=never", "--drain=never"},
      {"--nope=1", "--nope=1"},
  };
  for (const auto& [flag, text] : gateway_cases) {
    ChildProcess gateway({kGateway, flag});
    EXPECT_EQ(gateway.Wait(), 2) << flag << "\n" << gateway.error();
    EXPECT_THAT(gateway.error(), AllOf(HasSubstr("gateway: "), HasSubstr(text)))
        << flag;
    EXPECT_EQ(gateway.out(), "") << flag;
  }
  const std::pair<std::string, std::string> client_cases[] = {
      {"--address=nonsense", "nonsense"},
      {"--players=0", "--players=0"},
      {"--rate=0", "--rate=0"},
      {"--rate=nan", "--rate=nan"},
      {"--seconds=0", "--seconds=0"},
      {"--flood=-1", "--flood=-1"},
      {"--bad=5000", "--bad=5000"},
      {"--logins_per_second=-1", "--logins_per_second=-1"},
      {"--json=/nonexistent/x", "/nonexistent/x"},
      {"stray", "\"stray\""},
  };
  for (const auto& [flag, text] : client_cases) {
    ChildProcess client({kClient, flag});
    EXPECT_EQ(client.Wait(), 2) << flag << "\n" << client.error();
    EXPECT_THAT(client.error(),
                AllOf(HasSubstr("gateway_client: "), HasSubstr(text)))
        << flag;
    EXPECT_EQ(client.out(), "") << flag;
  }
}

}  // namespace
}  // namespace sluice::gateway
