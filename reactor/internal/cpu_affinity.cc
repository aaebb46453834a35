#include "reactor/internal/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reactor/internal/errno_status.h"

namespace sluice::internal {
namespace {

// glibc's cpu_set_t is a plain array of unsigned long, and its CPU_ALLOC only
// adds an allocation: words in a vector do the same.
constexpr size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;
constexpr size_t kFirstWords = 1024 / kBitsPerWord;
constexpr size_t kMostWords = (size_t{1} << 20) / kBitsPerWord;

cpu_set_t* AsCpuSet(std::vector<unsigned long>& words) {
  return reinterpret_cast<cpu_set_t*>(words.data());
}

size_t Bytes(const std::vector<unsigned long>& words) {
  return words.size() * sizeof(unsigned long);
}

// The calling thread's mask; 0 or an errno. The kernel refuses a mask smaller
// than its own with EINVAL, so it is grown until it fits.
int ReadMask(std::vector<unsigned long>* mask) {
  for (size_t words = kFirstWords; words <= kMostWords; words *= 2) {
    mask->assign(words, 0);
    if (sched_getaffinity(0, Bytes(*mask), AsCpuSet(*mask)) == 0) return 0;
    if (errno != EINVAL) break;
  }
  const int error = errno;
  mask->clear();
  return error;
}

}  // namespace

absl::StatusOr<std::vector<int>> AllowedCpus() {
  std::vector<unsigned long> mask;
  if (int error = ReadMask(&mask)) {
    return ErrnoStatus(error, "sched_getaffinity");
  }
  std::vector<int> cpus;
  for (size_t i = 0; i < mask.size() * kBitsPerWord; ++i) {
    if ((mask[i / kBitsPerWord] >> (i % kBitsPerWord)) & 1) {
      cpus.push_back(static_cast<int>(i));
    }
  }
  if (cpus.empty()) return absl::InternalError("sched_getaffinity: no CPU");
  return cpus;
}

absl::StatusOr<std::vector<int>> AssignCpus(const CpuPinning& pinning,
                                            int reactors,
                                            const std::vector<int>& allowed) {
  if (reactors < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pinning ", reactors, " reactors: at least 0"));
  }
  const size_t count = static_cast<size_t>(reactors);
  if (pinning.mode != CpuPinning::Mode::kList) {
    if (!pinning.cpus.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pinning.cpus is {", absl::StrJoin(pinning.cpus, ","),
                       "}, but pinning.mode is not kList"));
    }
    if (pinning.mode == CpuPinning::Mode::kAuto && allowed.size() >= count) {
      return std::vector<int>(allowed.begin(),
                              allowed.begin() + static_cast<ptrdiff_t>(count));
    }
    return std::vector<int>(count, -1);
  }
  if (pinning.cpus.empty()) {
    return absl::InvalidArgumentError(
        "pinning.cpus is empty: kList needs at least one CPU");
  }
  for (int cpu : pinning.cpus) {
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pinning.cpus has CPU ", cpu, ", which is not one of the allowed {",
          absl::StrJoin(allowed, ","), "}"));
    }
  }
  std::vector<int> cpus(count);
  for (size_t i = 0; i < count; ++i) {
    cpus[i] = pinning.cpus[i % pinning.cpus.size()];
  }
  return cpus;
}

absl::Status PinThisThread(int cpu) {
  if (cpu < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pin to CPU ", cpu, ": not a CPU number"));
  }
  const size_t bit = static_cast<size_t>(cpu);
  std::vector<unsigned long> mask(bit / kBitsPerWord + 1, 0);
  mask.back() = 1UL << (bit % kBitsPerWord);
  if (sched_setaffinity(0, Bytes(mask), AsCpuSet(mask)) != 0) {
    const int error = errno;
    return ErrnoStatus(error, "pin to CPU " + std::to_string(cpu));
  }
  return absl::OkStatus();
}

ScopedAffinity::ScopedAffinity() { ReadMask(&mask_); }

ScopedAffinity::~ScopedAffinity() {
  // It can only fail if the cpuset lost every one of these CPUs meanwhile; the
  // kernel has then moved the thread by itself.
  if (!mask_.empty()) {
    (void)sched_setaffinity(0, Bytes(mask_), AsCpuSet(mask_));
  }
}

}  // namespace sluice::internal
