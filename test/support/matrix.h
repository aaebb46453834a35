// Internal: the combinations under which the same test must hold.
#ifndef SLUICE_TEST_SUPPORT_MATRIX_H_
#define SLUICE_TEST_SUPPORT_MATRIX_H_

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reactor/options.h"
#include "test/support/sanitizers.h"
#include "test/support/test_server.h"

namespace sluice::test {

enum class Family { kTcp4, kTcp6, kUnix };

inline const char* FamilyName(Family family) {
  return family == Family::kTcp4   ? "tcp4"
         : family == Family::kTcp6 ? "tcp6"
                                   : "unix";
}

// An address on this machine with a port, or a path, that is free.
inline std::string ListenAddress(Family family) {
  return family == Family::kTcp4   ? "tcp://127.0.0.1:0"
         : family == Family::kTcp6 ? "tcp://[::1]:0"
                                   : UniqueUnixAddress();
}

struct MatrixParam {
  Family family = Family::kTcp4;
  int reactors = 1;
  AcceptMode accept = AcceptMode::kHandOff;
  Trigger trigger = Trigger::kLevel;
  FdTables fd_tables = FdTables::kShared;

  std::string Listen() const { return ListenAddress(family); }
  Options MakeOptions() const {
    Options options = TestOptions(reactors);
    options.accept_mode = accept;
    options.trigger = trigger;
    options.fd_tables = fd_tables;
    return options;
  }
  // For example "tcp4_2reactors_handoff_level_shared".
  std::string Name() const {
    return std::string(FamilyName(family)) + "_" + std::to_string(reactors) +
           "reactors_" +
           (accept == AcceptMode::kHandOff ? "handoff" : "reuseport") + "_" +
           (trigger == Trigger::kLevel ? "level" : "edge") + "_" +
           (fd_tables == FdTables::kShared ? "shared" : "perreactor");
  }
};

inline void PrintTo(const MatrixParam& param, std::ostream* out) {
  *out << param.Name();
}

// TSan follows descriptors by number, and sees races between equal numbers of
// different tables: there only the shared table is tried.
inline std::vector<FdTables> FdTableChoices() {
  if (kTsan) return {FdTables::kShared};
  return {FdTables::kShared, FdTables::kPerReactor};
}

inline std::vector<MatrixParam> AllCombinations() {
  std::vector<MatrixParam> all;
  for (const Family family : {Family::kTcp4, Family::kTcp6, Family::kUnix}) {
    for (const int reactors : {1, 2, 4}) {
      for (const AcceptMode accept :
           {AcceptMode::kHandOff, AcceptMode::kReusePort}) {
        for (const Trigger trigger : {Trigger::kLevel, Trigger::kEdge}) {
          for (const FdTables tables : FdTableChoices()) {
            all.push_back({family, reactors, accept, trigger, tables});
          }
        }
      }
    }
  }
  return all;
}

// The last argument of INSTANTIATE_TEST_SUITE_P.
inline std::string MatrixName(
    const ::testing::TestParamInfo<MatrixParam>& info) {
  return info.param.Name();
}

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_MATRIX_H_
