// oneTBB's task_group. The thread that submits helps while it waits, so it is
// one of the THREADS.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_group.h>

#include "bench/worker_pool_peers/peer.h"

int main(int argc, char** argv) {
  const peer::Arguments arguments = peer::Parse(argc, argv);
  const oneapi::tbb::global_control threads(
      oneapi::tbb::global_control::max_allowed_parallelism,
      static_cast<size_t>(arguments.threads));
  return peer::Main(arguments, [](int tasks, auto task) {
    oneapi::tbb::task_group group;
    for (int i = 0; i < tasks; ++i) group.run(task);
    group.wait();
  });
}
