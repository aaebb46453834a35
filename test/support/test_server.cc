#include "test/support/test_server.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace sluice::test {

// What the engine's thread and the test share.
struct TestServer::State {
  std::unique_ptr<Engine> engine;  // made and destroyed on the engine's thread
  absl::Status created;
  absl::Status run;
  Event ready;     // created is set
  Event booted;    // OnBoot has returned
  Event returned;  // run is set
  Event destroy;   // the engine may go
  Event gone;      // it has gone
};

// Passes everything on, and tells when OnBoot is over.
class TestServer::Watcher final : public EventHandler {
 public:
  Watcher(EventHandler& handler, State& state)
      : handler_(handler), state_(state) {}

  Action OnBoot(Engine& engine) override {
    const Action action = handler_.OnBoot(engine);
    state_.booted.Set();
    return action;
  }
  Action OnOpen(Connection& c) override { return handler_.OnOpen(c); }
  Action OnTraffic(Connection& c) override { return handler_.OnTraffic(c); }
  void OnHighWater(Connection& c) override { handler_.OnHighWater(c); }
  void OnLowWater(Connection& c) override { handler_.OnLowWater(c); }
  Action OnPeerShutdown(Connection& c) override {
    return handler_.OnPeerShutdown(c);
  }
  void OnClose(Connection& c, const CloseInfo& info) override {
    handler_.OnClose(c, info);
  }
  void OnTick(Reactor& reactor) override { handler_.OnTick(reactor); }
  void OnDrain(Engine& engine) override { handler_.OnDrain(engine); }
  void OnShutdown(Engine& engine) override { handler_.OnShutdown(engine); }

 private:
  EventHandler& handler_;
  State& state_;
};

TestServer::TestServer(EventHandler& handler,
                       std::vector<ListenerSpec> listeners, Options options)
    : state_(std::make_shared<State>()) {
  // Create, Run and the destructor of an engine belong on one thread.
  thread_ =
      std::thread([&handler, listeners = std::move(listeners),
                   options = std::move(options), state = state_]() mutable {
        Watcher watcher(handler, *state);
        absl::StatusOr<std::unique_ptr<Engine>> engine =
            Engine::Create(watcher, std::move(listeners), std::move(options));
        state->created = engine.status();
        if (engine.ok()) state->engine = *std::move(engine);
        state->ready.Set();
        state->run =
            state->engine != nullptr ? state->engine->Run() : state->created;
        state->returned.Set();
        if (!state->destroy.Wait(std::chrono::hours(1))) std::abort();
        state->engine.reset();
        state->gone.Set();
      });
  if (!state_->ready.Wait()) {
    std::fprintf(stderr, "Engine::Create does not return\n");
    std::abort();
  }
  if (state_->engine != nullptr) WaitUntilServing();
}

TestServer::~TestServer() { (void)StopAndDestroy(); }

// OnBoot comes before the reactors serve. A client's descriptor opened before
// a reactor took a table of its own would stay open there, so wait for each.
void TestServer::WaitUntilServing() {
  const auto over = [this] { return state_->returned.IsSet(); };
  EXPECT_TRUE(WaitUntil([&] { return state_->booted.IsSet() || over(); }))
      << "OnBoot was not called";
  for (int i = 0; i < engine().reactors() && !over(); ++i) {
    auto ran = std::make_shared<std::atomic<bool>>(false);
    bool posted = false;
    const bool serves = WaitUntil([&] {
      if (over()) return true;
      if (!posted) {
        posted = engine().reactor(i).Post([ran] { ran->store(true); }).ok();
      }
      return ran->load();
    });
    EXPECT_TRUE(serves) << "reactor " << i << " does not run its tasks";
  }
}

const absl::Status& TestServer::created() const { return state_->created; }

Engine& TestServer::engine() const {
  if (state_->engine == nullptr) {
    std::fprintf(stderr, "TestServer has no engine: %s\n",
                 state_->created.ToString().c_str());
    std::abort();
  }
  return *state_->engine;
}

Address TestServer::address(size_t index) const {
  const std::span<const Address> bound = engine().bound();
  EXPECT_LT(index, bound.size());
  return index < bound.size() ? bound[index] : Address();
}

EngineStats TestServer::stats() const { return engine().stats(); }

bool TestServer::WaitForNoConnections() const {
  return WaitUntil([this] { return stats().connections == 0; });
}

absl::Status TestServer::WaitForRun() {
  if (!state_->returned.Wait()) {
    ADD_FAILURE() << "Engine::Run does not return";
    return absl::DeadlineExceededError("Engine::Run does not return");
  }
  return state_->run;
}

bool TestServer::run_returned() const { return state_->returned.IsSet(); }

absl::Status TestServer::StopAndDestroy() {
  if (!thread_.joinable()) return state_->run;
  if (!state_->gone.IsSet() && state_->engine != nullptr) Stop();
  if (!state_->returned.Wait()) {
    // The thread holds the engine and cannot be joined: nothing sane is left.
    std::fprintf(stderr, "Engine::Run does not return after Stop\n");
    std::abort();
  }
  state_->destroy.Set();
  if (!state_->gone.Wait()) {
    std::fprintf(stderr, "the engine's destructor does not return\n");
    std::abort();
  }
  thread_.join();
  return state_->run;
}

Options TestOptions(int reactors) {
  Options options;
  options.reactors = reactors;
  options.pinning.mode = CpuPinning::Mode::kOff;
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

namespace {

std::string UniqueName() {
  static std::atomic<int> count{0};
  return "sluice-test-" + std::to_string(getpid()) + "-" +
         std::to_string(count++);
}

}  // namespace

std::string UniqueUnixPath() {
  return ::testing::TempDir() + UniqueName() + ".sock";
}

std::string UniqueUnixAddress() { return "unix://" + UniqueUnixPath(); }

std::string UniqueAbstractAddress() { return "unix://@" + UniqueName(); }

}  // namespace sluice::test
