// codec/frames.h on a running engine.

#include "codec/frames.h"

#include <array>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/length_field_codec.h"
#include "codec/line_codec.h"
#include "gtest/gtest.h"
#include "test/codec/expect.h"
#include "test/support/client.h"
#include "test/support/matrix.h"
#include "test/support/pattern.h"
#include "test/support/ref_handler.h"
#include "test/support/test_server.h"

namespace sluice::test {
namespace {

// What each connection keeps.
struct Peer {
  DecodeState state;
};

// A server whose connections run `on_traffic`, and that writes down what
// happens to the first.
class FramesTest : public ::testing::TestWithParam<MatrixParam> {
 protected:
  FramesTest() : options_(GetParam().MakeOptions()) {}
  void Start(std::function<Action(Connection&, DecodeState&)> on_traffic) {
    handler_.on_open = [](Connection& c) {
      c.Emplace<Peer>();
      return Action::kNone;
    };
    handler_.on_traffic = [on_traffic](Connection& c) {
      return on_traffic(c, c.Get<Peer>().state);
    };
    handler_.on_close = [this](Connection& c, const CloseInfo& info) {
      std::lock_guard<std::mutex> lock(mutex_);
      reason_ = info.reason;
      fault_ = c.Get<Peer>().state.fault;
    };
    server_ = std::make_unique<TestServer>(
        handler_, std::vector<ListenerSpec>{GetParam().Listen()}, options_);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
    client_ = Client::Connect(server_->address());
  }
  ~FramesTest() override {
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }

