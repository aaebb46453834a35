// gateway: stands for the database that knows the players.
#ifndef SLUICE_EXAMPLES_GATEWAY_ACCOUNTS_H_
#define SLUICE_EXAMPLES_GATEWAY_ACCOUNTS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace sluice::gateway {

// A query that takes as long as a real one, and blocks its thread as a real
// client library does. Knows everybody whose name begins with a letter.
class Accounts {
 public:
  explicit Accounts(std::chrono::milliseconds latency) : latency_(latency) {}

  absl::StatusOr<uint32_t> operator()(const std::string& name) const {
    std::this_thread::sleep_for(latency_);
    const char first = name.empty() ? '\0' : name[0];
    if ((first < 'a' || first > 'z') && (first < 'A' || first > 'Z')) {
      return absl::NotFoundError(name);
    }
    return Number(name);
  }

  // The player's number: FNV-1a of the name.
  static uint32_t Number(const std::string& name) {
    uint32_t number = 2166136261;
    for (const char c : name) {
      number = (number ^ static_cast<unsigned char>(c)) * 16777619;
    }
    return number;
  }

 private:
  std::chrono::milliseconds latency_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_EXAMPLES_GATEWAY_ACCOUNTS_H_
