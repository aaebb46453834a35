#include "examples/c1000k/controller.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/usage.h"
#include "examples/format.h"

namespace sluice::c1000k {
namespace {

using examples::Histogram;
using examples::WithCommas;

// The whole system may be slow; a phase in which nothing at all moves for this
// long (seconds) is over.
constexpr double kPatience = 30;
// So many failures, and one in a hundred, mean that going on proves nothing.
constexpr uint64_t kManyFailures = 1'000;
constexpr int kMaxSourcesTold = 3;
constexpr size_t kRollCallWindow = 2'000;
// Samples of the server's memory while connections are made.
constexpr uint64_t kSamples = 256;
constexpr size_t kFewestSamples = 20;

double SteadySeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Controller::Controller(const Settings& settings, const Plan& plan,
                       ServerProcess& server, const SharedPage& page,
                       LoadClient& client, Watch& watch, Progress& progress)
    : settings_(settings),
      plan_(plan),
      server_(server),
      page_(page),
      client_(client),
      watch_(watch),
      progress_(progress),
      begin_(SteadySeconds()),
      kernel_before_(ReadKernelMemory("")) {
  result_.target = plan.connections;
  result_.reactors = plan.reactors;
  result_.fd_tables = FdTablesName(plan.fd_tables);
  // What comes first is not steady yet: threads touch their stacks and buffers.
  next_sample_ = plan.connections / 20;
}

double Controller::Elapsed() const { return SteadySeconds() - begin_; }

double Controller::PhaseDone(uint64_t part) const {
  return static_cast<double>(part) / static_cast<double>(plan_.connections);
}

void Controller::Trouble(std::string text) {
  progress_.Say(absl::StrCat("trouble: ", text));
  result_.troubles.push_back(std::move(text));
}

Result Controller::Run() {
  bool on = Connect() && Settle();
  result_.connect_seconds = Elapsed();
  result_.cpu_connect = CpuSeconds(server_.pid());
  // Holding what little was made would only take the user's time.
  on = on && !gave_up_ && client_.counts().open() > 0;
  on = on && Hold() && AwaitAnswers();
  MeasurePeak();
  if (on) RollCall();

  // All of it is read before closing: what ends after that is no loss, and a
  // dial cut off by it no failure.
  const LaneCounts counts = client_.counts();
  if (const auto cpu = CpuSeconds(server_.pid()); cpu && *cpu > 0) {
    result_.cpu_total = cpu;
  }
  result_.dials_failed = given_up_;
  result_.lost = counts.lost;
  result_.wrong = counts.wrong;
  result_.paced_sent = counts.sent;
  result_.paced_answered = counts.answered;
  result_.roll_asked = counts.roll_asked;
  result_.roll_answered = counts.roll_answered;
  Histogram paced;
  Histogram roll;
  client_.MergeRtt(&paced, &roll);
  result_.rtt = Summarize(paced);
  result_.roll_rtt = Summarize(roll);
  result_.user_slope = slope_.value(kFewestSamples);

  Close();
  if (watch_.event() == Watch::Event::kInterrupted) result_.interrupted = true;
  progress_.End();
  return std::move(result_);
}

bool Controller::Connect() {
  SourcePicker picker(plan_.sources_most, plan_.per_source);
  DialPacer pacer(plan_.window, static_cast<double>(settings_.connect_rate));
  uint64_t wanted = plan_.connections;  // dials still to be made
  // Few enough at a time that a small run has samples of its memory, too.
  const uint64_t step = std::max<uint64_t>(64, plan_.connections / kSamples);
  while (true) {
    dials_.server_opened = page_.opened.load(std::memory_order_acquire);
    dials_.connected = client_.counts().connected;
    dials_.failed = client_.dials_failed();
    HandleFailures(picker);
    if (gave_up_) return true;
    const uint64_t made =
        pacer.Take(std::min(wanted + redial_.size(), step), dials_, Elapsed());
    const uint64_t failed_before = given_up_;
    const uint64_t again = std::min<uint64_t>(made, redial_.size());
    wanted -= made - again;
    DialMore(made, picker);
    if (given_up_ != failed_before && picker.Next() == std::nullopt) {
      Trouble(absl::StrCat("no source address is left: all local ports of ",
                           plan_.sources_most,
                           " addresses are used up or taken by others"));
      gave_up_ = true;
    }
    SampleRamp();
    if (dials_.connected + given_up_ >= plan_.connections) return true;
    if (!Step("connect", PhaseDone(dials_.connected), 1)) return false;
  }
}

int Controller::ReactorOf(uint64_t dial) const {
  // In runs, as waking a loop costs about as much as a dial; the rest one by
  // one, so that no reactor has more than its share at the end.
  constexpr uint64_t kRun = 32;
  const auto reactors = static_cast<uint64_t>(plan_.reactors);
  const uint64_t in_runs =
      plan_.connections / (kRun * reactors) * (kRun * reactors);
  return static_cast<int>((dial < in_runs ? dial / kRun : dial) % reactors);
}

void Controller::DialMore(uint64_t dials, SourcePicker& picker) {
  for (uint64_t i = 0; i < dials; ++i) {
    int reactor;
    if (!redial_.empty()) {
      // On the reactor it was meant for, so that all get the same number.
      reactor = redial_.front();
      redial_.pop_front();
    } else {
      reactor = ReactorOf(fresh_dials_++);
    }
    const std::optional<size_t> source = picker.Next();
    if (!source) {
      ++given_up_;
      continue;
    }
    client_.Dial(*source, reactor);
    dials_.issued = client_.dials_issued();
  }
}

void Controller::HandleFailures(SourcePicker& picker) {
  for (DialFailure& f : client_.TakeFailures()) {
    if (absl::IsResourceExhausted(f.status)) {
      const bool first = picker.Exhausted(f.source);
      if (first && sources_told_++ < kMaxSourcesTold) {
        progress_.Say(absl::StrCat(SourceAddress(f.source), ": ",
                                   std::string(f.status.message()),
                                   "; going on from the next source address"));
      }
      ++result_.dials_moved;
      redial_.push_back(f.reactor);
      continue;
    }
    if (given_up_++ == 0) {
      Trouble(absl::StrCat("a dial from ", SourceAddress(f.source),
                           " failed: ", std::string(f.status.message())));
    }
  }
  if (given_up_ >= kManyFailures && given_up_ * 100 >= dials_.issued &&
      !gave_up_) {
    gave_up_ = true;
    Trouble(absl::StrCat("no more dials after ", WithCommas(given_up_),
                         " failures"));
  }
}

bool Controller::Settle() {
  // The last ones may still be on their way to the server's handler.
  const bool settled = StepUntil(
      "connect", [] { return 1.0; },
      [this] {
        return page_.opened.load(std::memory_order_acquire) >=
               client_.counts().connected;
      },
      [this] { return page_.opened.load(std::memory_order_acquire); },
      kPatience);
  SampleRamp();
  if (!settled && watch_.event() == Watch::Event::kNone) {
    Trouble(
        absl::StrCat("the server took only ",
                     WithCommas(page_.opened.load(std::memory_order_acquire)),
                     " connections of the client's ",
                     WithCommas(client_.counts().connected)));
    return true;  // those that are there are held and asked all the same
  }
  return settled;
}

void Controller::SampleRamp() {
  const uint64_t held = page_.open();
  result_.peak =
      std::max(result_.peak, std::min(held, client_.counts().open()));
  if (held < next_sample_) return;
  const std::optional<uint64_t> rss = RssBytes("", server_.pid());
  // More came while the pages were counted: the middle is the best guess.
  const uint64_t after = page_.open();
  if (rss) {
    slope_.Add(static_cast<double>(held + after) / 2,
               static_cast<double>(*rss));
  }
  next_sample_ = after + std::max<uint64_t>(1, plan_.connections / kSamples);
}

bool Controller::Hold() {
  const double from = Elapsed();
  const double cpu_from = CpuSeconds(server_.pid()).value_or(0);
  client_.StartHeartbeats(static_cast<double>(settings_.heartbeat_qps));
  bool on = true;
  while (on && Elapsed() - from < settings_.hold_seconds) {
    const double left = settings_.hold_seconds - (Elapsed() - from);
    on =
        Step("hold", std::min(1.0, (Elapsed() - from) / settings_.hold_seconds),
             static_cast<int>(std::clamp(left * 1000, 1.0, 100.0)));
  }
  client_.StopHeartbeats();
  result_.hold_seconds = Elapsed() - from;
  if (const auto cpu = CpuSeconds(server_.pid())) {
    result_.cpu_hold = *cpu - cpu_from;
  }
  return on;
}

bool Controller::AwaitAnswers() {
  const auto finished = [this] {
    if (!client_.heartbeats_stopped()) return false;
    const LaneCounts c = client_.counts();
    return c.answered >= c.sent;
  };
  const bool answered = StepUntil(
      "hold", [] { return 1.0; }, finished,
      [this] { return client_.counts().answered; }, kPatience / 3);
  if (!answered && watch_.event() == Watch::Event::kNone) {
    const LaneCounts c = client_.counts();
    Trouble(absl::StrCat(WithCommas(c.sent - c.answered),
                         " heartbeats were not answered"));
    return true;  // the roll call tells which connections still work
  }
  return answered;
}

void Controller::MeasurePeak() {
  result_.server_rss = RssBytes("", server_.pid());
  const std::optional<KernelMemory> now = ReadKernelMemory("");
  if (!now || !kernel_before_) return;
  const auto more = [](uint64_t after, uint64_t before) {
    return static_cast<int64_t>(after) - static_cast<int64_t>(before);
  };
  result_.kernel_bytes = static_cast<double>(
      more(now->slab, kernel_before_->slab) +
      more(now->socket_pages, kernel_before_->socket_pages));
  result_.kernel_connections = client_.counts().open();
  const int64_t foreign =
      more(now->tcp_sockets, kernel_before_->tcp_sockets) -
      static_cast<int64_t>(result_.kernel_connections * kEnds);
  result_.foreign_sockets =
      static_cast<uint64_t>(std::max<int64_t>(0, foreign));
  result_.page_table_bytes =
      more(now->page_tables, kernel_before_->page_tables);
  result_.stack_bytes = more(now->kernel_stacks, kernel_before_->kernel_stacks);
}

bool Controller::RollCall() {
  const double from = Elapsed();
  client_.StartRollCall(kRollCallWindow);
  const auto finished = [this] {
    if (!client_.roll_call_sent()) return false;
    const LaneCounts c = client_.counts();
    return c.roll_answered >= c.roll_asked;
  };
  const bool all = StepUntil(
      "roll call", [this] { return PhaseDone(client_.counts().roll_answered); },
      finished, [this] { return client_.counts().roll_answered; }, kPatience);
  result_.roll_seconds = Elapsed() - from;
  if (watch_.event() != Watch::Event::kNone) return false;
  const LaneCounts c = client_.counts();
  if (!all || c.roll_answered < plan_.connections) {
    Trouble(absl::StrCat(
        WithCommas(plan_.connections - c.roll_answered),
        " connections did not answer when each was asked at the end"));
  }
  return all;
}

void Controller::Close() {
  if (watch_.event() == Watch::Event::kServerDied) {
    Trouble(absl::StrCat("the server process (pid ", server_.pid(),
                         ") died: ", server_.Stop(10)));
  }
  if (watch_.event() == Watch::Event::kInterrupted) {
    progress_.Say("stopping; once more stops at once");
  }
  client_.StartClose();
  const uint64_t from = std::max<uint64_t>(1, client_.counts().open());
  const double begun = Elapsed();
  double moved = begun;
  uint64_t last = from;
  // A signal or the server's end changes nothing here: this is the way out.
  while (client_.counts().open() + page_.open() > 0) {
    const uint64_t left = client_.counts().open() + page_.open();
    if (left != last) moved = Elapsed();
    last = left;
    if (Elapsed() - moved > kPatience / 3) break;
    if (watch_.server_gone() && client_.counts().open() == 0) break;
    const uint64_t open = std::min(from, client_.counts().open());
    Step("close", 1 - static_cast<double>(open) / static_cast<double>(from),
         20);
  }
}

bool Controller::Step(const char* phase, double done, int milliseconds) {
  if (progress_.Due(Elapsed(), phase)) {
    progress_.Show(Elapsed(), Now(phase, done));
  }
  return watch_.Wait(milliseconds) == Watch::Event::kNone;
}

bool Controller::StepUntil(const char* phase, absl::FunctionRef<double()> done,
                           absl::FunctionRef<bool()> finished,
                           absl::FunctionRef<uint64_t()> progress_mark,
                           double patience) {
  uint64_t mark = progress_mark();
  double moved = Elapsed();
  while (!finished()) {
    if (!Step(phase, done(), 10)) return false;
    const uint64_t now = progress_mark();
    if (now != mark) moved = Elapsed();
    mark = now;
    if (Elapsed() - moved > patience) return false;
  }
  return true;
}

Moment Controller::Now(const char* phase, double done) {
  const LaneCounts counts = client_.counts();
  Moment m;
  m.phase = phase;
  m.done = done;
  m.target = plan_.connections;
  m.held = std::min(counts.open(), page_.open());
  m.failures = given_up_ + counts.lost;
  result_.peak = std::max(result_.peak, m.held);
  const double now = Elapsed();
  if (now - rate_time_ >= 0.15) {
    rate_ = static_cast<double>(counts.connected - rate_count_) /
            (now - rate_time_);
    rate_time_ = now;
    rate_count_ = counts.connected;
  }
  if (std::strcmp(phase, "connect") == 0) m.connects_per_second = rate_;
  Histogram paced;
  Histogram roll;
  client_.MergeRtt(&paced, &roll);
  if (paced.count() > 0) {
    m.rtt_p50_us = paced.Quantile(0.5);
    m.rtt_p99_us = paced.Quantile(0.99);
  }
  m.server_rss = RssBytes("", server_.pid());
  if (const auto kernel = ReadKernelMemory(""); kernel && kernel_before_) {
    m.kernel_bytes = static_cast<double>(kernel->slab + kernel->socket_pages) -
                     static_cast<double>(kernel_before_->slab +
                                         kernel_before_->socket_pages);
  }
  return m;
}

}  // namespace sluice::c1000k
