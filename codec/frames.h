// Public header: runs a decoder on what a connection has received.
#ifndef SLUICE_CODEC_FRAMES_H_
#define SLUICE_CODEC_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "codec/decode_result.h"
#include "codec/decode_state.h"
#include "reactor/close.h"
#include "reactor/connection.h"
#include "reactor/engine.h"
#include "reactor/event_handler.h"

namespace sluice {

namespace internal {

// Of a callback that returns an Action, or nothing.
template <typename F, typename Argument>
Action CallForAction(F& callback, const Argument& argument) {
  if constexpr (std::is_void_v<std::invoke_result_t<F&, const Argument&>>) {
    callback(argument);
    return Action::kNone;
  } else {
    return callback(argument);
  }
}

// Whether more would arrive behind `unread` bytes of an unfinished frame. If
// not, the state has failed, as after an error of the decoder.
template <typename Decoder>
bool MoreMayArrive(const Connection& c, const Decoder& decoder, size_t unread,
                   DecodeState& state) {
  if constexpr (requires { decoder.max_frame(); }) {
    const size_t room = c.reactor().engine().options().limits.max_inbound;
    if (unread < room) return true;
    state.fault = {room, static_cast<uint32_t>(decoder.max_frame()),
                   DecodeError::kNoRoom, CorruptReason::kNone};
    state.phase = DecodeState::Phase::kFailed;
    return false;
  }
  return true;
}

}  // namespace internal

// For OnTraffic: calls on_frame(std::string_view) for each whole frame, in
// order, and consumes what is done with. Both callbacks return an Action, or
// nothing, which is kNone. Returns the Action that OnTraffic is to return.
//
//   struct Client { DecodeState state; ... };      // Emplace'd in OnOpen
//
//   Action OnTraffic(Connection& c) override {
//     return ForEachFrame(c, decoder_, c.Get<Client>().state,
//                         [&](std::string_view frame) { ... });
//   }
//
// It stops early, with later frames still unread, when a callback returns
// something else than kNone, has closed the connection, or has paused reading:
// then OnTraffic is called for the rest when the last pause goes. Each frame is
// counted as a message (Connection::CountMessages), which may do the last two.
//
// on_error(const DecodeFault&) is told of what is no frame. After a final error
// the connection is closed for CloseReason::kProtocolError (flushing, so that
// on_error may still answer something), unless on_error has closed it. After a
// frame that was skipped (WhenTooLong::kSkipFrame) it goes on. The last fault
// is in `state.fault` as well, where OnClose can find it.
//
// A frame is a view of the connection's own buffer, good until on_frame
// returns. Meanwhile the connection's input must be left alone (no Next, Read
// or Discard), and so must the object that holds `state` (no Emplace).
//
// A frame for which ConnectionLimits::max_inbound has no room, with what goes
// around it, would never arrive whole: a final error too, kNoRoom.
//
// When the peer ends inside a frame, OnPeerShutdown still finds in Peek() what
// has arrived of it: a last line without LF, say.
//
// `Decoder` is one of codec/*.h, or any with the same Decode. Without a
// max_frame() it is never told kNoRoom: it may need more for other reasons.
template <typename Decoder, typename OnFrame, typename OnError>
Action ForEachFrame(Connection& c, const Decoder& decoder, DecodeState& state,
                    OnFrame&& on_frame, OnError&& on_error) {
  const std::string_view input = c.Peek();
  std::string_view rest = input;
  Action action = Action::kNone;
  while (c.reading() && action == Action::kNone) {
    const DecodeResult result = decoder.Decode(rest, state);
    rest.remove_prefix(result.consumed);
    if (result.code == DecodeCode::kFrame) {
      if (!c.CountMessages() && !c.open()) break;  // one too many
      action = internal::CallForAction(on_frame, result.frame);
      continue;
    }
    if (result.code == DecodeCode::kNeedMore &&
        internal::MoreMayArrive(c, decoder, rest.size(), state)) {
      break;
    }
    const bool final = state.failed();
    if (final) rest = {};
    const DecodeFault fault = state.fault;
    action = internal::CallForAction(on_error, fault);
    if (final && c.open()) c.CloseFor(CloseReason::kProtocolError);
  }
  c.Discard(input.size() - rest.size());
  return action;
}

template <typename Decoder, typename OnFrame>
Action ForEachFrame(Connection& c, const Decoder& decoder, DecodeState& state,
                    OnFrame&& on_frame) {
  return ForEachFrame(c, decoder, state, std::forward<OnFrame>(on_frame),
                      [](const DecodeFault&) {});
}

}  // namespace sluice

#endif  // SLUICE_CODEC_FRAMES_H_
