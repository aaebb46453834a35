#include "examples/c1000k/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/format.h"

namespace sluice::c1000k {
namespace {

using examples::FormatBytes;
using examples::FormatMicros;
using examples::WithCommas;

constexpr double kBarSeconds = 0.2;
constexpr double kLineSeconds = 1.0;
constexpr size_t kBarCells = 20;

std::string Connections(const Moment& m) {
  std::string text =
      absl::StrCat(WithCommas(m.held), "/", WithCommas(m.target), " held");
  if (m.connects_per_second > 0) {
    absl::StrAppend(&text, "  ",
                    WithCommas(static_cast<uint64_t>(m.connects_per_second)),
                    "/s");
  }
  absl::StrAppend(&text, "  ", WithCommas(m.failures), " failed");
  return text;
}

std::string Figures(const Moment& m) {
  std::string text = "rtt p50 - p99 -";
  if (m.rtt_p50_us && m.rtt_p99_us) {
    text = absl::StrCat("rtt p50 ", FormatMicros(*m.rtt_p50_us), " p99 ",
                        FormatMicros(*m.rtt_p99_us));
  }
  if (m.server_rss) {
    absl::StrAppend(&text, "  user RSS ",
                    FormatBytes(static_cast<double>(*m.server_rss)));
  }
  if (m.kernel_bytes) {
    absl::StrAppend(&text, "  kernel ", FormatBytes(*m.kernel_bytes));
  }
  return text;
}

void CutTo(size_t width, std::string& line) {
  // Not into the last column: some terminals wrap there already.
  if (width > 1 && line.size() > width - 1) line.resize(width - 1);
}

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 80;
  }
  return size.ws_col;
}

}  // namespace

std::string PlainLine(const Moment& m) {
  return absl::StrFormat("%-9s %3.0f %%  %s  %s", m.phase, m.done * 100,
                         Connections(m), Figures(m));
}

BarLines Bar(const Moment& m, size_t width) {
  const double done = std::clamp(m.done, 0.0, 1.0);
  const auto full =
      static_cast<size_t>(done * static_cast<double>(kBarCells) + 0.5);
  BarLines lines;
  lines.bar =
      absl::StrFormat("%-9s [%s%s] %s", m.phase, std::string(full, '#'),
                      std::string(kBarCells - full, '.'), Connections(m));
  lines.figures = absl::StrFormat("%-9s %s", "", Figures(m));
  CutTo(width, lines.bar);
  CutTo(width, lines.figures);
  return lines;
}

Progress::Progress() : terminal_(isatty(STDOUT_FILENO) == 1) {}

bool Progress::Due(double now, const char* phase) const {
  return std::strcmp(phase, phase_) != 0 ||
         now - last_ >= (terminal_ ? kBarSeconds : kLineSeconds);
}

void Progress::Show(double now, const Moment& moment) {
  if (terminal_) {
    if (bar_shown_ && std::strcmp(moment.phase, phase_) != 0) End();
    // Up to the bar, if there is one; then each line, with what was longer
    // before wiped away.
    const BarLines lines = Bar(moment, TerminalWidth());
    std::printf("%s\r%s\x1b[K\n%s\x1b[K", bar_shown_ ? "\x1b[A" : "",
                lines.bar.c_str(), lines.figures.c_str());
    bar_shown_ = true;
  } else {
    std::printf("%s\n", PlainLine(moment).c_str());
  }
  std::fflush(stdout);
  last_ = now;
  phase_ = moment.phase;
}

void Progress::Say(const std::string& text) {
  End();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::End() {
  if (bar_shown_) std::printf("\n");
  bar_shown_ = false;
  std::fflush(stdout);
}

}  // namespace sluice::c1000k
