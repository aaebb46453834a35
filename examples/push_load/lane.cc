#include "examples/push_load/lane.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/c1000k/source_addresses.h"
#include "examples/push_load/line_user.h"
#include "examples/push_load/subscriber.h"

namespace sluice::push {
namespace {

// On their way to push at the same time: its listener's queue is finite.
constexpr uint64_t kDialsAtOnce = 64;
constexpr size_t kMostTroubles = 3;
// Of a reader that never reads: the kernel's default would take megabytes.
constexpr int kSlowReceiveBuffer = 4096;

// A server on 127.0.0.0/8 can be dialed from any address there, and one
// source address has ports for some 28,000 connections.
Address SourceFor(const Address& server, uint64_t connection) {
  if (server.family() != Address::Family::kIpv4 ||
      server.ip_bytes()[0] != 127) {
    return Address();
  }
  const uint64_t source = connection / c1000k::kMostPerSource;
  return Address::Parse(
             absl::StrCat("tcp4://", c1000k::SourceAddress(source), ":0"))
      .value();
}

}  // namespace

LaneCounts& LaneCounts::operator+=(const LaneCounts& o) {
  subscribed += o.subscribed;
  failed += o.failed;
  lost += o.lost;
  received += o.received;
  missed += o.missed;
  wrong += o.wrong;
  done += o.done;
  return *this;
}

Lane::Lane(const LoadSettings& settings, const Messages& messages, int index,
           uint64_t begin, uint64_t end)
    : settings_(settings),
      messages_(messages),
      index_(index),
      next_(begin),
      end_(end),
      receipts_(settings.messages) {}

void Lane::Start(Engine& engine) {
  engine_ = &engine;
  DialSome();
}

void Lane::DialSome() {
  while (dialing_ < kDialsAtOnce && next_ < end_) {
    const uint64_t connection = next_++;
    const bool slow = settings_.IsSlow(connection);
    DialOptions options;
    options.timeout = settings_.patience;
    options.reactor = index_;
    options.source = SourceFor(settings_.server, connection);
    if (slow) options.socket.receive_buffer = kSlowReceiveBuffer;
    ++dialing_;
    const absl::Status dialing = engine_->Dial(
        settings_.server, std::move(options),
        [this, slow](absl::StatusOr<Connection*> dialed) {
          if (dialed.ok()) {
            (*dialed)->Emplace<Line>(std::make_unique<Subscriber>(*this, slow));
          } else {
            DialFailed(dialed.status());
            DialOver();
          }
        });
    if (!dialing.ok()) {
      DialFailed(dialing);
      --dialing_;
    }
  }
}

void Lane::DialOver() {
  --dialing_;
  DialSome();
}

void Lane::DialFailed(const absl::Status& status) {
  Add(failed_);
  Trouble(absl::StrCat("a connection could not be made: ", status.message()));
}

void Lane::Trouble(std::string what) {
  if (troubles_.size() < kMostTroubles) troubles_.push_back(std::move(what));
}

LaneCounts Lane::counts() const {
  constexpr auto kAcquire = std::memory_order_acquire;
  return {.subscribed = subscribed_.load(kAcquire),
          .failed = failed_.load(kAcquire),
          .lost = lost_.load(kAcquire),
          .received = received_.load(kAcquire),
          .missed = missed_.load(kAcquire),
          .wrong = wrong_.load(kAcquire),
          .done = done_.load(kAcquire)};
}

}  // namespace sluice::push
