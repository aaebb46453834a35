#include "bench/slow_reader_server.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/process.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"
#include "reactor/reactor.h"

namespace sluice::bench {
namespace {

constexpr int kEchoListener = 0;

class Handler : public EventHandler {
 public:
  Handler(const SlowReaderOptions& options, int control)
      : options_(options), control_(control) {}

  Action OnBoot(Engine& engine) override {
    ReportReady(control_, engine.bound()[0].port(), engine.bound()[1].port());
    return Action::kNone;
  }

  Action OnTraffic(Connection& c) override {
    if (c.listener() == kEchoListener) {
      (void)c.Write(c.Next());
      return Action::kNone;
    }
    const size_t commands = c.Discard();
    for (size_t i = 0; i < commands; ++i) Slice(c.reactor(), c.ref(), 0);
    return Action::kNone;
  }

  void OnClose(Connection& c, const CloseInfo& info) override {
    if (c.listener() == kEchoListener) return;
    Count(kEnded, 1);
    if (info.reason == CloseReason::kSlowConsumer) Count(kSlowConsumers, 1);
  }

 private:
  // Some pieces from number `next` on; the rest after the other connections
  // had their turn. All are offered, whatever becomes of the first ones.
  void Slice(Reactor& reactor, const ConnectionRef& ref, uint64_t next) {
    const uint64_t end =
        std::min(options_.pieces, next + static_cast<uint64_t>(options_.slice));
    for (; next < end; ++next) Count(Offer(reactor, ref, next), 1);
    if (next == options_.pieces) return;
    reactor.RunAfter(options_.pace, [this, &reactor, ref, next] {
      Slice(reactor, ref, next);
    });
  }

  SlowReaderCount Offer(Reactor& reactor, const ConnectionRef& ref,
                        uint64_t number) {
    Connection* c = reactor.Find(ref);
    if (c == nullptr) return kGone;
    NumberPiece(number, &piece_);
    const absl::Status s = c->Write(piece_);
    if (s.ok()) return kAccepted;
    return absl::IsResourceExhausted(s) ? kRefused : kGone;
  }

  const SlowReaderOptions options_;
  const int control_;
  std::string piece_ = Piece();
};

}  // namespace

std::string Piece() {
  std::string piece(kPieceBytes, '\0');
  for (size_t i = 0; i < piece.size(); ++i) {
    piece[i] = static_cast<char>(i * 7 + (i >> 8));
  }
  return piece;
}

void NumberPiece(uint64_t number, std::string* piece) {
  std::memcpy(piece->data(), &number, sizeof number);
}

uint64_t PieceNumber(const std::string& piece) {
  uint64_t number = 0;
  std::memcpy(&number, piece.data(), sizeof number);
  return number;
}

absl::Status RunSlowReaderServer(const SlowReaderOptions& options,
                                 int control) {
  if (absl::Status s = PinProcess(options.cpu); !s.ok()) return s;
  AnswerUsageRequests(control);
  Options engine_options;
  engine_options.reactors = 1;
  engine_options.pinning.mode = CpuPinning::Mode::kList;
  engine_options.pinning.cpus = {options.cpu};
  // That slow consumers are closed is what is measured here.
  engine_options.log = [](LogLevel level, std::string_view line) {
    if (level < LogLevel::kError) return;
    std::fprintf(stderr, "slow_reader: %.*s\n", static_cast<int>(line.size()),
                 line.data());
  };
  engine_options.limits.max_outbound = options.cap;
  engine_options.limits.when_overflow = options.when_overflow;
  Handler handler(options, control);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {"tcp://127.0.0.1:0", "tcp://127.0.0.1:0"},
                     std::move(engine_options));
  if (!engine.ok()) return engine.status();
  if (absl::Status s = (*engine)->Run(); !s.ok()) return s;
  return absl::InternalError("Engine::Run returned without being stopped");
}

}  // namespace sluice::bench
