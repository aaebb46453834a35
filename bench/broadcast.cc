// A Broadcaster beside a bare loop of send() over the same descriptors, and
// what a broadcast does to others. README.md says how to read it.
#include <gflags/gflags.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/broadcast_clients.h"
#include "bench/clock.h"
#include "bench/median.h"
#include "bench/process.h"
#include "bench/program.h"
#include "reactor/broadcaster.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

DEFINE_int32(connections, 15000, "readers");
DEFINE_int32(stuck, 150, "more connections, which never read");
DEFINE_int32(message_bytes, 128, "of the message that goes to all; >= 8");
DEFINE_int32(small_bytes, 64, "of the messages that are published at once");
DEFINE_int32(at_once, 20, "how many of those");
DEFINE_int32(turns, 15, "measurements of each");
DEFINE_int32(probe_ms, 2000, "how long the echo is watched");
DEFINE_int32(server_cpu, 0, "CPU of the loop");
DEFINE_int32(client_cpu, 1, "CPU of the clients");
DEFINE_double(limit, 1.05, "CPU a recipient, beside the bare loop");
DEFINE_double(stuck_limit, 1.1, "time with those that never read");
DEFINE_double(echo_limit_ms, 5, "p99 of an echo meanwhile");
DEFINE_double(at_once_limit, 0.25, "of as many single ones");
DEFINE_bool(check, false, "exit 1 if one of the limits is missed");

namespace sluice::bench {
namespace {

constexpr char kName[] = "broadcast";
constexpr std::chrono::seconds kPatience{60};
// With it a stuck connection is full soon.
constexpr int kStuckSendBuffer = 4096;

absl::Status Await(const std::string& what, const std::function<bool()>& done,
                   std::chrono::microseconds pause) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("after ", kPatience.count(), " s: not ", what));
    }
    std::this_thread::sleep_for(pause);
  }
  return absl::OkStatus();
}

// The groups: "readers"; "stuck"; and "both". Each connection says with its
// first byte where it belongs.
class PushHandler : public EventHandler {
 public:
  Action OnTraffic(Connection& c) override {
    const std::string_view bytes = c.Next();
    if (c.has_context()) {
      (void)c.Write(bytes);
      return Action::kNone;
    }
    switch (static_cast<BroadcastRole>(bytes.front())) {
      case BroadcastRole::kReader:
        fds.push_back(c.fd());
        Join(c, "readers");
        Join(c, "both");
        break;
      case BroadcastRole::kStuck:
        setsockopt(c.fd(), SOL_SOCKET, SO_SNDBUF, &kStuckSendBuffer,
                   sizeof kStuckSendBuffer);
        Join(c, "stuck");
        Join(c, "both");
        break;
      case BroadcastRole::kEcho:
        c.Emplace<bool>(true);
        (void)c.Write(bytes);
    }
    return Action::kNone;
  }

  Broadcaster* broadcaster = nullptr;
  std::vector<int> fds;  // of the readers; the loop's

 private:
  void Join(Connection& c, const char* group) {
    if (absl::Status s = broadcaster->Join(group, c.ref()); !s.ok()) {
      std::fprintf(stderr, "%s: %s\n", kName, s.ToString().c_str());
    }
  }
};

class Benchmark {
 public:
  ~Benchmark() {
    broadcaster_ = nullptr;
    if (thread_.joinable()) {
      engine_->Stop();
      thread_.join();
    }
  }

  absl::Status Start();
  absl::StatusOr<bool> Measure();

 private:
  struct Cost {
    double cpu_ns = 0;   // of the loop's thread
    double wall_ns = 0;  // until the last reader has it
  };

  absl::Status MakeGroups();
  absl::Status FillStuck();
  // `send` hands `messages` messages to the loop for every reader.
  absl::StatusOr<Cost> Time(uint64_t messages,
                            const std::function<absl::Status()>& send);
  absl::StatusOr<Cost> TimePublish(const char* group, int messages,
                                   int message_bytes);
  absl::StatusOr<Cost> TimeSendLoop();
  absl::StatusOr<double> EchoP99(bool disturbed);