  void Add(std::string event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
  }
  Events events() {
    std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  // Of the first connection, once it has closed.
  CloseReason AwaitClose() {
    EXPECT_TRUE(WaitUntil([this] { return handler_.closed >= 1; }));
    std::lock_guard<std::mutex> lock(mutex_);
    return reason_;
  }
  DecodeFault fault() {
    std::lock_guard<std::mutex> lock(mutex_);
    return fault_;
  }

  Options options_;  // until Start
  RefHandler handler_;
  std::unique_ptr<TestServer> server_;
  Client client_;

 private:
  std::mutex mutex_;
  Events events_;
  CloseReason reason_ = CloseReason::kNone;
  DecodeFault fault_;
};

constexpr size_t kMaxFrame = size_t{200} << 10;

// An echo of frames, whose payloads are sent from where they were received.
Action EchoFrames(Connection& c, DecodeState& state) {
  static const LengthFieldDecoder decoder =
      MakeDecoder(LengthFieldOptions{.max_frame = kMaxFrame, .strip = 4});
  static const LengthFieldEncoder encoder = *LengthFieldEncoder::Create();
  return ForEachFrame(c, decoder, state, [&](std::string_view frame) {
    const auto header = encoder.Header(frame.size());
    const std::array<std::string_view, 2> pieces = {header->view(), frame};
    return c.Write(pieces).ok() ? Action::kNone : Action::kClose;
  });
}

std::string ManyFrames() {
  const LengthFieldEncoder encoder = *LengthFieldEncoder::Create();
  std::string stream;
  for (const size_t size :
       std::initializer_list<size_t>{0, 1, 64, 1460, 65536, 150000, 3}) {
    for (uint32_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(encoder.Encode(Pattern(size, i), &stream).ok());
    }
  }
  return stream;
}

TEST_P(FramesTest, EveryFrameComesOnceHoweverTheStreamIsCut) {
  Start(EchoFrames);
  const std::string stream = ManyFrames();
  for (const size_t piece : {stream.size(), size_t{100000}, size_t{1460}}) {
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(client_.SendAll(std::string_view(stream).substr(at, piece)));
    }
    EXPECT_TRUE(SameBytes(client_.ReadExactly(stream.size()), stream));
  }
  // Each byte in a segment of its own.
  const std::string_view first = std::string_view(stream).substr(0, 5 * 4 + 9);
  for (const char& byte : first) {
    ASSERT_TRUE(client_.SendAll({&byte, 1}));
  }
  EXPECT_EQ(client_.ReadExactly(5 * 4 + 5), stream.substr(0, 5 * 4 + 5));
  ASSERT_TRUE(client_.ShutdownWrite());
  EXPECT_EQ(AwaitClose(), CloseReason::kPeerClosed);
}

// A frame of 4 GiB as B55 has it, on the wire.
TEST_P(FramesTest, AFinalErrorClosesForProtocolErrorWithTheReasonTold) {
  static const LengthFieldDecoder decoder =
      MakeDecoder(LengthFieldOptions{.max_frame = 100, .strip = 4});
  Start([this](Connection& c, DecodeState& state) {
    return ForEachFrame(
        c, decoder, state,
        [this](std::string_view frame) { Add(FrameEvent(frame)); },
        [this, &c](const DecodeFault& fault) {
          EXPECT_TRUE(c.open());
          EXPECT_TRUE(c.Write("bad\n").ok());
          Add(ErrorEvent(fault));
        });
  });
  ASSERT_TRUE(client_.SendAll(Bytes("\0\0\0\2ok") + "\xFF\xFF\xFF\xFF" +
                              Bytes("\0\0\0\2no")));
  // What on_error says arrives.
  EXPECT_EQ(client_.ReadToEof(), "bad\n");
  client_.Close();
  EXPECT_EQ(AwaitClose(), CloseReason::kProtocolError);
  const std::string error = TooLongEvent(100, 0x100000003);
  EXPECT_EQ(events(), Events({FrameEvent("ok"), error}));
  EXPECT_EQ(ErrorEvent(fault()), error) << "in OnClose";
}

TEST_P(FramesTest, WithoutOnErrorTheReasonIsInTheState) {
  static const LengthFieldDecoder decoder =
      MakeDecoder(LengthFieldOptions{.length_bytes = 1, .adjustment = -1});
  Start([](Connection& c, DecodeState& state) {
    return ForEachFrame(c, decoder, state, [](std::string_view) {});
  });
  ASSERT_TRUE(client_.SendAll(Bytes("\0")));
  EXPECT_EQ(client_.ReadToEof(), "");
  client_.Close();
  EXPECT_EQ(AwaitClose(), CloseReason::kProtocolError);
  EXPECT_EQ(fault().reason, CorruptReason::kShorterThanHeader);
}

TEST_P(FramesTest, SkippedFramesAreToldAndTheRestGoesOn) {
  static const LineDecoder decoder = MakeDecoder(
      LineOptions{.max_frame = 10, .when_too_long = WhenTooLong::kSkipFrame});
  Start([](Connection& c, DecodeState& state) {
    return ForEachFrame(
        c, decoder, state,
        [&c](std::string_view line) {
          EXPECT_TRUE(c.Write(line).ok());
          EXPECT_TRUE(c.Write("\n").ok());
        },
        [&c](const DecodeFault&) { EXPECT_TRUE(c.Write("?\n").ok()); });
  });
  // Far more than the engine would keep unread (ConnectionLimits).
  const std::string piece(size_t{1} << 16, 'x');
  ASSERT_TRUE(client_.SendAll("one\n"));
  for (int i = 0; i < 160; ++i) ASSERT_TRUE(client_.SendAll(piece));
  ASSERT_TRUE(client_.SendAll("\ntwo\r\n"));
  EXPECT_EQ(client_.ReadExactly(10), "one\n?\ntwo\n");
  EXPECT_EQ(handler_.closed, 0);
}

TEST_P(FramesTest, StopsWhereACallbackSaysSo) {
  static const LineDecoder decoder = MakeDecoder(LineOptions{});
  Start([this](Connection& c, DecodeState& state) {
    return ForEachFrame(c, decoder, state, [&](std::string_view line) {
      Add(FrameEvent(line));
      if (line == "closes") c.CloseFor(CloseReason::kRateLimit);
      return line == "quits" ? Action::kClose : Action::kNone;
    });
  });
  ASSERT_TRUE(client_.SendAll("a\nquits\nb\n"));
  EXPECT_EQ(client_.ReadToEof(), "");
  client_.Close();
  EXPECT_EQ(AwaitClose(), CloseReason::kLocal);
  EXPECT_EQ(events(), Frames({"a", "quits"}));

  client_ = Client::Connect(server_->address());
  ASSERT_TRUE(client_.SendAll("c\ncloses\nd\n"));
  EXPECT_EQ(client_.ReadToEof(), "");
  client_.Close();
  EXPECT_TRUE(WaitUntil([this] { return handler_.closed == 2; }));
  EXPECT_EQ(AwaitClose(), CloseReason::kRateLimit);
  EXPECT_EQ(events(), Frames({"a", "quits", "c", "closes"}));
}

// One frame at a time: each pauses reading until something else has happened.
TEST_P(FramesTest, StopsWhereACallbackPausesAndGoesOnAfterwards) {
  const auto pause = std::make_shared<ReadPause>();
  Start([this, pause](Connection& c, DecodeState& state) {
    static const LineDecoder decoder = MakeDecoder(LineOptions{});
    return ForEachFrame(c, decoder, state, [&](std::string_view line) {
      EXPECT_TRUE(c.reading()) << line;
      Add(std::string(line));
      *pause = c.PauseRead();
      c.reactor().RunAfter(std::chrono::milliseconds(0), [this, pause] {
        Add("|");
        pause->Release();
      });
    });
  });
  ASSERT_TRUE(client_.SendAll("a\nb\nc\nunfinished"));
  const Events expected = {"a", "|", "b", "|", "c", "|"};
  ASSERT_TRUE(WaitUntil([&] { return events() == expected; }));
  ASSERT_TRUE(client_.SendAll("\n"));
  ASSERT_TRUE(WaitUntil([&] { return events().size() >= 7; }));
  EXPECT_EQ(events()[6], "unfinished");
  EXPECT_TRUE(server_->StopAndDestroy().ok());
}

TEST_P(FramesTest, CallbacksMayEndTheConnectionInAnyWay) {
  static const LineDecoder decoder = MakeDecoder(LineOptions{.max_frame = 10});
  Start([this](Connection& c, DecodeState& state) {
    std::string_view last;
    return ForEachFrame(
        c, decoder, state,
        [&](std::string_view line) {
          last = line;
          Add(FrameEvent(line));
          if (line == "now") c.Close(CloseMode::kNow);
          if (line == "reset") c.Close(CloseMode::kReset);
          if (line == "throw") throw std::runtime_error("of a frame");
        },
        [&](const DecodeFault&) {
          Add("error");
          if (last == "closes") c.Close(CloseMode::kNow);
          return last == "quits" ? Action::kClose : Action::kNone;
        });
  });
  const std::string too_long = "\n12345678901\nlater\n";
  int ended = 0;
  for (const auto& [stream, reason] :
       std::initializer_list<std::pair<std::string, CloseReason>>{
           {"now\nlater\n", CloseReason::kLocal},
           {"reset\nlater\n", CloseReason::kLocal},
           {"throw\nlater\n", CloseReason::kHandlerException},
           {"closes" + too_long, CloseReason::kLocal},
           // The error came first.
           {"quits" + too_long, CloseReason::kProtocolError}}) {
    ASSERT_TRUE(client_.SendAll(stream));
    int error = 0;
    EXPECT_EQ(client_.ReadToEnd(&error), "");
    client_.Close();
    ++ended;
    ASSERT_TRUE(WaitUntil([&] { return handler_.closed == ended; }));
    EXPECT_EQ(AwaitClose(), reason) << stream;
    client_ = Client::Connect(server_->address());
  }
  EXPECT_EQ(events(),
            Events({"frame now", "frame reset", "frame throw", "frame closes",
                    "error", "frame quits", "error"}));
}

// Such a frame never arrives whole, however patient both sides are.
TEST_P(FramesTest, AFrameAboveMaxInboundIsAnErrorAndNoStandstill) {
  options_.limits.max_inbound = 1000;
  static const LengthFieldDecoder decoder =
      MakeDecoder(LengthFieldOptions{.max_frame = 5000, .strip = 4});
  Start([this](Connection& c, DecodeState& state) {
    return ForEachFrame(
        c, decoder, state,
        [this](std::string_view frame) {
          Add("frame of " + std::to_string(frame.size()));
        },
        [this](const DecodeFault& fault) { Add(ErrorEvent(fault)); });
  });
  std::string stream;
  const LengthFieldEncoder encoder = *LengthFieldEncoder::Create();
  for (const size_t size : {size_t{996}, size_t{0}, size_t{997}}) {
    ASSERT_TRUE(encoder.Encode(std::string(size, 'x'), &stream).ok());
  }
  ASSERT_TRUE(client_.SendAll(stream));
  EXPECT_EQ(client_.ReadToEof(), "");
  client_.Close();
  EXPECT_EQ(AwaitClose(), CloseReason::kProtocolError);
  EXPECT_EQ(events(), Events({"frame of 996", "frame of 0",
                              "error RESOURCE_EXHAUSTED: frame too long: more "
                              "than max_inbound, 1000 bytes, though max_frame "
                              "is 5000"}));
  EXPECT_EQ(fault().error, DecodeError::kNoRoom);
}

// One that gives out no more than it likes to, and has no max_frame().
struct Withholding {
  DecodeResult Decode(std::string_view, DecodeState&) const { return {}; }
};

TEST_P(FramesTest, ADecoderThatHoldsBackMayFillMaxInbound) {
  options_.limits.max_inbound = 1000;
  Start([this](Connection& c, DecodeState& state) {
    const Action action =
        ForEachFrame(c, Withholding(), state, [](std::string_view) {});
    if (c.inbound() == 1000) Add("full");
    return action;
  });
  ASSERT_TRUE(client_.SendAll(std::string(1000, 'x')));
  ASSERT_TRUE(WaitUntil([this] { return !events().empty(); }));
  EXPECT_EQ(handler_.closed, 0);
}

TEST_P(FramesTest, WhatHasArrivedOfALastFrameIsThereAtTheEnd) {
  static const LineDecoder decoder = MakeDecoder(LineOptions{});
  handler_.on_peer_shutdown = [this](Connection& c) {
    Add("left " + std::string(c.Peek()));
    return Action::kClose;
  };
  Start([this](Connection& c, DecodeState& state) {
    return ForEachFrame(
        c, decoder, state,
        [this](std::string_view line) { Add(FrameEvent(line)); },
        [this](const DecodeFault& fault) { Add(ErrorEvent(fault)); });
  });
  ASSERT_TRUE(client_.SendAll("whole\nhalf"));
  ASSERT_TRUE(client_.ShutdownWrite());
  EXPECT_EQ(client_.ReadToEof(), "");
  EXPECT_EQ(AwaitClose(), CloseReason::kPeerClosed);
  EXPECT_EQ(events(), Events({"frame whole", "left half"}));
}

// What is left of a frame is still there, and all before it is not.
TEST_P(FramesTest, ConsumesWhatIsDoneWith) {
  static const LineDecoder decoder = MakeDecoder(LineOptions{});
  Start([this](Connection& c, DecodeState& state) {
    const std::string_view all = c.Peek();
    const Action action =
        ForEachFrame(c, decoder, state, [&](std::string_view line) {
          EXPECT_GE(line.data(), all.data()) << "a copy";
          EXPECT_LE(line.data() + line.size(), all.data() + all.size());
          EXPECT_EQ(c.inbound(), all.size()) << "consumed too early";
          Add(FrameEvent(line));
        });
    Add("left " + std::string(c.Peek()));
    return action;
  });
  ASSERT_TRUE(client_.SendAll("a\nb\nrest"));
  ASSERT_TRUE(WaitUntil(
      [this] { return !events().empty() && events().back() == "left rest"; }));
  ASSERT_TRUE(client_.SendAll("!\n"));
  ASSERT_TRUE(WaitUntil([this] { return events().back() == "left "; }));
  Events lines = events();
  std::erase_if(lines,
                [](const std::string& e) { return !e.starts_with("f"); });
  EXPECT_EQ(lines, Frames({"a", "b", "rest!"}));
}

INSTANTIATE_TEST_SUITE_P(
    Loops, FramesTest,
    ::testing::Values(MatrixParam{},
                      MatrixParam{.family = Family::kUnix, .reactors = 2},
                      MatrixParam{.reactors = 2, .trigger = Trigger::kEdge}),
    MatrixName);

}  // namespace
}  // namespace sluice::test
