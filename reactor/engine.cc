#include "reactor/engine.h"

#include <memory>
#include <string>
#include <utility>

#include "reactor/internal/engine_impl.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    EventHandler& handler, std::vector<ListenerSpec> listeners,
    Options options) {
  auto engine =
      std::make_unique<internal::EngineImpl>(handler, std::move(options));
  if (absl::Status s = engine->Init(std::move(listeners)); !s.ok()) return s;
  return engine;
}

absl::Status Run(EventHandler& handler, std::string_view address,
                 Options options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(handler, {std::string(address)}, std::move(options));
  if (!engine.ok()) return engine.status();
  return (*engine)->Run();
}

}  // namespace sluice
