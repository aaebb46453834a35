#include "reactor/broadcaster.h"

#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "reactor/internal/broadcast_core.h"
#include "reactor/internal/engine_impl.h"

namespace sluice {
namespace {

absl::Status Check(const BroadcasterOptions& options) {
  if (options.sends_per_turn < 1) {
    return absl::InvalidArgumentError("BroadcasterOptions::sends_per_turn is " +
                                      std::to_string(options.sends_per_turn) +
                                      "; it must be at least 1");
  }
  const double rate = options.sends_per_second;
  if (rate != 0 && !(std::isfinite(rate) && rate >= 0.001 && rate <= 1e9)) {
    return absl::InvalidArgumentError(
        "BroadcasterOptions::sends_per_second is " + std::to_string(rate) +
        "; 0, or 0.001 to 1e9");
  }
  if (options.round_trip.count() < 0 ||
      options.round_trip > std::chrono::hours(1)) {
    return absl::InvalidArgumentError(
        "BroadcasterOptions::round_trip is " +
        std::to_string(options.round_trip.count()) +
        " ms; at least 0 and at most an hour");
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PagesPerSecond(std::chrono::milliseconds round_trip) {
  if (round_trip.count() == 0) return 0;
  std::string tcp_mem;
  std::ifstream file("/proc/sys/net/ipv4/tcp_mem");
  if (!std::getline(file, tcp_mem)) {
    return absl::NotFoundError(
        "BroadcasterOptions::round_trip is set, and net.ipv4.tcp_mem cannot be "
        "read");
  }
  return internal::BroadcastPace::PagesPerSecond(tcp_mem, round_trip);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Broadcaster>> Broadcaster::Create(
    Engine& engine, BroadcasterOptions options) {
  if (absl::Status s = Check(options); !s.ok()) return s;
  // Engine::Create makes no other kind.
  auto& impl = static_cast<internal::EngineImpl&>(engine);
  if (impl.ending()) return absl::UnavailableError("the engine stops");
  const absl::StatusOr<double> pages = PagesPerSecond(options.round_trip);
  if (!pages.ok()) return pages.status();
  auto core = std::make_shared<internal::BroadcastCore>(impl, options, *pages);
  if (absl::Status s = core->PostShards(); !s.ok()) {
    core->End();
    return s;
  }
  return std::unique_ptr<Broadcaster>(new Broadcaster(std::move(core)));
}

Broadcaster::Broadcaster(std::shared_ptr<internal::BroadcastCore> core)
    : core_(std::move(core)) {}
Broadcaster::~Broadcaster() { core_->End(); }

absl::Status Broadcaster::AddGroup(std::string_view name,
                                   GroupOptions options) {
  return core_->AddGroup(name, options);
}

absl::Status Broadcaster::RemoveGroup(std::string_view name) {
  return core_->RemoveGroup(name);
}

absl::Status Broadcaster::Join(std::string_view group,
                               const ConnectionRef& connection) {
  return core_->Join(group, connection);
}

absl::Status Broadcaster::Leave(std::string_view group,
                                const ConnectionRef& connection) {
  return core_->Leave(group, connection);
}

absl::Status Broadcaster::Publish(std::string_view group, Payload message) {
  return core_->Publish(group, std::move(message));
}

absl::StatusOr<GroupStats> Broadcaster::stats(std::string_view group) const {
  return core_->stats(group);
}

}  // namespace sluice
