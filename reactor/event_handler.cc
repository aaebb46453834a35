#include "reactor/event_handler.h"

namespace sluice {

Action EventHandler::OnBoot(Engine&) { return Action::kNone; }
Action EventHandler::OnOpen(Connection&) { return Action::kNone; }
Action EventHandler::OnPeerShutdown(Connection&) { return Action::kClose; }
void EventHandler::OnHighWater(Connection&) {}
void EventHandler::OnLowWater(Connection&) {}
void EventHandler::OnClose(Connection&, const CloseInfo&) {}
void EventHandler::OnTick(Reactor&) {}
void EventHandler::OnDrain(Engine&) {}
void EventHandler::OnShutdown(Engine&) {}

}  // namespace sluice
