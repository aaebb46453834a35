#include "examples/gateway_client/bad_client.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::gateway {
namespace {

constexpr std::chrono::milliseconds kDripEvery{100};
constexpr std::chrono::seconds kComeBackAfter{1};

}  // namespace

std::string BadBytes(BadInput input) {
  const auto packet = [](uint16_t length, uint16_t command) {
    std::string bytes;
    for (const int byte :
         {length >> 8, length & 0xff, command >> 8, command & 0xff}) {
      bytes.push_back(static_cast<char>(byte));
    }
    return bytes;
  };
  const auto login = static_cast<uint16_t>(Command::kLogin);
  switch (input) {
    case BadInput::kTooLong:
      return packet(0xffff, login);
    case BadInput::kCorruptLength:
      return packet(1, login);  // less than a command
    case BadInput::kUnknownCommand:
      return packet(2, 0x7777);
    case BadInput::kUnfinished:
      return packet(kMaxPacket - 2, login);
  }
  return "";
}

BadClient::BadClient(Run& run, BadInput input, std::function<void()> come_back)
    : Peer(run), input_(input), come_back_(std::move(come_back)) {}

void BadClient::OnOpen(Connection& c) {
  connected_ = true;
  c.Write(BadBytes(input_)).IgnoreError();  // OnEnd tells
  if (input_ != BadInput::kUnfinished) return;
  drip_ = run_.reactor->RunEvery(
      kDripEvery, [ref = c.ref()] { ref.Write("x").IgnoreError(); });
}

void BadClient::OnPacket(Connection&, const Packet&) {
  run_.result.Wrong(
      absl::StrCat("an answer to bad input: ", BadInputName(input_)));
}

void BadClient::OnEnd(std::string_view why) {
  run_.reactor->Cancel(drip_);
  if (run_.over) {
    if (connected_) ++run_.result.bad_open;
  } else if (!connected_) {
    run_.result.Trouble(
        absl::StrCat("a bad client could not connect: ", std::string(why)));
  } else {
    ++run_.result.bad_closed[static_cast<size_t>(input_)];
    run_.reactor->RunAfter(kComeBackAfter,
                           [come_back = come_back_] { come_back(); });
  }
}

}  // namespace sluice::gateway
