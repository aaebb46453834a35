// push: what it keeps of each connection.
#ifndef SLUICE_EXAMPLES_PUSH_SESSION_H_
#define SLUICE_EXAMPLES_PUSH_SESSION_H_

#include <algorithm>
#include <string_view>
#include <vector>

#include "codec/decode_state.h"
#include "examples/push/topics.h"

namespace sluice::push {

struct Session {
  DecodeState decode;
  std::vector<Topic*> topics;  // it has subscribed to them

  // Few: looking at all of them is quick. nullptr: it has not.
  Topic* Find(std::string_view name) const {
    const auto found =
        std::find_if(topics.begin(), topics.end(),
                     [&](const Topic* topic) { return topic->name == name; });
    return found == topics.end() ? nullptr : *found;
  }
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_SESSION_H_
