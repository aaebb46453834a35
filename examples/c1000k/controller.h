// c1000k: the run itself, phase by phase.
#ifndef SLUICE_EXAMPLES_C1000K_CONTROLLER_H_
#define SLUICE_EXAMPLES_C1000K_CONTROLLER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "examples/c1000k/dial_pacer.h"
#include "examples/c1000k/load_client.h"
#include "examples/c1000k/plan.h"
#include "examples/c1000k/progress.h"
#include "examples/c1000k/report.h"
#include "examples/c1000k/server_process.h"
#include "examples/c1000k/settings.h"
#include "examples/c1000k/shared_page.h"
#include "examples/c1000k/slope.h"
#include "examples/c1000k/source_addresses.h"
#include "examples/c1000k/watch.h"

namespace sluice::c1000k {

// Connects, holds, calls the roll, closes.
// Thread: the main one. All waits are bounded: each phase ends when it is done,
//   when nothing has moved for a while, at a signal, or with the server.
class Controller {
 public:
  // All of them outlive the controller.
  Controller(const Settings& settings, const Plan& plan, ServerProcess& server,
             const SharedPage& page, LoadClient& client, Watch& watch,
             Progress& progress);

  // Once. What the user is told while it runs goes through `progress`.
  Result Run();

 private:
  // --- Phases. False: go on to closing.
  bool Connect();
  bool Settle();  // what is connected has arrived at the server
  bool Hold();
  bool AwaitAnswers();
  bool RollCall();
  void Close();

  // --- Parts of them.
  int ReactorOf(uint64_t dial) const;  // the how-manieth
  void DialMore(uint64_t dials, SourcePicker& picker);
  void HandleFailures(SourcePicker& picker);
  void SampleRamp();
  void MeasurePeak();
  // Samples, shows progress, sleeps. False: cut short.
  bool Step(const char* phase, double done, int milliseconds);
  // Steps until `finished()`. False: cut short, or `progress_mark()` has stood
  // still for `patience` seconds.
  bool StepUntil(const char* phase, absl::FunctionRef<double()> done,
                 absl::FunctionRef<bool()> finished,
                 absl::FunctionRef<uint64_t()> progress_mark, double patience);
  Moment Now(const char* phase, double done);
  void Trouble(std::string text);
  double Elapsed() const;
  double PhaseDone(uint64_t part) const;

  const Settings& settings_;
  const Plan& plan_;
  ServerProcess& server_;
  const SharedPage& page_;
  LoadClient& client_;
  Watch& watch_;
  Progress& progress_;

  Result result_;
  const double begin_;
  std::optional<KernelMemory> kernel_before_;
  DialCounts dials_;
  std::deque<int> redial_;    // reactors of dials to be made again
  uint64_t fresh_dials_ = 0;  // those that are not made again
  uint64_t given_up_ = 0;     // dials that failed for good
  bool gave_up_ = false;      // so many that no more are made
  int sources_told_ = 0;
  Slope slope_;
  uint64_t next_sample_ = 0;

  // Of the connect rate shown.
  double rate_time_ = 0;
  uint64_t rate_count_ = 0;
  double rate_ = 0;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_CONTROLLER_H_
