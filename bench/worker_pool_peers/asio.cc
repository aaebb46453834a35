// asio's thread_pool.
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>

#include "bench/worker_pool_peers/peer.h"

int main(int argc, char** argv) {
  const peer::Arguments arguments = peer::Parse(argc, argv);
  asio::thread_pool pool(static_cast<size_t>(arguments.threads));
  const int code = peer::Main(arguments, [&pool](int tasks, auto task) {
    peer::Countdown countdown(tasks);
    for (int i = 0; i < tasks; ++i) {
      asio::post(pool, [task, &countdown] {
        task();
        countdown.Done();
      });
    }
    countdown.Wait();
  });
  pool.join();
  return code;
}
