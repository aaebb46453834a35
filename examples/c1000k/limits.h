// c1000k: how many connections each limit of the machine allows.
#ifndef SLUICE_EXAMPLES_C1000K_LIMITS_H_
#define SLUICE_EXAMPLES_C1000K_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/c1000k/machine.h"

namespace sluice::c1000k {

// One limit, in words for the number of connections that was asked about.
struct Limit {
  std::string name;
  std::string value;         // what there is
  uint64_t connections = 0;  // the most this limit allows
  std::string needed;        // what the wanted number takes
  std::string fix;           // how to lift it
};

// A connection here has two ends on one machine, so it costs two of everything
// the kernel counts.
inline constexpr uint64_t kEnds = 2;

// Kernel memory of one idle socket in one epoll set, measured: 3,829 for the
// socket, 208 for epoll, 35 for the descriptor and cgroup accounting, and up to
// 128 an end for the local port of the dialing side.
inline constexpr uint64_t kKernelBytesPerSocket = 4'200;
// User memory of one end: a 64-byte record, and slack.
inline constexpr uint64_t kUserBytesPerSocket = 104;
// Both processes without any connection.
inline constexpr uint64_t kFixedBytes = uint64_t{96} << 20;

// Descriptors a process (or a table of a reactor's own) needs besides its
// connections: each reactor has an epoll set or two, an event descriptor and a
// channel, and a table of its own has copies of everybody's.
constexpr uint64_t DescriptorReserve(uint64_t reactors) {
  return 100 + 8 * reactors;
}

// Source ports a source address may use.
uint64_t PortsPerSource(const Machine& machine);

// Reactors each of the two processes may have, as far as threads go.
uint64_t MostReactors(const Machine& machine);

// Connections that fit into one table of descriptors of a process with that
// many reactors; 0 if RLIMIT_NOFILE is too low for any. With an unknown limit,
// as many as one likes.
uint64_t TableRoom(const Machine& machine, uint64_t reactors);

// Every limit that does not depend on the tables, tightest first, in words for
// `wanted` connections. The names of those that could not be read go to
// *unknown.
std::vector<Limit> MachineLimits(const Machine& machine, uint64_t wanted,
                                 std::vector<std::string>* unknown);

// RLIMIT_NOFILE with one shared table, and with `reactors` tables.
Limit SharedTableLimit(const Machine& machine, uint64_t reactors,
                       uint64_t wanted);
// `asked`: the user chose the number of reactors.
Limit OwnTablesLimit(const Machine& machine, uint64_t reactors, bool asked,
                     uint64_t wanted);

// The smallest number of reactors, each with a table of its own, that holds
// `wanted`; if none does, the one that holds the most.
uint64_t ReactorsForOwnTables(const Machine& machine, uint64_t wanted);

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_LIMITS_H_
