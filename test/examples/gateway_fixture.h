// Internal: a gateway that runs inside a test, and players with plain sockets.
#ifndef SLUICE_TEST_EXAMPLES_GATEWAY_FIXTURE_H_
#define SLUICE_TEST_EXAMPLES_GATEWAY_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "examples/gateway/accounts.h"
#include "examples/gateway/gateway.h"
#include "examples/gateway/protocol.h"
#include "test/support/client.h"
#include "test/support/test_server.h"
#include "test/support/wait.h"

namespace sluice::gateway {

// Queries that wait until the test lets them go on.
class HeldQueries {
 public:
  AccountQuery query() {
    return [this](const std::string& name) {
      ++waiting_;
      EXPECT_TRUE(release_.Wait(std::chrono::minutes(10)));
      return absl::StatusOr<uint32_t>(Accounts::Number(name));
    };
  }
  // Until so many have begun.
  [[nodiscard]] bool Await(int count) const {
    return test::WaitUntil([&] { return waiting_ == count; });
  }
  void Release() { release_.Set(); }

 private:
  std::atomic<int> waiting_{0};
  test::Event release_;
};

// The next answer. Fails the test if there is none.
struct Answer {
  Command command = {};
  std::string body;
};
inline Answer ReadAnswer(test::Client& client) {
  const std::string length = client.ReadExactly(2);
  if (length.size() < 2) return {};
  const size_t size =
      static_cast<size_t>(static_cast<unsigned char>(length[0]) << 8 |
                          static_cast<unsigned char>(length[1]));
  const std::string frame = client.ReadExactly(size);
  const std::optional<Packet> packet = ParsePacket(frame);
  EXPECT_TRUE(packet);
  if (!packet) return {};
  return {.command = packet->command, .body = std::string(packet->body)};
}

inline bool SendPacket(test::Client& client, const Payload& payload) {
  return client.SendAll(Framed(payload));
}

inline bool IsLoggedIn(test::Client& client, const std::string& name) {
  const Answer answer = ReadAnswer(client);
  return answer.command == Command::kLoggedIn &&
         ParseLoggedIn(answer.body) == Accounts::Number(name);
}

inline bool IsRefused(test::Client& client, Command command, Why why) {
  const Answer answer = ReadAnswer(client);
  return answer.command == Command::kRefused &&
         ParseRefused(answer.body) == Refusal{.command = command, .why = why};
}

inline Payload MovePayload(uint32_t sequence) {
  return Payload::MoveOf(Command::kMove,
                         {.sequence = sequence,
                          .x = static_cast<int32_t>(sequence % 100),
                          .y = -5,
                          .sent_at = uint64_t{sequence} << 20});
}

inline bool IsMoved(test::Client& client, uint32_t sequence) {
  const Answer answer = ReadAnswer(client);
  return answer.command == Command::kMoved &&
         ParseMove(answer.body) ==
             Move{.sequence = sequence,
                  .x = static_cast<int32_t>(sequence % 100),
                  .y = 0,
                  .sent_at = uint64_t{sequence} << 20};
}

inline bool MovesOn(test::Client& client, uint32_t sequence) {
  return SendPacket(client, MovePayload(sequence)) && IsMoved(client, sequence);
}

class GatewayTest : public testing::Test {
 protected:
  GatewayTest() {
    options_.query = Accounts(std::chrono::milliseconds(0));
    options_.pool.threads = 2;
    // Only those tests that are about a deadline or the rate meet one.
    options_.frame_deadline = std::chrono::hours(1);
    options_.rate = {.per_second = 0, .burst = 1};
    engine_options_ = test::TestOptions(2);
    engine_options_.limits = BoundedOptions().limits;
  }
  ~GatewayTest() override {
    held_.Release();
    if (server_ != nullptr) {
      EXPECT_TRUE(server_->StopAndDestroy().ok());
    }
  }

  void Start() {
    absl::StatusOr<std::unique_ptr<Gateway>> gateway =
        Gateway::Create(options_);
    ASSERT_TRUE(gateway.ok()) << gateway.status().ToString();
    gateway_ = *std::move(gateway);
    server_ = std::make_unique<test::TestServer>(
        *gateway_,
        std::vector<ListenerSpec>{
            {"tcp://127.0.0.1:0", BoundedListenOptions()}},
        engine_options_);
    ASSERT_TRUE(server_->created().ok()) << server_->created().ToString();
  }

  test::Client Connect(test::ClientOptions options = {}) {
    return test::Client::Connect(server_->address(), options);
  }
  test::Client Player(const std::string& name) {
    test::Client client = Connect();
    EXPECT_TRUE(SendPacket(client, Payload::Login(name)));
    EXPECT_TRUE(IsLoggedIn(client, name));
    return client;
  }
  uint64_t Counted(Count count) const {
    return gateway_->counters().Get(count);
  }
  [[nodiscard]] bool AwaitCount(Count count, uint64_t value) const {
    return test::WaitUntil([&] { return Counted(count) == value; });
  }

  GatewayOptions options_;
  Options engine_options_;
  HeldQueries held_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<test::TestServer> server_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TEST_EXAMPLES_GATEWAY_FIXTURE_H_
