#include "examples/push_load/load_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/frames.h"
#include "examples/push_load/line_user.h"

namespace sluice::push {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{10};

uint64_t Micros(int64_t nanoseconds) {
  return static_cast<uint64_t>(std::max<int64_t>(0, nanoseconds)) / 1000;
}

}  // namespace

LoadClient::LoadClient(LoadSettings settings)
    : settings_(std::move(settings)),
      messages_(settings_.topic, settings_.bytes),
      // The defaults are fine.
      decoder_(LineDecoder::Create().value()) {
  publication_.due.resize(size_t{settings_.messages} + 1);
  result_.connections = settings_.connections;
  result_.slow = settings_.slow();
  result_.messages = settings_.messages;
  result_.bytes = settings_.bytes;
  result_.expected = settings_.fast() * settings_.messages;
}

// --- The run.

Action LoadClient::OnBoot(Engine& engine) {
  engine_ = &engine;
  began_ = news_at_ = gateway::NowNs();
  const auto reactors = static_cast<uint64_t>(engine.reactors());
  for (uint64_t i = 0; i < reactors; ++i) {
    lanes_.push_back(
        std::make_unique<Lane>(settings_, messages_, static_cast<int>(i),
                               settings_.connections * i / reactors,
                               settings_.connections * (i + 1) / reactors));
  }
  for (int i = 0; i < engine.reactors(); ++i) {
    const absl::Status posted = engine.reactor(i).Post(
        [this, i] { lanes_[static_cast<size_t>(i)]->Start(*engine_); });
    if (!posted.ok()) return Action::kShutdown;
  }
  const absl::Status posted = engine.reactor(0).Post([this] { Begin(); });
  return posted.ok() ? Action::kNone : Action::kShutdown;
}

void LoadClient::Begin() {
  DialPublisher();
  engine_->reactor(0).RunEvery(kWatchEvery, [this] { Watch(); });
}

void LoadClient::DialPublisher() {
  DialOptions options;
  options.timeout = settings_.patience;
  options.reactor = 0;
  const auto failed = [this](const absl::Status& status) {
    publication_.lost = true;
    publication_.trouble =
        absl::StrCat("the publisher could not connect: ", status.message());
  };
  const absl::Status dialing =
      engine_->Dial(settings_.publisher, std::move(options),
                    [this, failed](absl::StatusOr<Connection*> dialed) {
                      if (!dialed.ok()) return failed(dialed.status());
                      (*dialed)->Emplace<Line>(
                          std::make_unique<Publisher>(settings_, publication_));
                    });
  if (!dialing.ok()) failed(dialing);
}

void LoadClient::Watch() {
  const LaneCounts counts = Counts();
  if (phase_ == Phase::kOver) return;
  if (publication_.lost) return Enter(Phase::kOver);
  switch (phase_) {
    case Phase::kSubscribing:
      if (counts.subscribed == settings_.connections && publication_.ready) {
        Enter(Phase::kPublishing);
      } else if (counts.failed + counts.lost + counts.wrong > 0) {
        Give("not everybody could subscribe");
      } else if (Stuck(counts)) {
        Give("not everybody has subscribed, and nobody came any more");
      }
      return;
    case Phase::kPublishing:
      if (publication_.refused > 0) {
        Enter(Phase::kAsking);  // what was refused will not come
      } else if (publication_.sent > settings_.messages) {
        Enter(Phase::kReceiving);
      }
      return;
    case Phase::kReceiving:
      if (publication_.refused > 0 ||
          (counts.done + counts.lost == settings_.fast() &&
           publication_.answered == publication_.sent)) {
        Enter(Phase::kAsking);
      } else if (Stuck(counts)) {
        result_.Trouble("messages are missing at the end");
        Enter(Phase::kAsking);
      }
      return;
    case Phase::kAsking:
      if (!publication_.stats.empty()) {
        Enter(Phase::kOver);
      } else if (Stuck(counts)) {
        Give("push does not answer any more");
      }
      return;
    case Phase::kOver:
      return;
  }
}

void LoadClient::Enter(Phase phase) {
  const int64_t now = gateway::NowNs();
  if (phase_ == Phase::kSubscribing) {
    result_.connect_seconds = static_cast<double>(now - began_) / 1e9;
  }
  phase_ = phase;
  news_at_ = now;
  switch (phase) {
    case Phase::kSubscribing:
      return;
    case Phase::kPublishing:
      loop_.Start(engine_->reactor(0),
                  {.start = now, .per_second = settings_.rate},
                  [this](uint64_t turn) { Publish(turn); });
      return;
    case Phase::kReceiving:
      return loop_.Stop();
    case Phase::kAsking:
      return Tell("STATS " + settings_.topic);
    case Phase::kOver:
      loop_.Stop();
      return engine_->Stop();
  }
}

void LoadClient::Publish(uint64_t number) {
  // The loop is stopped by Watch, a little later.
  if (number > settings_.messages) return;
  publication_.due[number] = loop_.schedule().DueAt(number);
  ++publication_.sent;
  Tell(messages_.PubLine(static_cast<uint32_t>(number)));
}

void LoadClient::Tell(const std::string& line) {
  // The connection is gone if it fails, and its end was told.
  publication_.ref.Write(line + "\n").IgnoreError();
}

void LoadClient::Give(const char* up) {
  result_.Trouble(up);
  Enter(Phase::kOver);
}

LaneCounts LoadClient::Counts() const {
  LaneCounts sum;
  for (const auto& lane : lanes_) sum += lane->counts();
  return sum;
}

bool LoadClient::Stuck(const LaneCounts& c) {
  const uint64_t news = c.subscribed + c.received + c.missed + c.wrong +
                        c.done + publication_.answered;
  const int64_t now = gateway::NowNs();
  if (news != news_) {
    news_ = news;
    news_at_ = now;
  }
  return now - news_at_ > settings_.patience / std::chrono::nanoseconds(1);
}

// --- Connections.

Action LoadClient::OnOpen(Connection& c) {
  c.Get<Line>().user->OnOpen(c);
  return Action::kNone;
}

Action LoadClient::OnTraffic(Connection& c) {
  Line& line = c.Get<Line>();
  return ForEachFrame(c, decoder_, line.decode, [&](std::string_view text) {
    line.user->OnLine(c, text);
  });
}

void LoadClient::OnClose(Connection& c, const CloseInfo& info) {
  c.Get<Line>().user->OnEnd(info.reason);
}

// --- The result.

void LoadClient::OnShutdown(Engine&) {
  result_.interrupted = phase_ != Phase::kOver;
  result_.counts = Counts();
  result_.published = publication_.answered;
  result_.refused = publication_.refused;
  result_.server_stats = publication_.stats;
  if (!publication_.trouble.empty()) result_.Trouble(publication_.trouble);
  Receipts all(settings_.messages);
  for (const auto& lane : lanes_) {
    all.Merge(lane->receipts());
    for (const std::string& what : lane->troubles()) result_.Trouble(what);
  }
  int64_t end = publication_.due[0];
  for (uint32_t i = 0; i < settings_.messages; ++i) {
    const Receipts::Of& of = all.messages()[i];
    if (of.count == 0) continue;
    end = std::max(end, of.last);
    result_.first.Record(Micros(of.first - publication_.due[i]));
    // Only if it has come to the last one.
    if (of.count == settings_.fast()) {
      result_.last.Record(Micros(of.last - publication_.due[i]));
    }
  }
  result_.seconds = static_cast<double>(end - publication_.due[0]) / 1e9;
}

}  // namespace sluice::push
