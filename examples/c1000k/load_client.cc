#include "examples/c1000k/load_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/source_addresses.h"

namespace sluice::c1000k {
namespace {

using examples::Histogram;

// On loopback a dial takes microseconds; a lost SYN a second or three.
constexpr std::chrono::seconds kDialTimeout{30};

}  // namespace

LoadClient::LoadClient(const Plan& plan, uint16_t port)
    : reactors_(plan.reactors),
      // Texts of our own making: they parse.
      server_(Address::Parse(absl::StrCat("tcp4://127.0.0.1:", port)).value()) {
  for (size_t i = 0; i < plan.sources_most; ++i) {
    sources_.push_back(
        Address::Parse(absl::StrCat("tcp4://", SourceAddress(i), ":0"))
            .value());
  }
  const auto reactors = static_cast<uint64_t>(plan.reactors);
  for (int i = 0; i < plan.reactors; ++i) {
    lanes_.push_back(std::make_unique<Lane>(static_cast<uint32_t>(i),
                                            plan.connections / reactors + 64));
  }
}

absl::StatusOr<std::unique_ptr<LoadClient>> LoadClient::Start(const Plan& plan,
                                                              uint16_t port) {
  Options options;
  options.reactors = plan.reactors;
  options.fd_tables = plan.fd_tables;
  // The server's reactors have the CPUs to themselves, as far as pinning goes;
  // ours run where there is room.
  options.pinning.mode = CpuPinning::Mode::kOff;
  std::unique_ptr<LoadClient> client(new LoadClient(plan, port));
  LoadClient* const c = client.get();
  c->thread_ = std::thread([c, options = std::move(options)]() mutable {
    c->EngineThread(std::move(options));
  });
  std::unique_lock<std::mutex> lock(c->mutex_);
  c->changed_.wait(lock, [c] { return c->started_.has_value(); });
  const absl::Status started = *c->started_;
  lock.unlock();
  if (!started.ok()) return started;
  return client;
}

LoadClient::~LoadClient() { Stop().IgnoreError(); }

void LoadClient::EngineThread(Options options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(*this, {}, std::move(options));
  if (!engine.ok()) {
    Started(engine.status());
    return;
  }
  engine_ = engine->get();
  const absl::Status ran = (*engine)->Run();
  Started(ran.ok() ? absl::UnavailableError("the engine ended at once") : ran);
  // The controller may still dial or ask: it gets an error, not a dangling
  // engine.
  std::unique_lock<std::mutex> lock(mutex_);
  ended_ = ran;
  changed_.wait(lock, [this] { return release_; });
}

void LoadClient::Started(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (started_.has_value()) return;
  started_ = status;
  changed_.notify_all();
}

Action LoadClient::OnBoot(Engine& engine) {
  // Dials are accepted once the loops run, so a loop says when.
  const absl::Status posted =
      engine.reactor(0).Post([this] { Started(absl::OkStatus()); });
  if (posted.ok()) return Action::kNone;
  Started(posted);
  return Action::kShutdown;
}

Action LoadClient::OnOpen(Connection& connection) {
  lanes_[static_cast<size_t>(connection.reactor().index())]->Opened(connection);
  return Action::kNone;
}

Action LoadClient::OnTraffic(Connection& connection) {
  lanes_[static_cast<size_t>(connection.reactor().index())]->Arrived(
      connection);
  return Action::kNone;
}

void LoadClient::OnClose(Connection& connection, const CloseInfo&) {
  lanes_[static_cast<size_t>(connection.reactor().index())]->Closed();
}

void LoadClient::Dial(size_t source, int reactor) {
  ++issued_;
  DialOptions options;
  options.timeout = kDialTimeout;
  options.source = sources_[source];
  options.reactor = reactor;
  const absl::Status dialing = engine_->Dial(
      server_, std::move(options),
      [this, source, reactor](absl::StatusOr<Connection*> dialed) {
        // A success is counted by OnOpen, which comes next.
        if (!dialed.ok()) DialFailed(source, reactor, dialed.status());
      });
  if (!dialing.ok()) DialFailed(source, reactor, dialing);
}

void LoadClient::DialFailed(size_t source, int reactor, absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_.push_back(
      {.source = source, .reactor = reactor, .status = std::move(status)});
  failed_.fetch_add(1, std::memory_order_release);
}

uint64_t LoadClient::dials_failed() const {
  return failed_.load(std::memory_order_acquire);
}

std::vector<DialFailure> LoadClient::TakeFailures() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failures_, {});
}

template <typename Task>
void LoadClient::OnEveryLane(Task task) {
  for (int i = 0; i < reactors_; ++i) {
    Lane* const lane = lanes_[static_cast<size_t>(i)].get();
    Reactor* const reactor = &engine_->reactor(i);
    // Refused only by an engine that has ended, where nothing is left to do.
    reactor->Post([=] { task(*lane, *reactor, i); }).IgnoreError();
  }
}

void LoadClient::StartHeartbeats(double per_second) {
  const double each =
      per_second / static_cast<double>(std::max<uint64_t>(1, counts().open()));
  const int lanes = reactors_;
  OnEveryLane([each, lanes](Lane& lane, Reactor& reactor, int i) {
    lane.StartHeartbeats(reactor, each, 10 * i / lanes);
  });
}

void LoadClient::StopHeartbeats() {
  OnEveryLane(
      [](Lane& lane, Reactor& reactor, int) { lane.StopHeartbeats(reactor); });
}

bool LoadClient::heartbeats_stopped() const {
  for (const auto& lane : lanes_) {
    if (!lane->heartbeats_stopped()) return false;
  }
  return true;
}

void LoadClient::StartRollCall(size_t window) {
  const size_t each = window / static_cast<size_t>(reactors_);
  OnEveryLane([each](Lane& lane, Reactor& reactor, int) {
    lane.StartRollCall(reactor, each);
  });
}

bool LoadClient::roll_call_sent() const {
  for (const auto& lane : lanes_) {
    if (!lane->roll_call_sent()) return false;
  }
  return true;
}

void LoadClient::StartClose() {
  OnEveryLane(
      [](Lane& lane, Reactor& reactor, int) { lane.StartClose(reactor); });
}

absl::Status LoadClient::Stop() {
  if (!thread_.joinable()) return ended_;
  // Only then may the thread let go of the engine.
  if (engine_ != nullptr) engine_->Stop();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    release_ = true;
  }
  changed_.notify_all();
  thread_.join();
  engine_ = nullptr;
  return ended_;
}

LaneCounts LoadClient::counts() const {
  LaneCounts sum;
  for (const auto& lane : lanes_) sum += lane->counts();
  return sum;
}

void LoadClient::MergeRtt(Histogram* paced, Histogram* roll_call) const {
  for (const auto& lane : lanes_) {
    paced->Merge(lane->rtt());
    roll_call->Merge(lane->roll_rtt());
  }
}

}  // namespace sluice::c1000k
