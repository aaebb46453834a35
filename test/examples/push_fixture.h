// Internal: talks to push in lines, and runs it as a program.
#ifndef SLUICE_TEST_EXAMPLES_PUSH_FIXTURE_H_
#define SLUICE_TEST_EXAMPLES_PUSH_FIXTURE_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reactor/address.h"
#include "test/support/child_process.h"
#include "test/support/client.h"
#include "test/support/test_server.h"

namespace sluice::push {

inline Address Parsed(const std::string& text) {
  const absl::StatusOr<Address> address = Address::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.ok() ? *address : Address();
}

class LineClient {
 public:
  explicit LineClient(const Address& address)
      : client_(test::Client::Connect(address)) {}

  void Say(const std::string& line) {
    EXPECT_TRUE(client_.SendAll(line + "\n"));
  }
  // The next line, without its LF; cut off, and the test fails, at the end.
  std::string Hear() {
    std::string line;
    for (;;) {
      const std::string c = client_.ReadExactly(1);
      if (c.empty() || c == "\n") return line;
      line += c;
    }
  }
  std::string Ask(const std::string& line) {
    Say(line);
    return Hear();
  }
  test::Client& client() { return client_; }

 private:
  test::Client client_;
};

// "... skipped=3 ..." -> 3
inline uint64_t CountIn(const std::string& stats, const std::string& name) {
  const size_t at = stats.find(" " + name + "=");
  EXPECT_NE(at, std::string::npos) << name << " in: " << stats;
  if (at == std::string::npos) return 0;
  return std::stoull(stats.substr(at + name.size() + 2));
}

class PushProgram {
 public:
  explicit PushProgram(const std::vector<std::string>& flags = {},
                       const std::string& listen = "tcp://127.0.0.1:0")
      : control_path_(test::UniqueUnixPath()) {
    std::vector<std::string> command = {
        SLUICE_EXAMPLES_DIR "/push", "--listen=" + listen,
        "--control=unix://" + control_path_, "--reactors=2"};
    command.insert(command.end(), flags.begin(), flags.end());
    process_ = std::make_unique<test::ChildProcess>(std::move(command));
    address_ = AwaitReady();
    control_ = AwaitReady();
  }

  // It is killed unless it has ended, and then leaves its files behind.
  ~PushProgram() {
    process_.reset();
    for (const Address& address : {address_, control_}) {
      if (address.family() == Address::Family::kUnix) {
        unlink(address.path().c_str());
      }
    }
  }
  PushProgram(const PushProgram&) = delete;
  PushProgram& operator=(const PushProgram&) = delete;

  LineClient Connect() const { return LineClient(address_); }
  LineClient Control() const { return LineClient(control_); }
  const Address& address() const { return address_; }
  const Address& control() const { return control_; }
  const std::string& control_path() const { return control_path_; }

  // `warning`: what the log says, if there is to be a line.
  void ExpectOrderlyEnd(int signal = SIGTERM, const std::string& warning = "") {
    process_->Signal(signal);
    EXPECT_EQ(process_->Wait(), 0) << process_->error();
    if (warning.empty()) {
      EXPECT_EQ(process_->error(), "");
    } else {
      EXPECT_NE(process_->error().find(warning), std::string::npos)
          << process_->error();
    }
  }
  const std::string& out() const { return process_->out(); }

 private:
  Address AwaitReady() {
    const std::string line = process_->AwaitLine("ready ");
    return line.empty() ? Address() : Parsed(line.substr(6));
  }

  const std::string control_path_;
  std::unique_ptr<test::ChildProcess> process_;
  Address address_;
  Address control_;
};

}  // namespace sluice::push

#endif  // SLUICE_TEST_EXAMPLES_PUSH_FIXTURE_H_
