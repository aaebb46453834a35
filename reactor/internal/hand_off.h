// Internal: from an acceptor to the reactor that gets the connection.
#ifndef SLUICE_REACTOR_INTERNAL_HAND_OFF_H_
#define SLUICE_REACTOR_INTERNAL_HAND_OFF_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "reactor/internal/acceptor.h"
#include "reactor/internal/event_source.h"
#include "reactor/internal/fd_table.h"
#include "reactor/internal/load_balancer.h"

namespace sluice::internal {

class EngineImpl;
class ReactorImpl;

// The reactor that accepts keeps what it accepted.
class DirectTarget final : public AcceptTarget {
 public:
  DirectTarget(EngineImpl& engine, ReactorImpl& reactor)
      : engine_(engine), reactor_(reactor) {}
  bool HasRoom() override { return true; }
  void TakeSocket(const AcceptedSocket& socket) override;
  void BatchDone() override {}
  void WantsDescriptor() override;

 private:
  EngineImpl& engine_;
  ReactorImpl& reactor_;
};

// The main reactor's: gathers what a batch accepted and gives each reactor its
// share at once, one wake-up each. Shared tables: the number goes into the
// mailbox. Tables of their own: the descriptor itself goes through a channel.
//
// A channel that is full keeps its share here, and accepting waits: the
// kernel's queue is the right place for what cannot be served.
// Thread: the main reactor's, except Receiver.
class HandOff final : public AcceptTarget {
 public:
  HandOff(EngineImpl& engine, LoadBalancing policy, bool channels,
          size_t reactors);
  ~HandOff();

  absl::Status CreateChannels();
  void Attach(ReactorImpl* main, std::vector<ReactorImpl*> reactors);

  bool HasRoom() override;
  void TakeSocket(const AcceptedSocket& socket) override;
  void BatchDone() override;
  void WantsDescriptor() override;

  // Delivers what is still here, then closes the sending ends: the receivers
  // see the end behind the last descriptor. Calls `done` (the main loop) then.
  void Finish(Task done);

  // On reactor `i`'s thread: takes from its channel until the sender's end.
  void StartReceiving(size_t i);
  bool has_channels() const { return channels_wanted_; }
  const FdChannel& channel(size_t i) const { return channels_[i]; }
  // In the main thread, once the reactors have their copies.
  void CloseReceivingEnds();

 private:
  class Receiver;

  bool AnyRoom() const;
  bool Deliver(size_t i);  // false: its channel is full
  void DropShare(size_t i);
  void Retry();

  EngineImpl& engine_;
  LoadBalancer balancer_;
  const bool channels_wanted_;
  ReactorImpl* main_ = nullptr;
  std::vector<ReactorImpl*> reactors_;
  std::vector<FdChannel> channels_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<std::vector<AcceptedSocket>> shares_;
  bool blocked_ = false;  // a channel is full
  bool retry_set_ = false;
  Task finish_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_HAND_OFF_H_
