// Topics that come and go while others subscribe to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/push/push_server.h"
#include "test/examples/push_fixture.h"
#include "test/support/test_server.h"

namespace sluice::push {
namespace {

using testing::HasSubstr;

class PushTopics : public testing::Test {
 protected:
  void Start(const PushOptions& options) {
    auto push = PushServer::Create(options);
    ASSERT_TRUE(push.ok()) << push.status();
    push_ = *std::move(push);
    Options engine = test::TestOptions(2);
    engine.limits = LimitsFor(options);
    server_ = std::make_unique<test::TestServer>(
        *push_, std::vector<ListenerSpec>{"tcp://127.0.0.1:0"}, engine);
    ASSERT_TRUE(server_->created().ok()) << server_->created();
  }
  LineClient Connect() { return LineClient(server_->address()); }

  std::unique_ptr<PushServer> push_;
  std::unique_ptr<test::TestServer> server_;
};

// More names than places: each subscription may throw another topic out, and
// none may be thrown out that has a subscriber. Whoever was told OK hears what
// is published then.
TEST_F(PushTopics, NobodyIsLostWhileTopicsMakeRoom) {
  PushOptions options;
  options.topics.max_topics = 3;
  Start(options);
  constexpr int kClients = 6;
  constexpr int kNames = 5;
  constexpr int kRounds = 200;
  std::atomic<int> subscribed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      LineClient client = Connect();
      for (int round = 0; round < kRounds; ++round) {
        const std::string topic = absl::StrCat("t", (t + round) % kNames);
        const std::string answer = client.Ask("SUB " + topic);
        if (answer != "OK SUB " + topic) {
          EXPECT_THAT(answer, HasSubstr("3 topics with subscribers"));
          continue;
        }
        ++subscribed;
        const std::string text = absl::StrCat(t, "/", round);
        client.Say(absl::StrCat("PUB ", topic, " ", text));
        // Others publish there as well.
        bool told = false;
        bool heard = false;
        while (!told || !heard) {
          const std::string line = client.Hear();
          if (line.empty()) break;
          told |= line.starts_with("OK PUB " + topic);
          heard |= line == absl::StrCat("MSG ", topic, " ", text);
        }
        EXPECT_TRUE(told && heard) << topic << " " << text;
        client.Say("UNSUB " + topic);
        std::string line;
        do {
          line = client.Hear();
        } while (line.starts_with("MSG "));
        EXPECT_EQ(line, "OK UNSUB " + topic);
        // After that answer nothing of it comes.
        if (round % 10 == 0) {
          EXPECT_EQ(client.Ask("PING"), "PONG");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(subscribed, 0);
  EXPECT_TRUE(server_->WaitForNoConnections());
  EXPECT_TRUE(server_->StopAndDestroy().ok());
  EXPECT_THAT(push_->Summary(), HasSubstr("\n  topics: 3; "));
}

TEST_F(PushTopics, TheEndOfConnectionsIsTheEndOfSubscriptions) {
  PushOptions options;
  options.topics.max_topics = 1;
  Start(options);
  for (int i = 0; i < 50; ++i) {
    LineClient client = Connect();
    // The one before may still be on its way out.
    const std::string topic = absl::StrCat("t", i);
    EXPECT_TRUE(test::WaitUntil(
        [&] { return client.Ask("SUB " + topic) == "OK SUB " + topic; }));
    EXPECT_EQ(client.Ask("PUB " + topic + " x"), "OK PUB " + topic + " 1");
    EXPECT_EQ(client.Hear(), "MSG " + topic + " x");
    if (i % 2 == 0) client.client().CloseWithReset();
  }
  EXPECT_TRUE(server_->StopAndDestroy().ok());
  EXPECT_THAT(push_->Summary(),
              HasSubstr("topics: 1; made room for others: 49;"));
}

TEST_F(PushTopics, OptionsThatCannotBeAreNamed) {
  PushOptions options;
  options.max_line = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(PushServer::Create(options).status()));

  options = PushOptions();
  options.topics.max_topics = 0;
  auto push = PushServer::Create(options);
  ASSERT_TRUE(push.ok());
  test::TestServer server(**push, {"tcp://127.0.0.1:0"}, test::TestOptions(1));
  EXPECT_TRUE(server.WaitForRun().ok());
  EXPECT_THAT(std::string((*push)->status().message()),
              HasSubstr("max_topics is 0"));
  EXPECT_EQ((*push)->Summary(), "");
}

}  // namespace
}  // namespace sluice::push
