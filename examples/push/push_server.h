// push: the server's handler.
#ifndef SLUICE_EXAMPLES_PUSH_PUSH_SERVER_H_
#define SLUICE_EXAMPLES_PUSH_PUSH_SERVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/line_codec.h"
#include "examples/push/command.h"
#include "examples/push/topics.h"
#include "reactor/engine.h"

namespace sluice::push {

struct PushOptions {
  TopicsOptions topics;
  size_t max_line = 4096;          // bytes of a command; of a message, too
  size_t max_subscriptions = 100;  // of a connection
  // The listener (its index) of those who may publish; nullopt: everybody may.
  std::optional<int> publish_from;
};

// The engine's bounds that go with them: what one connection can make the
// server hold, of commands it has not read and of lines the client has not.
ConnectionLimits LimitsFor(const PushOptions& options);

// Thread: see EventHandler; status and Summary once the engine has ended.
// Lifetime: one engine.
class PushServer : public EventHandler {
 public:
  static absl::StatusOr<std::unique_ptr<PushServer>> Create(
      PushOptions options);

  // Why it could not serve, if it could not.
  const absl::Status& status() const { return status_; }
  // What became of each topic, in a table.
  const std::string& Summary() const { return summary_; }

  Action OnBoot(Engine& engine) override;
  Action OnOpen(Connection& c) override;
  Action OnTraffic(Connection& c) override;
  Action OnPeerShutdown(Connection& c) override;
  void OnClose(Connection& c, const CloseInfo& info) override;
  void OnShutdown(Engine& engine) override;

 private:
  PushServer(PushOptions options, const LineDecoder& decoder)
      : options_(std::move(options)), decoder_(decoder) {}

  void OnLine(Connection& c, std::string_view line);
  void Subscribe(Connection& c, std::string_view topic);
  void Unsubscribe(Connection& c, std::string_view topic);
  void Publish(Connection& c, std::string_view line, const Command& command);
  void Stats(Connection& c, std::string_view topic);

  void Answer(Connection& c, std::string_view line);
  void Refuse(Connection& c, std::string_view why);
  // Of a command whose value can be read: 'ERR SUB "news": why'.
  void Refuse(Connection& c, std::string_view command, std::string_view value,
              const absl::Status& why);

  const PushOptions options_;
  const LineDecoder decoder_;
  const LineEncoder encoder_;
  std::unique_ptr<Topics> topics_;  // from OnBoot to OnShutdown
  std::atomic<uint64_t> refused_{0};
  absl::Status status_;
  std::string summary_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_PUSH_SERVER_H_
