#include "worker_pool/options.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int kMaxThreads = 1024;
// Linux keeps 15 bytes of a thread's name; five are for "-1023".
constexpr size_t kMaxName = 10;

absl::Status Bad(const char* field, const std::string& value,
                 const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ": must be ", allowed));
}

}  // namespace

absl::Status ValidateWorkerPoolOptions(const WorkerPoolOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return Bad("threads", absl::StrCat(options.threads),
               absl::StrCat("0 to ", kMaxThreads));
  }
  if (options.queue < 1) {
    return Bad("queue", absl::StrCat(options.queue), "at least 1");
  }
  if (options.order > JobOrder::kPerConnection) {
    return Bad("order", absl::StrCat(static_cast<int>(options.order)),
               "one of its enumerators");
  }
  if (options.at_shutdown > AtShutdown::kCancel) {
    return Bad("at_shutdown",
               absl::StrCat(static_cast<int>(options.at_shutdown)),
               "one of its enumerators");
  }
  if (options.sample_every < 0) {
    return Bad("sample_every", absl::StrCat(options.sample_every),
               "at least 0");
  }
  const std::string& name = options.thread_name;
  if (name.empty() || name.size() > kMaxName ||
      name.find('\0') != std::string::npos) {
    return Bad("thread_name", absl::StrCat("\"", absl::CHexEscape(name), "\""),
               absl::StrCat("1 to ", kMaxName, " bytes without NUL"));
  }
  return absl::OkStatus();
}

}  // namespace sluice
