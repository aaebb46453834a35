// c1000k: what runs in the server process.
#ifndef SLUICE_EXAMPLES_C1000K_SERVER_H_
#define SLUICE_EXAMPLES_C1000K_SERVER_H_

#include "examples/c1000k/plan.h"
#include "examples/c1000k/shared_page.h"

namespace sluice::c1000k {

// An echo server on a free port of 127.0.0.1. Tells its port in `page` and a
// byte on `channel` once it listens or has failed; ends when a byte, or the end
// of the stream, comes from there. Returns the exit code of the process.
int RunServer(const Plan& plan, SharedPage* page, int channel);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SERVER_H_
