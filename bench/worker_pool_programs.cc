#include "bench/worker_pool_programs.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_pool/worker_pool.h"

extern char** environ;

namespace sluice::bench {
namespace {

template <typename Value>
double Median(std::vector<Value> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(),
                   values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  return static_cast<double>(values[middle]);
}

// Everything the program prints. Its standard error is ours.
absl::StatusOr<std::string> Output(const std::vector<std::string>& command) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe2");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  if (error != 0) {
    close(pipe_fds[0]);
    return absl::ErrnoToStatus(error, command[0]);
  }
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(pipe_fds[0], buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  close(pipe_fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError(absl::StrCat(
        absl::StrJoin(command, " "), " ended with ",
        WIFEXITED(status) ? "exit code " : "signal ",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
  }
  return text;
}

}  // namespace

absl::StatusOr<PoolTurn> RunPoolProgram(const std::vector<std::string>& command,
                                        const peer::Arguments& arguments) {
  std::vector<std::string> words = command;
  words.push_back(arguments.measure);
  for (const int number : {arguments.tasks, arguments.rounds, arguments.threads,
                           arguments.repeats}) {
    words.push_back(absl::StrCat(number));
  }
  const absl::StatusOr<std::string> output = Output(words);
  if (!output.ok()) return output.status();
  std::vector<long long> walls;
  std::vector<long long> cpus;
  const char* at = output->c_str();
  int used = 0;
  long long wall = 0;
  long long cpu = 0;
  while (std::sscanf(at, "%lld %lld\n%n", &wall, &cpu, &used) == 2) {
    walls.push_back(wall);
    cpus.push_back(cpu);
    at += used;
  }
  if (*at != '\0' || walls.size() != static_cast<size_t>(arguments.repeats)) {
    return absl::InternalError(
        absl::StrCat(absl::StrJoin(words, " "), " printed ", walls.size(),
                     " lines of two numbers instead of ", arguments.repeats,
                     ": \"", output->substr(0, 200), "\""));
  }
  return PoolTurn{Median(walls) / arguments.tasks,
                  Median(cpus) / arguments.tasks};
}

int BeSluice(const peer::Arguments& arguments, int sample_every) {
  WorkerPoolOptions options;
  options.threads = arguments.threads;
  options.queue = static_cast<size_t>(arguments.tasks);
  options.sample_every = sample_every;
  absl::StatusOr<std::unique_ptr<WorkerPool>> pool =
      WorkerPool::Create(std::move(options));
  if (!pool.ok()) {
    std::fprintf(stderr, "%s\n", pool.status().ToString().c_str());
    return 2;
  }
  return peer::Main(arguments, [&pool](int tasks, auto task) {
    peer::Countdown countdown(tasks);
    for (int i = 0; i < tasks; ++i) {
      const absl::Status s = (*pool)->Submit([task, &countdown] {
        task();
        countdown.Done();
      });
      if (!s.ok()) {
        std::fprintf(stderr, "%s\n", s.ToString().c_str());
        std::exit(2);
      }
    }
    countdown.Wait();
  });
}

int BePlainThreads(const peer::Arguments& arguments) {
  if (std::strcmp(arguments.measure, "compute") != 0) {
    std::fprintf(stderr, "plain threads only do \"compute\"\n");
    return 2;
  }
  peer::Measure(arguments.repeats, [&arguments] {
    std::vector<std::thread> threads;
    for (int t = 0; t < arguments.threads; ++t) {
      threads.emplace_back([&arguments, t] {
        for (int i = t; i < arguments.tasks; i += arguments.threads) {
          peer::Arithmetic(arguments.rounds);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  return 0;
}

}  // namespace sluice::bench
