// sluice itself. Beside the flags of every server of the lab:
//   --accept=handoff|reuseport  --fd_tables=shared|per_reactor
//   --trigger=level|edge        --idle_timeout=SECONDS
//   --accept_and_close          --fan_out: see raw_epoll.cc
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/lab/servers/serving.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

DEFINE_int32(threads, 1, "reactors");
DEFINE_int32(message_bytes, 0,
             "0: a read is answered at once; else each message of this many");
DEFINE_string(accept, "handoff", "handoff or reuseport");
DEFINE_string(fd_tables, "shared", "shared or per_reactor");
DEFINE_string(trigger, "level", "level or edge");
DEFINE_int32(idle_timeout, 60, "seconds; 0: none");
DEFINE_bool(accept_and_close, false, "whoever connects is closed at once");
DEFINE_bool(fan_out, false,
            "what one connection sends goes to all of its loop");

namespace sluice::lab {
namespace {

class Ready : public EventHandler {
 public:
  Action OnBoot(Engine& engine) override {
    SayReady(engine.bound()[0].port());
    return Action::kNone;
  }
};

class Closer : public Ready {
 public:
  Action OnOpen(Connection& c) override {
    c.Close(CloseMode::kNow);
    return Action::kNone;
  }
  Action OnTraffic(Connection&) override { return Action::kNone; }
};

class FanOut : public Ready {
 public:
  Action OnOpen(Connection& c) override {
    Clients(c).push_back(c.ref());
    return Action::kNone;
  }
  Action OnTraffic(Connection& c) override {
    const std::string message(c.Next());
    for (const ConnectionRef& client : Clients(c)) {
      (void)client.Write(message);
    }
    return Action::kNone;
  }
  void OnClose(Connection& c, const CloseInfo&) override {
    std::erase(Clients(c), c.ref());
  }

 private:
  // Each loop has its own, so nothing is locked.
  std::vector<ConnectionRef>& Clients(Connection& c) {
    return clients_[static_cast<size_t>(c.reactor().index())];
  }
  std::vector<std::vector<ConnectionRef>> clients_{
      static_cast<size_t>(FLAGS_threads)};
};

class Echo : public Ready {
 public:
  explicit Echo(size_t message_bytes) : message_bytes_(message_bytes) {}

  Action OnTraffic(Connection& c) override {
    if (message_bytes_ == 0) {
      (void)c.Write(c.Next());
      return Action::kNone;
    }
    const std::string_view input = c.Peek();
    std::string_view rest = input;
    while (rest.size() >= message_bytes_) {
      (void)c.Write(rest.substr(0, message_bytes_));
      rest.remove_prefix(message_bytes_);
    }
    c.Discard(input.size() - rest.size());
    return Action::kNone;
  }

 private:
  const size_t message_bytes_;
};

template <typename T>
T Choose(const char* flag, const std::string& value, const char* first,
         T first_value, const char* second, T second_value) {
  if (value == first) return first_value;
  if (value == second) return second_value;
  std::fprintf(stderr, "--%s=%s: must be %s or %s\n", flag, value.c_str(),
               first, second);
  std::exit(2);
}

int Main() {
  StartServing();
  Options options;
  options.reactors = FLAGS_threads;
  options.accept_mode =
      Choose("accept", FLAGS_accept, "handoff", AcceptMode::kHandOff,
             "reuseport", AcceptMode::kReusePort);
  options.fd_tables =
      Choose("fd_tables", FLAGS_fd_tables, "shared", FdTables::kShared,
             "per_reactor", FdTables::kPerReactor);
  options.trigger = Choose("trigger", FLAGS_trigger, "level", Trigger::kLevel,
                           "edge", Trigger::kEdge);
  // The lab has pinned the process to the CPUs that servers may use.
  options.pinning.mode = CpuPinning::Mode::kOff;
  options.limits.idle_timeout = std::chrono::seconds(FLAGS_idle_timeout);
  std::unique_ptr<EventHandler> handler;
  if (FLAGS_accept_and_close) {
    handler = std::make_unique<Closer>();
  } else if (FLAGS_fan_out) {
    handler = std::make_unique<FanOut>();
  } else {
    handler = std::make_unique<Echo>(static_cast<size_t>(FLAGS_message_bytes));
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(*handler, {"tcp://127.0.0.1:0"}, std::move(options));
  absl::Status s = engine.status();
  if (s.ok()) s = (*engine)->Run();
  std::fprintf(stderr, "sluice: %s\n", s.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace sluice::lab

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  if (argc > 1) {
    std::fprintf(stderr, "sluice: \"%s\" is no flag\n", argv[1]);
    return 2;
  }
  return sluice::lab::Main();
}