  absl::Status Publish(const char* group, int message_bytes) {
    return broadcaster_->Publish(
        group,
        Payload(NumberedMessage(next_++, static_cast<size_t>(message_bytes))));
  }
  uint64_t readers() const { return static_cast<uint64_t>(FLAGS_connections); }
  int64_t LoopCpuNs() const {
    timespec time;
    clock_gettime(loop_clock_, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  PushHandler handler_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Broadcaster> broadcaster_;
  std::thread thread_;
  clockid_t loop_clock_{};
  std::unique_ptr<BroadcastClients> clients_;
  uint32_t next_ = 0;  // number of the next message to the readers
};

absl::Status Benchmark::MakeGroups() {
  absl::StatusOr<std::unique_ptr<Broadcaster>> made =
      Broadcaster::Create(*engine_);
  if (!made.ok()) return made.status();
  broadcaster_ = *std::move(made);
  handler_.broadcaster = broadcaster_.get();
  GroupOptions options;
  options.max_backlog = size_t{16} << 10;
  for (const char* group : {"readers", "stuck", "both"}) {
    if (absl::Status s = broadcaster_->AddGroup(group, options); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Benchmark::Start() {
  const int descriptors = FLAGS_connections + FLAGS_stuck + 64;
  if (absl::Status s = RaiseFdLimit(descriptors); !s.ok()) return s;
  Options options;
  options.reactors = 1;
  options.pinning.mode = CpuPinning::Mode::kList;
  options.pinning.cpus = {FLAGS_server_cpu};
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler_, {"tcp://127.0.0.1:0"}, std::move(options));
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  if (absl::Status s = MakeGroups(); !s.ok()) return s;
  thread_ = std::thread([this] { (void)engine_->Run(); });
  if (pthread_getcpuclockid(thread_.native_handle(), &loop_clock_) != 0) {
    return absl::InternalError("no CPU clock of the loop's thread");
  }
  absl::StatusOr<std::unique_ptr<BroadcastClients>> clients =
      BroadcastClients::Start(engine_->bound()[0].port(), FLAGS_connections,
                              FLAGS_stuck, FLAGS_client_cpu);
  if (!clients.ok()) return clients.status();
  clients_ = *std::move(clients);
  const size_t all = static_cast<size_t>(FLAGS_connections + FLAGS_stuck);
  if (absl::Status s = Await(
          "all members",
          [&] { return broadcaster_->stats("both")->members == all; },
          std::chrono::milliseconds(10));
      !s.ok()) {
    return s;
  }
  return FillStuck();
}

// Until not one of them takes a message more.
absl::Status Benchmark::FillStuck() {
  if (FLAGS_stuck == 0) return absl::OkStatus();
  const uint64_t all = static_cast<uint64_t>(FLAGS_stuck);
  const std::string filler(4096, 'f');
  for (uint64_t published = 1, skipped = 0;; ++published) {
    if (absl::Status s = broadcaster_->Publish("stuck", Payload(filler));
        !s.ok()) {
      return s;
    }
    if (absl::Status s = Await(
            "dealt out to the stuck",
            [&] {
              const GroupStats now = *broadcaster_->stats("stuck");
              return now.delivered + now.skipped == published * all;
            },
            std::chrono::microseconds(200));
        !s.ok()) {
      return s;
    }
    const uint64_t now = broadcaster_->stats("stuck")->skipped;
    if (now - skipped == all) return absl::OkStatus();
    skipped = now;
  }
}

absl::StatusOr<Benchmark::Cost> Benchmark::Time(
    uint64_t messages, const std::function<absl::Status()>& send) {
  const uint64_t expected =
      clients_->counts().messages.load() + messages * readers();
  const int64_t cpu = LoopCpuNs();
  const int64_t begin = NowNs();
  if (absl::Status s = send(); !s.ok()) return s;
  absl::Status s = Await(
      "received by all",
      [&] {
        return clients_->counts().messages.load() >= expected ||
               clients_->counts().failed.load();
      },
      std::chrono::microseconds(100));
  const int64_t end = NowNs();
  if (clients_->counts().failed.load()) s = clients_->status();
  if (!s.ok()) return s;
  // The loop goes to sleep, and whoever got one too many says so.
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (clients_->counts().messages.load() != expected) {
    return absl::DataLossError(absl::StrCat(clients_->counts().messages.load(),
                                            " messages, not ", expected));
  }
  return Cost{static_cast<double>(LoopCpuNs() - cpu),
              static_cast<double>(end - begin)};
}

absl::StatusOr<Benchmark::Cost> Benchmark::TimePublish(const char* group,
                                                       int messages,
                                                       int message_bytes) {
  return Time(static_cast<uint64_t>(messages), [&] {
    for (int i = 0; i < messages; ++i) {
      if (absl::Status s = Publish(group, message_bytes); !s.ok()) return s;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Benchmark::Cost> Benchmark::TimeSendLoop() {
  // The task may outlive a wait that was given up.
  const auto failed = std::make_shared<std::atomic<int>>(0);
  const absl::StatusOr<Cost> cost = Time(1, [&] {
    return engine_->reactor(0).Post(
        [this, failed,
         message = NumberedMessage(next_++,
                                   static_cast<size_t>(FLAGS_message_bytes))] {
          for (const int fd : handler_.fds) {
            if (send(fd, message.data(), message.size(), MSG_NOSIGNAL) !=
                static_cast<ssize_t>(message.size())) {
              *failed = errno;
            }
          }
        });
  });
  if (*failed != 0) return absl::ErrnoToStatus(*failed, "send");
  return cost;
}

// In milliseconds.
absl::StatusOr<double> Benchmark::EchoP99(bool disturbed) {
  BroadcastCounts& counts = clients_->counts();
  counts.samples = 0;
  counts.probing = true;
  const int64_t end = NowNs() + int64_t{FLAGS_probe_ms} * 1'000'000;
  while (NowNs() < end) {
    if (!disturbed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else if (absl::StatusOr<Cost> cost =
                   TimePublish("readers", 1, FLAGS_message_bytes);
               !cost.ok()) {
      return cost.status();
    }
    if (Interrupted()) return absl::CancelledError("interrupted");
  }
  counts.probing = false;
  const size_t count =
      std::min(counts.samples.load(), BroadcastCounts::kMostSamples);
  if (count < 100) {
    return absl::UnavailableError(
        absl::StrCat("only ", count, " echoes in ", FLAGS_probe_ms, " ms"));
  }
  std::vector<double> us(
      counts.echo_us.begin(),
      counts.echo_us.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(us.begin(), us.end());
  return us[count * 99 / 100] / 1000;
}

bool Judge(const char* what, double value, double limit, const char* unit) {
  const bool ok = value <= limit;
  std::printf("  %-7s %s: %.3f%s, at most %g\n", ok ? "ok" : "MISSED", what,
              value, unit, limit);
  return ok;
}

absl::StatusOr<bool> Benchmark::Measure() {
  std::vector<double> raw;
  std::vector<double> published;
  std::vector<double> one;
  std::vector<double> many;
  std::vector<double> without;
  std::vector<double> with;
  const auto add = [](const absl::StatusOr<Cost>& cost, double Cost::*figure,
                      std::vector<double>* to) {
    if (cost.ok()) to->push_back(*cost.*figure);
    return cost.status();
  };
  const auto all_turns = [&](const std::function<absl::Status()>& first,
                             const std::function<absl::Status()>& second) {
    for (int turn = 0; turn < FLAGS_turns; ++turn) {
      // A B B A: neither is always the one behind the other.
      const auto& a = turn % 2 == 0 ? first : second;
      const auto& b = turn % 2 == 0 ? second : first;
      if (absl::Status s = a(); !s.ok()) return s;
      if (absl::Status s = b(); !s.ok()) return s;
    }
    return absl::OkStatus();
  };
  // Windows open up with the first messages.
  for (int i = 0; i < 3; ++i) {
    if (absl::StatusOr<Cost> s = TimePublish("readers", 1, FLAGS_message_bytes);
        !s.ok()) {
      return s.status();
    }
  }
  absl::Status s =
      all_turns([&] { return add(TimeSendLoop(), &Cost::cpu_ns, &raw); },
                [&] {
                  return add(TimePublish("readers", 1, FLAGS_message_bytes),
                             &Cost::cpu_ns, &published);
                });
  if (!s.ok()) return s;
  s = all_turns(
      [&] {
        return add(TimePublish("readers", 1, FLAGS_small_bytes), &Cost::cpu_ns,
                   &one);
      },
      [&] {
        return add(TimePublish("readers", FLAGS_at_once, FLAGS_small_bytes),
                   &Cost::cpu_ns, &many);
      });
  if (!s.ok()) return s;
  s = all_turns(
      [&] {
        return add(TimePublish("readers", 1, FLAGS_message_bytes),
                   &Cost::wall_ns, &without);
      },
      [&] {
        return add(TimePublish("both", 1, FLAGS_message_bytes), &Cost::wall_ns,
                   &with);
      });
  if (!s.ok()) return s;
  const absl::StatusOr<double> calm = EchoP99(/*disturbed=*/false);
  if (!calm.ok()) return calm.status();
  const absl::StatusOr<double> disturbed = EchoP99(/*disturbed=*/true);
  if (!disturbed.ok()) return disturbed.status();
  const GroupStats both = *broadcaster_->stats("both");
  const GroupStats to_readers = *broadcaster_->stats("readers");

  const double n = FLAGS_connections;
  std::printf(
      "%d readers, %d that never read, one loop; medians of %d turns\n"
      "  ns of CPU a recipient, %d bytes: %.0f; a bare loop of send(): %.0f\n"
      "  ns of CPU a recipient, %d bytes: %.0f; %d at once: %.0f\n"
      "  ms until the last reader has it: %.2f; with those that never read: "
      "%.2f\n"
      "  echo on the same loop, p99: %.3f ms; while messages go out: %.3f ms\n"
      "  %llu messages, %llu bytes read, all checked: each once and in order; "
      "%llu delivered, %llu skipped\n",
      FLAGS_connections, FLAGS_stuck, FLAGS_turns, FLAGS_message_bytes,
      Median(published) / n, Median(raw) / n, FLAGS_small_bytes,
      Median(one) / n, FLAGS_at_once, Median(many) / n, Median(without) / 1e6,
      Median(with) / 1e6, *calm, *disturbed,
      static_cast<unsigned long long>(clients_->counts().messages.load()),
      static_cast<unsigned long long>(clients_->counts().bytes.load()),
      static_cast<unsigned long long>(to_readers.delivered + both.delivered),
      static_cast<unsigned long long>(to_readers.skipped + both.skipped));
  bool ok = Judge("CPU a recipient, beside the bare loop",
                  Median(published) / Median(raw), FLAGS_limit, " times");
  ok &= Judge("many at once, of as many single ones",
              Median(many) / (Median(one) * FLAGS_at_once), FLAGS_at_once_limit,
              " times");
  ok &= Judge("time with those that never read, beside without",
              Median(with) / Median(without), FLAGS_stuck_limit, " times");
  ok &=
      Judge("p99 of an echo meanwhile", *disturbed, FLAGS_echo_limit_ms, " ms");
  return ok;
}

absl::StatusOr<bool> MeasureAll() {
  if (FLAGS_connections < 1 || FLAGS_stuck < 0 || FLAGS_turns < 1 ||
      FLAGS_at_once < 1 || FLAGS_probe_ms < 1 ||
      FLAGS_message_bytes < static_cast<int>(kSmallestMessage) ||
      FLAGS_small_bytes < static_cast<int>(kSmallestMessage)) {
    return absl::InvalidArgumentError(
        "--connections, --turns, --at_once and --probe_ms must be at least 1, "
        "--stuck 0, and messages 8 bytes long");
  }
  Benchmark benchmark;
  if (absl::Status s = benchmark.Start(); !s.ok()) return s;
  return benchmark.Measure();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::ParseFlags("one message to many connections", &argc, &argv);
  return sluice::bench::MeasureMain("broadcast", argc, argv, FLAGS_check,
                                    sluice::bench::MeasureAll);
}
