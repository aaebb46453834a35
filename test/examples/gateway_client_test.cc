// The client of the gateway: that it would notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/frames.h"
#include "examples/gateway/accounts.h"
#include "examples/gateway_client/load_client.h"
#include "examples/gateway_client/move_stream.h"
#include "test/support/lambda_handler.h"
#include "test/support/test_server.h"

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Schedule, IsEvenAndDoesNotDrift) {
  const Schedule schedule{.start = 1'000, .per_second = 3};
  EXPECT_EQ(schedule.DueAt(0), 1'000);
  EXPECT_EQ(schedule.DueAt(1), 1'000 + 333'333'333);
  EXPECT_EQ(schedule.DueAt(3), 1'000 + 1'000'000'000);
  EXPECT_EQ(schedule.DueAt(3'000'000), 1'000 + 1'000'000'000'000'000);
}

TEST(MoveStream, KnowsTheAnswerToEachMove) {
  const Schedule schedule{.start = 50, .per_second = 100};
  MoveStream moves(schedule, 3, 10);
  std::vector<Move> sent;
  bool inside = false;
  bool outside = false;
  for (int i = 0; i < 1'000; ++i) {
    sent.push_back(moves.Next());
    (InsideTheWorld(sent.back()) == sent.back() ? inside : outside) = true;
  }
  EXPECT_TRUE(inside);
  EXPECT_TRUE(outside);
  EXPECT_EQ(sent[7].sequence, 7u);
  EXPECT_EQ(sent[7].sent_at, static_cast<uint64_t>(schedule.DueAt(73)));
  for (const Move& move : sent) EXPECT_TRUE(moves.Check(InsideTheWorld(move)));
  EXPECT_EQ(moves.outstanding(), 0u);
  EXPECT_FALSE(moves.Check(InsideTheWorld(sent.back())));
}

TEST(MoveStream, NoticesWhatIsNotTheAnswer) {
  const auto check = [](const std::function<void(Move&)>& change) {
    MoveStream moves({.start = 50, .per_second = 100}, 3, 10);
    moves.Next();
    MoveStream same = moves;
    Move answer = InsideTheWorld(
        MoveStream({.start = 50, .per_second = 100}, 3, 10).Next());
    EXPECT_TRUE(same.Check(answer));
    change(answer);
    return moves.Check(answer);
  };
  EXPECT_FALSE(check([](Move& m) { ++m.sequence; }));
  EXPECT_FALSE(check([](Move& m) { ++m.x; }));
  EXPECT_FALSE(check([](Move& m) { --m.y; }));
  EXPECT_FALSE(check([](Move& m) { ++m.sent_at; }));
}

// A gateway that does as it is told: what it answers to each packet.
class FakeGateway {
 public:
  using Answers = std::function<void(Connection&, const Packet&)>;

  explicit FakeGateway(Answers answers) {
    handler_.on_open = [](Connection& c) {
      c.Emplace<DecodeState>();
      return Action::kNone;
    };
    handler_.on_traffic = [this, answers](Connection& c) {
      return ForEachFrame(
          c, decoder_, c.Get<DecodeState>(), [&](std::string_view frame) {
            const std::optional<Packet> packet = ParsePacket(frame);
            if (packet) answers(c, *packet);
          });
    };
    server_ = std::make_unique<test::TestServer>(
        handler_, std::vector<ListenerSpec>{"tcp://127.0.0.1:0"},
        test::TestOptions(1));
    EXPECT_TRUE(server_->created().ok()) << server_->created().ToString();
  }
  Address address() const { return server_->address(); }

 private:
  const LengthFieldDecoder decoder_ = MakeDecoder();
  test::LambdaHandler handler_;
  std::unique_ptr<test::TestServer> server_;
};

void RightAnswer(Connection& c, const Packet& packet) {
  const Payload answer =
      packet.command == Command::kLogin
          ? Payload::LoggedIn(Accounts::Number(std::string(packet.body)))
          : Payload::MoveOf(Command::kMoved,
                            InsideTheWorld(ParseMove(packet.body).value()));
  Send(c, answer).IgnoreError();
}

// Plays against it until the client has seen enough.
class GatewayClient : public testing::Test {
 protected:
  const Result& Play(FakeGateway::Answers answers) {
    FakeGateway gateway(std::move(answers));
    settings_.gateway = gateway.address();
    client_ = std::make_unique<LoadClient>(settings_);
    test::TestServer engine(*client_, {}, test::TestOptions(1));
    EXPECT_TRUE(engine.created().ok()) << engine.created().ToString();
    EXPECT_TRUE(engine.WaitForRun().ok());
    return client_->result();
  }

  static LoadSettings FewAndShort() {
    LoadSettings settings;
    settings.players = 3;
    settings.moves_per_second = 50;
    settings.play = milliseconds(200);
    return settings;
  }

  LoadSettings settings_ = FewAndShort();
  std::unique_ptr<LoadClient> client_;
};

TEST_F(GatewayClient, IsContentWithRightAnswers) {
  const Result& r = Play(RightAnswer);
  EXPECT_EQ(r.exit_code(), 0) << Table(r);
  EXPECT_GT(r.moves_sent, 0u);
  EXPECT_EQ(r.moves_answered, r.moves_sent);
  EXPECT_EQ(r.move_times.count(), r.moves_sent);
  EXPECT_THAT(Table(r), HasSubstr("ok: every player"));
}

TEST_F(GatewayClient, NoticesAWrongMove) {
  const Result& r = Play([](Connection& c, const Packet& packet) {
    if (packet.command == Command::kLogin) return RightAnswer(c, packet);
    Move move = InsideTheWorld(ParseMove(packet.body).value());
    if (move.sequence == 3) ++move.x;
    Send(c, Payload::MoveOf(Command::kMoved, move)).IgnoreError();
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_GT(r.wrong, 0u);
  EXPECT_THAT(Table(r), HasSubstr("not the answer to its move"));
}

TEST_F(GatewayClient, NoticesAMissingAnswer) {
  settings_.patience = milliseconds(1'500);
  const Result& r = Play([](Connection& c, const Packet& packet) {
    const bool move = packet.command == Command::kMove;
    if (move && ParseMove(packet.body)->sequence >= 5) return;
    RightAnswer(c, packet);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_TRUE(r.moves_answered < r.moves_sent || r.logged_in < r.players)
      << Table(r);
}

TEST_F(GatewayClient, NoticesALostConnection) {
  const Result& r = Play([](Connection& c, const Packet& packet) {
    const bool move = packet.command == Command::kMove;
    if (move && ParseMove(packet.body)->sequence == 2) return c.Close();
    RightAnswer(c, packet);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_GT(r.lost, 0u);
  EXPECT_THAT(Table(r), HasSubstr("closed by peer"));
}

TEST_F(GatewayClient, NoticesALoginAsSomebodyElse) {
  const Result& r = Play([](Connection& c, const Packet&) {
    Send(c, Payload::LoggedIn(1)).IgnoreError();
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_GT(r.wrong, 0u);
}

TEST_F(GatewayClient, ComesBackWhenItIsTold) {
  int told = 0;
  const Result& r = Play([&told](Connection& c, const Packet& packet) {
    if (packet.command == Command::kLogin && ++told <= 5) {
      Send(c, Payload::Refused(Command::kLogin, Why::kComeBack)).IgnoreError();
    } else {
      RightAnswer(c, packet);
    }
  });
  EXPECT_EQ(r.exit_code(), 0) << Table(r);
  EXPECT_EQ(told, 5 + 3);
}

TEST_F(GatewayClient, NoticesThatVisitorsAreNotAnswered) {
  settings_.logins_per_second = 50;
  settings_.patience = milliseconds(1'500);
  const Result& r = Play([](Connection& c, const Packet& packet) {
    if (packet.body.substr(0, 7) == "visitor") return;
    RightAnswer(c, packet);
  });
  EXPECT_EQ(r.exit_code(), 1);
  EXPECT_TRUE(r.logins_failed > 0 || r.logged_in < r.players) << Table(r);
}

TEST_F(GatewayClient, NoticesAnAnswerToBadInput) {
  settings_.bad_clients = 1;
  const auto answer_all = [](Connection& c, const Packet& packet) {
    if (packet.command == Command::kLogin || packet.command == Command::kMove) {
      return RightAnswer(c, packet);
    }
    Send(c, Payload::LoggedIn(1)).IgnoreError();
  };
  // The bad ones connect while the others play, for as long as that takes.
  uint64_t wrong = 0;
  for (const int ms : {100, 1'000, 10'000, 60'000}) {
    settings_.play = milliseconds(ms);
    const Result& r = Play(answer_all);
    wrong = r.wrong;
    EXPECT_EQ(r.exit_code(), wrong == 0 ? 0 : 1) << Table(r);
    if (wrong > 0) break;
  }
  EXPECT_GT(wrong, 0u);
}

TEST_F(GatewayClient, NobodyThere) {
  settings_.gateway = FakeGateway(RightAnswer).address();  // gone again
  client_ = std::make_unique<LoadClient>(settings_);
  test::TestServer engine(*client_, {}, test::TestOptions(1));
  EXPECT_TRUE(engine.WaitForRun().ok());
  EXPECT_EQ(client_->result().exit_code(), 1);
  EXPECT_EQ(client_->result().lost, 3u);
}

TEST_F(GatewayClient, AnEngineThatIsStoppedIsAnInterruption) {
  test::Event moving;
  FakeGateway gateway([&moving](Connection& c, const Packet& packet) {
    if (packet.command == Command::kMove) moving.Set();
    RightAnswer(c, packet);
  });
  settings_.gateway = gateway.address();
  settings_.play = std::chrono::minutes(10);
  client_ = std::make_unique<LoadClient>(settings_);
  test::TestServer engine(*client_, {}, test::TestOptions(1));
  ASSERT_TRUE(moving.Wait());
  engine.Stop();
  EXPECT_TRUE(engine.WaitForRun().ok());
  EXPECT_EQ(client_->result().exit_code(), 130);
  EXPECT_EQ(client_->result().lost, 0u);
  EXPECT_GT(client_->result().moves_sent, 0u);
  EXPECT_THAT(Table(client_->result()), HasSubstr("interrupted: "));
}

}  // namespace
}  // namespace sluice::gateway
