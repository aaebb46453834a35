// The subscribers of push_load, and a push that makes mistakes: that they would
// notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/frames.h"
#include "codec/line_codec.h"
#include "examples/push_load/load_client.h"
#include "examples/push_load/messages.h"
#include "examples/push_load/receipts.h"
#include "test/support/lambda_handler.h"
#include "test/support/test_server.h"

namespace sluice::push {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(PushMessages, AreKnownByEveryByte) {
  for (const size_t bytes : {Messages::kLeastBytes, size_t{12}, size_t{500}}) {
    const Messages messages("t", bytes);
    for (const uint32_t number : {0u, 1u, 25u, 26u, 999'999u}) {
      std::string line = messages.PubLine(number);
      EXPECT_EQ(line.size(), sizeof("PUB t ") - 1 + bytes);
      EXPECT_FALSE(messages.Parse(line));  // it is not what push sends
      line.replace(0, 3, "MSG");
      EXPECT_EQ(messages.Parse(line), number);
      for (size_t i = 0; i < line.size(); ++i) {
        std::string other = line;
        other[i] = other[i] == '!' ? '?' : '!';
        EXPECT_FALSE(messages.Parse(other)) << other;
      }
      EXPECT_FALSE(messages.Parse(line + "a"));
      EXPECT_FALSE(messages.Parse(line.substr(0, line.size() - 1)));
    }
  }
  EXPECT_FALSE(Messages("t", 20).Parse(""));
}

TEST(PushReceipts, KeepTheFirstAndTheLast) {
  Receipts a(2);
  Receipts b(2);
  a.Received(1, 50);
  a.Received(1, 30);
  b.Received(1, 70);
  b.Merge(a);
  EXPECT_EQ(b.messages()[0].count, 0u);
  EXPECT_EQ(b.messages()[1].count, 3u);
  EXPECT_EQ(b.messages()[1].first, 30);
  EXPECT_EQ(b.messages()[1].last, 70);
}

TEST(PushSettings, SlowReadersAreSpreadAndNeverAll) {
  LoadSettings settings;
  settings.connections = 1'000;
  settings.slow_percent = 1;
  EXPECT_EQ(settings.slow(), 10u);
  uint64_t slow = 0;
  for (uint64_t i = 0; i < 500; ++i) slow += settings.IsSlow(i) ? 1 : 0;
  EXPECT_EQ(slow, 5u);
  settings.connections = 1;
  settings.slow_percent = 99;
  EXPECT_EQ(settings.fast(), 1u);
}

// Stands for push, on one loop: what it sends to a subscriber for a message.
class FakePush {
 public:
  // `subscriber`: 0, 1, ... in the order in which they came.
  using Deliver = std::function<void(Connection&, size_t subscriber,
                                     const std::string& msg_line)>;

  explicit FakePush(Deliver deliver) : deliver_(std::move(deliver)) {
    handler_.on_open = [](Connection& c) {
      c.Emplace<DecodeState>();
      return Action::kNone;
    };
    handler_.on_traffic = [this](Connection& c) {
      return ForEachFrame(
          c, decoder_, c.Get<DecodeState>(),
          [&](std::string_view line) { OnLine(c, std::string(line)); });
    };
    handler_.on_close = [this](Connection& c, const CloseInfo&) {
      std::replace(subscribers_.begin(), subscribers_.end(), &c,
                   static_cast<Connection*>(nullptr));
    };
    server_ = std::make_unique<test::TestServer>(
        handler_, std::vector<ListenerSpec>{"tcp://127.0.0.1:0"},
        test::TestOptions(1));
    EXPECT_TRUE(server_->created().ok()) << server_->created();
  }
  Address address() const { return server_->address(); }

 private:
  void OnLine(Connection& c, const std::string& line) {
    if (line == "PING") {
      Send(c, "PONG");
    } else if (line == "SUB load") {
      subscribers_.push_back(&c);
      Send(c, "OK " + line);
    } else if (line == "STATS load") {
      Send(c, "OK " + line + " some=1");
    } else {
      ASSERT_EQ(line.substr(0, 4), "PUB ");
      Send(c, absl::StrCat("OK PUB load ", subscribers_.size()));
      for (size_t i = 0; i < subscribers_.size(); ++i) {
        if (subscribers_[i] == nullptr) continue;
        deliver_(*subscribers_[i], i, "MSG" + line.substr(3));
      }
    }
  }

 public:
  static void Send(Connection& c, const std::string& line) {
    c.Write(line + "\n").IgnoreError();
  }

 private:
  const Deliver deliver_;
  const LineDecoder decoder_ = LineDecoder::Create().value();
  std::vector<Connection*> subscribers_;
  test::LambdaHandler handler_;
  std::unique_ptr<test::TestServer> server_;
};

class PushLoad : public testing::Test {
 protected:
  PushLoad() {
    settings_.connections = 3;
    settings_.messages = 10;
    settings_.bytes = 30;
    settings_.rate = 1'000;
  }
  const Result& Run(FakePush::Deliver deliver) {
    FakePush push(std::move(deliver));
    settings_.server = settings_.publisher = push.address();
    client_ = std::make_unique<LoadClient>(settings_);
    test::TestServer engine(*client_, {}, test::TestOptions(2));
    EXPECT_TRUE(engine.created().ok()) << engine.created();
    EXPECT_TRUE(engine.WaitForRun().ok());
    return client_->result();
  }
  // The third message, by its number.
  static bool IsThird(const std::string& line) {
    return line.starts_with("MSG load 0000000002 ");
  }

