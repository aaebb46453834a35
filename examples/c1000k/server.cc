#include "examples/c1000k/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "reactor/engine.h"

namespace sluice::c1000k {
namespace {

void TellController(int channel) {
  const char byte = 'r';
  // A controller that is gone shows in the next read.
  (void)send(channel, &byte, 1, MSG_NOSIGNAL);
}

int Fail(const absl::Status& status, SharedPage* page, int channel) {
  const std::string text(status.message());
  const size_t length = std::min(text.size(), sizeof(page->error) - 1);
  std::memcpy(page->error, text.data(), length);
  page->error[length] = '\0';
  page->state.store(SharedPage::kFailed, std::memory_order_release);
  TellController(channel);
  return 1;
}

class Server : public EventHandler {
 public:
  Server(SharedPage* page, int channel) : page_(page), channel_(channel) {}

  Action OnBoot(Engine& engine) override {
    // The kernel queues connections from now on, so the client may dial.
    page_->port.store(engine.bound()[0].port(), std::memory_order_relaxed);
    page_->state.store(SharedPage::kListening, std::memory_order_release);
    TellController(channel_);
    return Action::kNone;
  }
  Action OnOpen(Connection&) override {
    page_->opened.fetch_add(1, std::memory_order_release);
    return Action::kNone;
  }
  Action OnTraffic(Connection& c) override {
    c.Write(c.Next()).IgnoreError();  // fails only when it is ending anyway
    return Action::kNone;
  }
  void OnClose(Connection&, const CloseInfo&) override {
    page_->closed.fetch_add(1, std::memory_order_release);
  }

 private:
  SharedPage* page_;
  int channel_;
};

}  // namespace

int RunServer(const Plan& plan, SharedPage* page, int channel) {
  Options options;
  options.reactors = plan.reactors;
  options.fd_tables = plan.fd_tables;
  options.limits.idle_timeout = plan.idle_timeout;
  // Hand-off spreads connections evenly, which reuse-port does not: with tables
  // of their own, one reactor's would be full before the others'.
  options.accept_mode = AcceptMode::kHandOff;

  Server server(page, channel);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(server, {"tcp4://127.0.0.1:0"}, options);
  if (!engine.ok()) return Fail(engine.status(), page, channel);

  // The controller's word, or its end, stops us.
  std::thread watcher([channel, &engine] {
    char byte;
    while (read(channel, &byte, 1) < 0 && errno == EINTR) {
    }
    (*engine)->Stop();
  });
  const absl::Status ran = (*engine)->Run();
  if (!ran.ok()) {
    // Nobody will stop us any more: let the watcher go.
    shutdown(channel, SHUT_RD);
  }
  watcher.join();
  if (!ran.ok()) return Fail(ran, page, channel);
  page->state.store(SharedPage::kStopped, std::memory_order_release);
  return 0;
}

}  // namespace sluice::c1000k
