// push_load: somebody who subscribes, and checks what comes.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_SUBSCRIBER_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_SUBSCRIBER_H_

#include <cstdint>
#include <string_view>

#include "examples/push_load/lane.h"
#include "examples/push_load/line_user.h"

namespace sluice::push {

class Subscriber : public LineUser {
 public:
  // `slow`: never reads again once it has subscribed.
  Subscriber(Lane& lane, bool slow) : lane_(lane), slow_(slow) {}

  void OnOpen(Connection& c) override;
  void OnLine(Connection& c, std::string_view line) override;
  void OnEnd(CloseReason reason) override;

 private:
  void OnMessage(uint32_t number);
  void Wrong(std::string_view what, std::string_view line);

  Lane& lane_;
  const bool slow_;
  bool subscribed_ = false;
  uint32_t next_ = 0;  // message
  ReadPause pause_;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_SUBSCRIBER_H_
