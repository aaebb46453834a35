// c1000k: what is shown while it runs.
#ifndef SLUICE_EXAMPLES_C1000K_PROGRESS_H_
#define SLUICE_EXAMPLES_C1000K_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::c1000k {

// One moment of a run.
struct Moment {
  const char* phase = "";  // "connect", "hold", "roll call", "close"
  double done = 0;         // of the phase, 0 to 1
  uint64_t held = 0;
  uint64_t target = 0;
  double connects_per_second = 0;
  uint64_t failures = 0;  // dials failed and connections lost
  std::optional<uint64_t> rtt_p50_us;
  std::optional<uint64_t> rtt_p99_us;
  std::optional<uint64_t> server_rss;
  std::optional<double> kernel_bytes;  // more than before the run
};

// All of it in one line.
std::string PlainLine(const Moment& moment);

// The same as a bar and, below it, the figures. `width`: columns of the
// terminal; what does not fit is cut off, as a line that wraps could not be
// drawn over. 80 are enough.
struct BarLines {
  std::string bar;
  std::string figures;
};
BarLines Bar(const Moment& moment, size_t width);

// Prints moments on standard output: a bar that is drawn over on a terminal,
// otherwise a line each.
class Progress {
 public:
  Progress();

  // Seconds of a steady clock. True if it is time for the next moment; a new
  // phase is always shown.
  bool Due(double now, const char* phase) const;
  void Show(double now, const Moment& moment);
  // A message of its own line. The bar comes again below it.
  void Say(const std::string& text);
  // Leaves the last bar where it is and goes to a new line.
  void End();

 private:
  const bool terminal_;
  bool bar_shown_ = false;
  double last_ = -1e9;
  const char* phase_ = "";
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_PROGRESS_H_
