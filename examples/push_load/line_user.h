// push_load: one connection to push, from its own side.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_LINE_USER_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_LINE_USER_H_

#include <memory>
#include <string_view>
#include <utility>

#include "codec/decode_state.h"
#include "reactor/close.h"
#include "reactor/connection.h"

namespace sluice::push {

// Thread: the connection's loop.
class LineUser {
 public:
  LineUser() = default;
  LineUser(const LineUser&) = delete;
  LineUser& operator=(const LineUser&) = delete;
  virtual ~LineUser() = default;

  virtual void OnOpen(Connection& c) = 0;
  virtual void OnLine(Connection& c, std::string_view line) = 0;
  virtual void OnEnd(CloseReason reason) = 0;
};

// What a connection keeps.
struct Line {
  explicit Line(std::unique_ptr<LineUser> u) : user(std::move(u)) {}
  std::unique_ptr<LineUser> user;
  DecodeState decode;
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_LINE_USER_H_
