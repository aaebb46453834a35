#include "bench/sluice_echo.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/server_process.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

namespace sluice::bench {
namespace {

class Echo : public EventHandler {
 public:
  explicit Echo(int control) : control_(control) {}

  Action OnBoot(Engine& engine) override {
    ReportReady(control_, engine.bound()[0].port());
    return Action::kNone;
  }

  Action OnTraffic(Connection& c) override {
    (void)c.Write(c.Next());
    return Action::kNone;
  }

 private:
  const int control_;
};

}  // namespace

absl::Status RunSluiceEcho(const SluiceEchoOptions& options, int control) {
  Options engine_options;
  engine_options.reactors = 1;
  engine_options.trigger = options.trigger;
  engine_options.fd_tables = options.fd_tables;
  engine_options.pinning.mode = CpuPinning::Mode::kList;
  engine_options.pinning.cpus = {options.cpu};
  engine_options.limits.idle_timeout = options.idle_timeout;

  Echo echo(control);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(echo, {"tcp://127.0.0.1:0"}, std::move(engine_options));
  if (!engine.ok()) return engine.status();
  if (absl::Status s = (*engine)->Run(); !s.ok()) return s;
  return absl::InternalError("Engine::Run returned without being stopped");
}

}  // namespace sluice::bench
