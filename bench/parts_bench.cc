// The small parts of a reactor, each alone (Google Benchmark). Their absolute
// times belong to the machine; what they are for is to see one part change.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "reactor/buffer_pool.h"
#include "reactor/internal/clock.h"
#include "reactor/internal/connection_slab.h"
#include "reactor/internal/load_balancer.h"
#include "reactor/internal/mailbox.h"
#include "reactor/internal/timer_wheel.h"

namespace sluice::internal {
namespace {

// Slots in an order that no cache can guess, as messages arrive.
std::vector<uint32_t> Shuffled(uint32_t count) {
  std::vector<uint32_t> order(count);
  for (uint32_t i = 0; i < count; ++i) order[i] = i + 1;
  std::shuffle(order.begin(), order.end(), std::minstd_rand(1));
  return order;
}

WheelNode& FindNode(void* nodes, uint32_t slot) {
  return (*static_cast<std::vector<WheelNode>*>(nodes))[slot];
}

// Traffic moves the idle deadline of one of so many connections; a tick passes
// every 1,000 messages.
void WheelRefresh(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  std::vector<WheelNode> nodes(count + 1);
  uint32_t now = 1;
  TimerWheel wheel(now, &FindNode, &nodes);
  constexpr uint32_t kIdleTicks = 60'000 / 32;
  for (uint32_t slot = 1; slot <= count; ++slot) {
    wheel.Set(slot, now + kIdleTicks);
  }
  const std::vector<uint32_t> order = Shuffled(count);
  size_t i = 0;
  for (auto _ : state) {
    const uint32_t slot = order[i++ % count];
    wheel.Set(slot, now + kIdleTicks);
    if (i % 1'000 == 0) {
      wheel.Advance(++now,
                    [&](uint32_t late) { wheel.Set(late, now + kIdleTicks); });
    }
  }
}
BENCHMARK(WheelRefresh)->Arg(1'000)->Arg(100'000)->Arg(1'000'000);

// What idle and read timeouts cost. Of a record, what the loop touches.
struct alignas(64) Record {
  std::atomic<uint32_t> generation{1};
  uint32_t activity_tick = 0;
  uint32_t input_tick = 0;
  uint32_t idle_ticks = 0;
  WheelNode wheel;
};
WheelNode& FindRecordNode(void* records, uint32_t slot) {
  return (*static_cast<std::vector<Record>*>(records))[slot].wheel;
}

// A message to one of so many connections, all with a deadline in the wheel.
// The loop has the record before it in any case; with refresh 1 it also does
// what it does for timeouts: it reads the coarse clock and stores the tick.
// What that costs is the difference of the two.
void TrafficRefresh(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  const bool refresh = state.range(1) != 0;
  std::vector<Record> records(count + 1);
  TimerWheel wheel(1, &FindRecordNode, &records);
  constexpr uint32_t kIdleTicks = 60'000 / 32;
  for (uint32_t slot = 1; slot <= count; ++slot) {
    wheel.Set(slot, 1 + slot % kIdleTicks);
  }
  const std::vector<uint32_t> order = Shuffled(count);
  const int64_t epoch = CoarseNow();
  uint64_t ticks = 1;
  size_t i = 0;
  for (auto _ : state) {
    Record& record = records[order[i]];
    // Compared with the event's, and then the socket is read: the line is there
    // before the tick is stored.
    const uint32_t generation =
        record.generation.load(std::memory_order_relaxed);
    // It is 1. No message overtakes another one, with all its system calls, so
    // none may start to fetch its line early.
    i += generation;
    if (i == count) i = 0;
    if (refresh) {
      ticks = std::max(
          ticks, 1 + static_cast<uint64_t>((CoarseNow() - epoch) / 32'000'000));
      record.activity_tick = record.input_tick = static_cast<uint32_t>(ticks);
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(TrafficRefresh)
    ->ArgNames({"connections", "refresh"})
    ->ArgsProduct({{1'000, 1'000'000}, {0, 1}});

// What the wheel does for each of so many connections once a timeout of 60 s,
// however much traffic there was: the node comes up, the record says that it is
// not due, and it is put in again.
void WheelLooksAgain(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  std::vector<Record> records(count + 1);
  uint32_t now = 1;
  TimerWheel wheel(now, &FindRecordNode, &records);
  constexpr uint32_t kIdleTicks = 60'000 / 32;
  const std::vector<uint32_t> order = Shuffled(count);
  for (uint32_t i = 0; i < count; ++i) {
    records[order[i]].idle_ticks = kIdleTicks;
    wheel.Set(order[i], now + 1 + i % kIdleTicks);
  }
  int64_t looks = 0;
  for (auto _ : state) {
    wheel.Advance(++now, [&](uint32_t slot) {
      Record& record = records[slot];
      record.activity_tick = now;  // as if a byte had just come
      wheel.Set(slot, record.activity_tick + record.idle_ticks);
      ++looks;
    });
  }
  state.counters["time/look"] = benchmark::Counter(
      static_cast<double>(looks),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["looks"] = static_cast<double>(looks);
}
BENCHMARK(WheelLooksAgain)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);

void SlabAllocateAndFree(benchmark::State& state) {
  ConnectionSlab slab;
  if (!slab.Reserve(nullptr, 100'000).ok()) {
    state.SkipWithError("the slab could not be reserved");
    return;
  }
  uint32_t generation = 0;
  for (auto _ : state) {
    Connection* connection = slab.Allocate(++generation);
    benchmark::DoNotOptimize(connection);
    slab.Free(connection);
  }
}
BENCHMARK(SlabAllocateAndFree);

// A post, and its share of the wake-up and of the batch it is taken out with.
void MailboxPostAndRun(benchmark::State& state) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ConnectionSlab slab;
  if (!slab.Reserve(nullptr, 1).ok()) {
    state.SkipWithError("the slab could not be reserved");
    return;
  }
  Mailbox* mailbox = Mailbox::Acquire();
  mailbox->Open(wake_fd, &slab);
  const int64_t batch = state.range(0);
  uint64_t ran = 0;
  for (auto _ : state) {
    for (int64_t i = 0; i < batch; ++i) {
      benchmark::DoNotOptimize(mailbox->Post([&ran] { ++ran; }).ok());
    }
    std::vector<Task> tasks;
    std::vector<AcceptedSocket> sockets;
    mailbox->Take(&tasks, &sockets);
    for (Task& task : tasks) std::move(task)();
  }
  state.SetItemsProcessed(static_cast<int64_t>(ran));
  mailbox->Close();
  Mailbox::GiveBack(mailbox);
  close(wake_fd);
}
BENCHMARK(MailboxPostAndRun)->Arg(1)->Arg(16)->Arg(256);

void PoolAllocateAndRelease(benchmark::State& state) {
  BufferPool pool(size_t{1} << 20);
  pool.BindToThisThread();
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    Buffer buffer = pool.Allocate(bytes);
    benchmark::DoNotOptimize(buffer.data());
  }
}
BENCHMARK(PoolAllocateAndRelease)->Arg(512)->Arg(4 << 10)->Arg(64 << 10);

void LoadBalancerPick(benchmark::State& state) {
  LoadBalancer balancer(static_cast<LoadBalancing>(state.range(0)));
  std::vector<size_t> loads(static_cast<size_t>(state.range(1)), 0);
  PeerName peer;
  peer.kind = PeerName::Kind::kIpv4;
  for (auto _ : state) {
    ++peer.ip[3];
    const int picked =
        balancer.Pick(peer, static_cast<int>(loads.size()),
                      [&](int i) { return loads[static_cast<size_t>(i)]; });
    ++loads[static_cast<size_t>(picked)];
  }
}
BENCHMARK(LoadBalancerPick)
    ->ArgNames({"policy", "reactors"})
    ->ArgsProduct({{static_cast<int>(LoadBalancing::kRoundRobin),
                    static_cast<int>(LoadBalancing::kLeastConnections),
                    static_cast<int>(LoadBalancing::kSourceAddressHash)},
                   {4, 64}});

}  // namespace
}  // namespace sluice::internal

BENCHMARK_MAIN();
