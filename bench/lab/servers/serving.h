// Internal: what every C and C++ server of the lab has around its loop, so that
// the loop is all that differs.
#ifndef SLUICE_BENCH_LAB_SERVERS_SERVING_H_
#define SLUICE_BENCH_LAB_SERVERS_SERVING_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace sluice::lab {

struct ServingOptions {
  int threads = 1;
  // 0: what one read brought is answered with one write. Otherwise each message
  // of this many bytes is answered by itself, as handlers of frames do.
  size_t message_bytes = 0;
};

// --threads=N and --message_bytes=N; all else, and a value that is no number,
// ends the program with exit code 2 and a line that names it.
ServingOptions ParseServingOptions(int argc, char** argv);

// Takes a flag of the server's own, such as "--fan_out", off the arguments.
bool TakeSwitch(const char* flag, std::vector<char*>* arguments);

// The kernel ends this process when the lab ends. Writes to a peer that is gone
// are errors of that write.
void StartServing();

// A listening, non-blocking socket with TCP_NODELAY (accepted ones inherit it)
// on 127.0.0.1 and `port`, 0 for any; with SO_REUSEPORT, so that each thread
// can have its own.
int Listen(int port);
int PortOf(int listener);

// "ready PORT" on standard output: connections are taken from here on.
void SayReady(int port);

// Ends the program with what failed and why (errno).
[[noreturn]] void Die(const char* what);

// A listener and a `serve(listener)` for each thread; the calling thread is the
// first of them. One thread has its descriptor table to itself, for which the
// kernel gives it a discount on every system call; that of several is shared.
void ServeOnThreads(const ServingOptions& options,
                    const std::function<void(int listener)>& serve);

}  // namespace sluice::lab

#endif  // SLUICE_BENCH_LAB_SERVERS_SERVING_H_
