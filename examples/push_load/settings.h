// push_load: what the user asked for.
#ifndef SLUICE_EXAMPLES_PUSH_LOAD_SETTINGS_H_
#define SLUICE_EXAMPLES_PUSH_LOAD_SETTINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "reactor/address.h"

namespace sluice::push {

struct LoadSettings {
  Address server;     // for subscribers
  Address publisher;  // for the connection that publishes
  std::string topic = "load";
  uint64_t connections = 1'000;
  double slow_percent = 0;  // of them, readers that never read; below 100
  uint32_t messages = 100;
  size_t bytes = 128;  // of text in each; at least Messages::kLeastBytes
  double rate = 10;    // messages a second
  // Without anything new for so long, nothing more is expected.
  std::chrono::milliseconds patience{30'000};

  // Spread evenly.
  bool IsSlow(uint64_t connection) const {
    return SlowBefore(connection + 1) > SlowBefore(connection);
  }
  uint64_t slow() const { return SlowBefore(connections); }
  uint64_t fast() const { return connections - slow(); }

 private:
  uint64_t SlowBefore(uint64_t connection) const {
    return static_cast<uint64_t>(static_cast<double>(connection) *
                                 slow_percent / 100);
  }
};

}  // namespace sluice::push

#endif  // SLUICE_EXAMPLES_PUSH_LOAD_SETTINGS_H_