  LoadSettings settings_;
  std::unique_ptr<LoadClient> client_;
};

TEST_F(PushLoad, IsContentWithEachMessageOnce) {
  const Result& r = Run([](Connection& c, size_t, const std::string& line) {
    FakePush::Send(c, line);
  });
  EXPECT_EQ(r.exit_code(), 0) << Table(r);
  EXPECT_EQ(r.counts.received, 30u);
  EXPECT_EQ(r.first.count(), 10u);
  EXPECT_EQ(r.last.count(), 10u);
  EXPECT_THAT(Table(r), AllOf(HasSubstr("30 of 30"), HasSubstr("some=1"),
                              HasSubstr("ok: every reader")));
}

TEST_F(PushLoad, NoticesAMessageThatOneDoesNotGet) {
  const Result& r = Run([](Connection& c, size_t i, const std::string& line) {
    if (i != 1 || !IsThird(line)) FakePush::Send(c, line);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_EQ(r.counts.missed, 1u);
  EXPECT_EQ(r.counts.received, 29u);
  EXPECT_EQ(r.last.count(), 9u);
  EXPECT_THAT(Table(r), HasSubstr("failed: not every reader"));
}

TEST_F(PushLoad, NoticesAMessageThatComesTwice) {
  for (const std::string third :
       {"MSG load 0000000002 ", "MSG load 0000000009 "}) {
    const Result& r =
        Run([&](Connection& c, size_t i, const std::string& line) {
          FakePush::Send(c, line);
          if (i == 1 && line.starts_with(third)) FakePush::Send(c, line);
        });
    EXPECT_EQ(r.exit_code(), 1);
    EXPECT_EQ(r.counts.wrong, 1u);
    EXPECT_THAT(Table(r), HasSubstr("a message again"));
  }
}

TEST_F(PushLoad, NoticesAnOrderThatIsNotThatOfPublishing) {
  std::string held;
  const Result& r = Run([&](Connection& c, size_t i, const std::string& line) {
    if (i == 1 && IsThird(line)) {
      held = line;
      return;
    }
    FakePush::Send(c, line);
    if (i == 1 && !held.empty()) {
      FakePush::Send(c, held);
      held.clear();
    }
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_EQ(r.counts.missed, 1u);
  EXPECT_EQ(r.counts.wrong, 1u);
}

TEST_F(PushLoad, NoticesAWrongByte) {
  const Result& r = Run([](Connection& c, size_t, std::string line) {
    if (IsThird(line)) line.back() = '!';
    FakePush::Send(c, line);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_EQ(r.counts.wrong, 3u);
  EXPECT_THAT(Table(r), HasSubstr("not a message that was sent"));
}

TEST_F(PushLoad, NoticesThatTheLastOnesAreMissing) {
  settings_.patience = milliseconds(1'500);
  const Result& r = Run([](Connection& c, size_t i, const std::string& line) {
    if (i != 2 || line < "MSG load 0000000008") FakePush::Send(c, line);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_LT(r.counts.received, 30u);
  EXPECT_THAT(Table(r), HasSubstr("messages are missing at the end"));
}

TEST_F(PushLoad, NoticesALostConnection) {
  const Result& r = Run([](Connection& c, size_t i, const std::string& line) {
    if (i == 1 && IsThird(line)) return c.Close();
    FakePush::Send(c, line);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_EQ(r.counts.lost, 1u);
  EXPECT_THAT(Table(r), HasSubstr("a connection was lost: closed by peer"));
}

// One of two never reads, and one of the two is closed: which one makes the
// difference.
TEST_F(PushLoad, OnlyAReaderThatNeverReadsMayBeClosed) {
  settings_.connections = 2;
  settings_.slow_percent = 50;
  bool slow_closed = false;
  for (size_t run = 0; run < 20 && !slow_closed; ++run) {
    const Result& r =
        Run([&](Connection& c, size_t i, const std::string& line) {
          if (i == run % 2 && IsThird(line)) return c.Close(CloseMode::kReset);
          FakePush::Send(c, line);
        });
    slow_closed = r.counts.lost == 0;
    EXPECT_EQ(r.exit_code(), slow_closed ? 0 : 1) << Table(r);
    if (slow_closed) {
      EXPECT_EQ(r.counts.received, 10u);
    } else {
      // A reset may throw away what was not read yet.
      EXPECT_LE(r.counts.received, 2u);
    }
  }
  EXPECT_TRUE(slow_closed);
}

TEST_F(PushLoad, NobodyThere) {
  settings_.server = settings_.publisher =
      FakePush([](Connection&, size_t, const std::string&) {}).address();
  client_ = std::make_unique<LoadClient>(settings_);
  test::TestServer engine(*client_, {}, test::TestOptions(1));
  EXPECT_TRUE(engine.WaitForRun().ok());
  EXPECT_EQ(client_->result().exit_code(), 1);
  EXPECT_THAT(Table(client_->result()), HasSubstr("could not"));
}

}  // namespace
}  // namespace sluice::push
