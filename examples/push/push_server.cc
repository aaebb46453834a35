#include "examples/push/push_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/frames.h"
#include "examples/push/report.h"
#include "examples/push/session.h"

namespace sluice::push {
namespace {

absl::string_view ToAbsl(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

ConnectionLimits LimitsFor(const PushOptions& options) {
  // What one read can bring beside an unfinished line.
  constexpr size_t kRead = size_t{64} << 10;
  // Above max_backlog no command is read, and no message queued. What was under
  // way when that became so: a batch of messages and an answer.
  constexpr size_t kSlack = size_t{256} << 10;
  ConnectionLimits limits;
  limits.max_inbound = options.max_line + kRead;
  limits.max_outbound =
      options.topics.group.max_backlog + options.max_line + kSlack;
  return limits;
}

absl::StatusOr<std::unique_ptr<PushServer>> PushServer::Create(
    PushOptions options) {
  // A line that is too long is skipped: the next one begins behind its LF.
  const absl::StatusOr<LineDecoder> decoder =
      LineDecoder::Create({.max_frame = options.max_line,
                           .when_too_long = WhenTooLong::kSkipFrame});
  if (!decoder.ok()) return decoder.status();
  return std::unique_ptr<PushServer>(
      new PushServer(std::move(options), *decoder));
}

// --- Life.

Action PushServer::OnBoot(Engine& engine) {
  absl::StatusOr<std::unique_ptr<Topics>> topics =
      Topics::Create(engine, options_.topics);
  if (!topics.ok()) {
    status_ = topics.status();
    return Action::kShutdown;
  }
  topics_ = *std::move(topics);
  return Action::kNone;
}

void PushServer::OnShutdown(Engine&) {
  if (topics_ == nullptr) return;
  summary_ = SummaryTable(topics_->All(), topics_->made_room(),
                          refused_.load(std::memory_order_relaxed));
  topics_.reset();  // before the engine
}

Action PushServer::OnOpen(Connection& c) {
  c.Emplace<Session>();
  return Action::kNone;
}

void PushServer::OnClose(Connection& c, const CloseInfo&) {
  for (Topic* topic : c.Get<Session>().topics) topics_->Unsubscribed(topic);
}

// A client that has said all it wants to say is through, as with most servers,
// once it has been answered. The answer to UNSUB may be under way: the close
// goes behind it.
Action PushServer::OnPeerShutdown(Connection& c) {
  if (c.inbound() > 0) {
    Refuse(c, absl::StrCat(Quoted(c.Peek()), ": the line has no end"));
  }
  // Refused only by an engine that ends, and every connection with it.
  c.ref()
      .Post([](Connection& connection) { connection.Close(); })
      .IgnoreError();
  return Action::kNone;
}

// --- Commands.

Action PushServer::OnTraffic(Connection& c) {
  return ForEachFrame(
      c, decoder_, c.Get<Session>().decode,
      [&](std::string_view line) { OnLine(c, line); },
      [&](const DecodeFault&) {
        Refuse(c, absl::StrCat("a line of more than ", options_.max_line,
                               " bytes: that is the most; it was left out"));
      });
}

void PushServer::OnLine(Connection& c, std::string_view line) {
  const absl::StatusOr<Command> command = ParseCommand(line);
  if (!command.ok()) {
    Refuse(c, std::string(command.status().message()));
  } else {
    switch (command->verb) {
      case Verb::kSub:
        Subscribe(c, command->topic);
        break;
      case Verb::kUnsub:
        Unsubscribe(c, command->topic);
        break;
      case Verb::kPub:
        Publish(c, line, *command);
        break;
      case Verb::kStats:
        Stats(c, command->topic);
        break;
      case Verb::kPing:
        Answer(c, "PONG");
        break;
    }
  }
  // Who does not read what it is told is not read either, until it has: the
  // pause lives in the callback.
  if (c.open() && c.outbound() > options_.topics.group.max_backlog) {
    c.NotifySent([pause = c.PauseRead()](Connection&, const absl::Status&) {});
  }
}

void PushServer::Subscribe(Connection& c, std::string_view name) {
  Session& session = c.Get<Session>();
  if (session.Find(name) == nullptr) {
    if (session.topics.size() >= options_.max_subscriptions) {
      return Refuse(c, "SUB", name,
                    absl::ResourceExhaustedError(absl::StrCat(
                        "this connection has ", session.topics.size(),
                        " subscriptions, and no more are allowed")));
    }
    const absl::StatusOr<Topic*> topic = topics_->Subscribe(name, c.ref());
    if (!topic.ok()) return Refuse(c, "SUB", name, topic.status());
    session.topics.push_back(*topic);
  }
  Answer(c, absl::StrCat("OK SUB ", ToAbsl(name)));
}

void PushServer::Unsubscribe(Connection& c, std::string_view name) {
  Session& session = c.Get<Session>();
  Topic* const topic = session.Find(name);
  if (topic == nullptr) {
    return Refuse(c, "UNSUB", name,
                  absl::NotFoundError("this connection has not subscribed to "
                                      "it"));
  }
  absl::Status left = topics_->Leave(*topic, c.ref());
  if (left.ok()) {
    // Leaving, with what was published before, happens when the loop comes to
    // it. So does this, behind it; later commands wait until then.
    left = c.ref().Post(
        [this, pause = c.PauseRead(),
         answer = absl::StrCat("OK UNSUB ", ToAbsl(name))](
            Connection& connection) { Answer(connection, answer); });
  }
  if (!left.ok()) return Refuse(c, "UNSUB", name, left);
  std::erase(session.topics, topic);
  topics_->Unsubscribed(topic);
}

void PushServer::Publish(Connection& c, std::string_view line,
                         const Command& command) {
  if (options_.publish_from && c.listener() != *options_.publish_from) {
    return Refuse(c, "PUB", command.topic,
                  absl::PermissionDeniedError(
                      "only the control socket may publish here"));
  }
  // Once for all who get it. "PUB topic text" and "MSG topic text" are equally
  // long, so no message is longer than a line may be.
  std::string message;
  message.reserve(line.size() + 1);
  absl::Status s = encoder_.Encode(
      std::string(line).replace(0, sizeof("PUB") - 1, "MSG"), &message);
  if (!s.ok()) {
    // It ends with CR: with the LF behind it that would be another line.
    return Refuse(c, "PUB", command.topic, s);
  }
  const absl::StatusOr<size_t> subscribers =
      topics_->Publish(command.topic, Payload(std::move(message)));
  if (!subscribers.ok()) {
    return Refuse(c, "PUB", command.topic, subscribers.status());
  }
  Answer(c, absl::StrCat("OK PUB ", ToAbsl(command.topic), " ", *subscribers));
}

void PushServer::Stats(Connection& c, std::string_view name) {
  const absl::StatusOr<TopicCounts> counts = topics_->Counts(name);
  if (!counts.ok()) return Refuse(c, "STATS", name, counts.status());
  Answer(c, absl::StrCat("OK STATS ", StatsLine(*counts)));
}

// --- Answers. A write fails only if the connection ends: OnClose is told.

void PushServer::Answer(Connection& c, std::string_view line) {
  const std::string_view pieces[] = {line, "\n"};
  c.Write(pieces).IgnoreError();
}

void PushServer::Refuse(Connection& c, std::string_view why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  const std::string_view pieces[] = {"ERR ", why, "\n"};
  c.Write(pieces).IgnoreError();
}

void PushServer::Refuse(Connection& c, std::string_view command,
                        std::string_view value, const absl::Status& why) {
  Refuse(c, absl::StrCat(ToAbsl(command), " ", Quoted(value), ": ",
                         why.message()));
}

}  // namespace sluice::push
