#include "reactor/internal/load_balancer.h"

#include <arpa/inet.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::internal {
namespace {

using Kind = PeerName::Kind;
constexpr size_t kFull = LoadBalancer::kFull;

PeerName Ip(const std::string& host, uint16_t port = 1000) {
  PeerName peer;
  peer.port = port;
  const bool v4 = host.find(':') == std::string::npos;
  peer.kind = v4 ? Kind::kIpv4 : Kind::kIpv6;
  EXPECT_EQ(inet_pton(v4 ? AF_INET : AF_INET6, host.c_str(), peer.ip), 1);
  return peer;
}

PeerName Unix() {
  PeerName peer;
  peer.kind = Kind::kUnix;
  return peer;
}

// A balancer over reactors of which each has the load that is written down.
class Balanced {
 public:
  Balanced(LoadBalancing policy, std::vector<size_t> initial)
      : balancer(policy), loads(std::move(initial)) {}
  int Pick(const PeerName& peer = Ip("10.0.0.1")) {
    return balancer.Pick(peer, static_cast<int>(loads.size()), [this](int i) {
      EXPECT_GE(i, 0);
      EXPECT_LT(i, static_cast<int>(loads.size()));
      return loads[static_cast<size_t>(i)];
    });
  }
  // Each pick takes a connection more.
  std::vector<int> Picks(int count, const PeerName& peer = Ip("10.0.0.1")) {
    std::vector<int> picks;
    for (int i = 0; i < count; ++i) {
      picks.push_back(Pick(peer));
      if (picks.back() >= 0) ++loads[static_cast<size_t>(picks.back())];
    }
    return picks;
  }
  LoadBalancer balancer;
  std::vector<size_t> loads;
};

TEST(LoadBalancer, RoundRobinTakesOneAfterTheOther) {
  Balanced b(LoadBalancing::kRoundRobin, {5, 0, 9});
  EXPECT_EQ(b.Picks(7), (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(LoadBalancer, RoundRobinPassesFullOnesOver) {
  Balanced b(LoadBalancing::kRoundRobin, {0, kFull, 0, kFull});
  EXPECT_EQ(b.Pick(), 0);
  EXPECT_EQ(b.Pick(), 2);
  EXPECT_EQ(b.Pick(), 0);
  b.loads[1] = 0;
  EXPECT_EQ(b.Pick(), 1);
  EXPECT_EQ(b.Pick(), 2);
}

TEST(LoadBalancer, NoneWhenAllAreFull) {
  for (const LoadBalancing policy :
       {LoadBalancing::kRoundRobin, LoadBalancing::kLeastConnections,
        LoadBalancing::kSourceAddressHash}) {
    Balanced b(policy, {kFull, kFull, kFull});
    EXPECT_EQ(b.Pick(), LoadBalancer::kNone);
    EXPECT_EQ(b.Pick(Unix()), LoadBalancer::kNone);
    b.loads[1] = 7;
    EXPECT_EQ(b.Pick(), 1);
    EXPECT_EQ(b.Pick(Unix()), 1);
  }
}

TEST(LoadBalancer, OneReactorGetsAll) {
  for (const LoadBalancing policy :
       {LoadBalancing::kRoundRobin, LoadBalancing::kLeastConnections,
        LoadBalancing::kSourceAddressHash}) {
    Balanced b(policy, {0});
    EXPECT_EQ(b.Picks(3), (std::vector<int>{0, 0, 0}));
  }
}

TEST(LoadBalancer, LeastConnectionsTakesTheLeastLoaded) {
  Balanced b(LoadBalancing::kLeastConnections, {4, 2, 7, 3});
  EXPECT_EQ(b.Pick(), 1);
  b.loads = {4, 9, 7, 3};
  EXPECT_EQ(b.Pick(), 3);
  b.loads = {kFull, 9, 7, kFull};
  EXPECT_EQ(b.Pick(), 2);
}

TEST(LoadBalancer, LeastConnectionsFillsUpEvenly) {
  Balanced b(LoadBalancing::kLeastConnections, {6, 0, 3, 0});
  (void)b.Picks(15);
  EXPECT_EQ(b.loads, (std::vector<size_t>{6, 6, 6, 6}));
}

// Short connections that are over before the next one comes.
TEST(LoadBalancer, LeastConnectionsSpreadsEqualLoads) {
  for (const size_t load : {size_t{0}, size_t{5}}) {
    Balanced b(LoadBalancing::kLeastConnections, {load, load, load});
    std::map<int, int> picks;
    for (int i = 0; i < 30; ++i) ++picks[b.Pick()];
    EXPECT_EQ(picks, (std::map<int, int>{{0, 10}, {1, 10}, {2, 10}}));
  }
}

TEST(LoadBalancer, TheHashIgnoresThePort) {
  Balanced b(LoadBalancing::kSourceAddressHash, std::vector<size_t>(7));
  for (const std::string host :
       {"10.0.0.1", "192.168.77.3", "::1", "2001:db8::17"}) {
    const int picked = b.Pick(Ip(host, 1));
    for (int port = 2; port < 65536; port += 1001) {
      const PeerName peer = Ip(host, static_cast<uint16_t>(port));
      ASSERT_EQ(b.Pick(peer), picked) << host << " port " << port;
      ASSERT_EQ(HostHash(peer), HostHash(Ip(host, 1)));
    }
  }
}

TEST(LoadBalancer, TheHashSpreadsHosts) {
  Balanced b(LoadBalancing::kSourceAddressHash, std::vector<size_t>(4));
  std::map<int, int> picks;
  std::set<uint64_t> hashes;
  for (int i = 0; i < 1000; ++i) {
    const std::string end =
        std::to_string(i / 250) + "." + std::to_string(i % 250);
    hashes.insert(HostHash(Ip("10.1." + end)));
    ++picks[b.Pick(Ip("10.1." + end))];
  }
  EXPECT_GT(hashes.size(), 990u);
  ASSERT_EQ(picks.size(), 4u);
  for (const auto& [reactor, count] : picks) EXPECT_GT(count, 150) << reactor;
  // All 16 bytes of an IPv6 address count.
  EXPECT_NE(HostHash(Ip("2001:db8::1")), HostHash(Ip("2001:db8::2")));
  EXPECT_NE(HostHash(Ip("2001:db8::1")), HostHash(Ip("2001:db9::1")));
}

// What lies behind an IPv4 address's four bytes does not.
TEST(LoadBalancer, TheHashOfIpv4TakesFourBytes) {
  PeerName dirty = Ip("10.0.0.1");
  std::memset(dirty.ip + 4, 0xaa, 12);
  EXPECT_EQ(HostHash(dirty), HostHash(Ip("10.0.0.1")));
}

TEST(LoadBalancer, TheHashGoesOnToTheNextWithRoom) {
  Balanced b(LoadBalancing::kSourceAddressHash, std::vector<size_t>(4));
  const PeerName peer = Ip("10.9.8.7");
  const int home = b.Pick(peer);
  b.loads[static_cast<size_t>(home)] = kFull;
  EXPECT_EQ(b.Pick(peer), (home + 1) % 4);
  b.loads[static_cast<size_t>((home + 1) % 4)] = kFull;
  EXPECT_EQ(b.Pick(peer), (home + 2) % 4);
  b.loads[static_cast<size_t>(home)] = 3;
  EXPECT_EQ(b.Pick(peer), home);
}

TEST(LoadBalancer, UnixPeersAreTakenInTurnByTheHashToo) {
  Balanced b(LoadBalancing::kSourceAddressHash, std::vector<size_t>(3));
  EXPECT_EQ(b.Picks(4, Unix()), (std::vector<int>{0, 1, 2, 0}));
}

}  // namespace
}  // namespace sluice::internal
