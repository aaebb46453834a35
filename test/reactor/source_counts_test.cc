#include "reactor/internal/source_counts.h"

#include <arpa/inet.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::internal {
namespace {

using Answer = SourceCounts::Answer;
using Kind = PeerName::Kind;

PeerName Ip(const std::string& host, uint16_t port = 1000, uint32_t scope = 0) {
  PeerName peer;
  peer.port = port;
  peer.scope_id = scope;
  const bool v4 = host.find(':') == std::string::npos;
  peer.kind = v4 ? Kind::kIpv4 : Kind::kIpv6;
  EXPECT_EQ(inet_pton(v4 ? AF_INET : AF_INET6, host.c_str(), peer.ip), 1);
  return peer;
}

Source Of(const std::string& host, uint16_t port = 1000, uint32_t scope = 0) {
  return Source::Of(Ip(host, port, scope));
}

PeerName Numbered(uint32_t number) {
  PeerName peer;
  peer.kind = Kind::kIpv4;
  std::memcpy(peer.ip, &number, sizeof(number));
  return peer;
}

bool Yes() { return true; }
bool No() { return false; }

TEST(SourceTest, AnAddressOfIpv4WithoutItsPort) {
  EXPECT_EQ(Of("192.0.2.1", 1), Of("192.0.2.1", 2));
  EXPECT_FALSE(Of("192.0.2.1") == Of("192.0.2.2"));
  EXPECT_FALSE(Of("192.0.2.1") == Of("1.192.0.2"));
  EXPECT_EQ(Of("192.0.2.1").ToString(), "192.0.2.1");
  EXPECT_EQ(Of("0.0.0.0").ToString(), "0.0.0.0");
}

TEST(SourceTest, APrefixOfIpv6) {
  EXPECT_EQ(Of("2001:db8:1:2::1"), Of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_FALSE(Of("2001:db8:1:2::1") == Of("2001:db8:1:3::1"));
  EXPECT_FALSE(Of("2001:db8:1:2::1") == Of("2001:db9:1:2::1"));
  EXPECT_EQ(Of("2001:db8:1:2:3:4:5:6").ToString(), "2001:db8:1:2::/64");
  EXPECT_EQ(Of("::1").ToString(), "::/64");
}

TEST(SourceTest, ALinkLocalAddressAsAWhole) {
  EXPECT_EQ(Of("fe80::1", 1, 2), Of("fe80::1", 9, 2));
  EXPECT_FALSE(Of("fe80::1", 1, 2) == Of("fe80::2", 1, 2));
  EXPECT_FALSE(Of("fe80::1", 1, 2) == Of("fe80::1", 1, 3));
  EXPECT_EQ(Of("fe80::1", 1, 7).ToString(), "fe80::1%7");
}

TEST(SourceTest, NoKindIsTakenForAnother) {
  // Each of them could be the bytes of another one.
  const std::vector<Source> all = {
      Of("0.0.0.0"),   Of("::1"),     Of("254.128.0.0"), Of("fe80::1"),
      Of("64:ff9b::"), Of("0.0.0.1"), Of("fe80::", 1, 1)};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_FALSE(all[i] == all[k]) << i << k;
  }
}

TEST(SourceCountsTest, EachSourceHasItsBound) {
  SourceCounts counts(2);
  const Source a = Of("192.0.2.1");
  const Source b = Of("192.0.2.2");
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kTaken);
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kTaken);
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kSourceFull);
  EXPECT_EQ(counts.TryTake(b, Yes), Answer::kTaken);
  EXPECT_EQ(counts.CountOf(a), 2u);
  counts.GiveBack(a);
  EXPECT_EQ(counts.CountOf(a), 1u);
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kTaken);
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kSourceFull);
  EXPECT_EQ(counts.sources(), 2u);
}

TEST(SourceCountsTest, WhoIsRefusedAnywayIsNotCounted) {
  SourceCounts counts(1);
  const Source a = Of("192.0.2.1");
  EXPECT_EQ(counts.TryTake(a, No), Answer::kRefused);
  EXPECT_EQ(counts.sources(), 0u);
  EXPECT_EQ(counts.TryTake(a, Yes), Answer::kTaken);
  bool asked = false;
  EXPECT_EQ(counts.TryTake(a,
                           [&asked] {
                             asked = true;
                             return true;
                           }),
            Answer::kSourceFull);
  EXPECT_FALSE(asked);
}

TEST(SourceCountsTest, MemoryOnlyForThoseWhoHaveConnections) {
  SourceCounts counts(3);
  const size_t before = counts.capacity();
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < 50'000; ++i) {
      ASSERT_EQ(counts.TryTake(Source::Of(Numbered(i)), Yes), Answer::kTaken);
    }
    EXPECT_EQ(counts.sources(), 50'000u);
    EXPECT_GE(counts.capacity(), 50'000u);
    for (uint32_t i = 0; i < 50'000; ++i) {
      counts.GiveBack(Source::Of(Numbered(i)));
      if (i == 49'000) {
        EXPECT_LE(counts.capacity(), 20'000u) << "for the thousand left";
      }
    }
    EXPECT_EQ(counts.sources(), 0u);
    EXPECT_LE(counts.capacity(), before + 64 * 8) << "64 shards";
  }
}

TEST(SourceCountsTest, ManyThreadsAndNeverMoreThanTheBound) {
  constexpr uint32_t kSources = 20;
  static constexpr size_t kMost = 3;
  SourceCounts counts(kMost);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&counts, t] {
      std::mt19937 random(t);
      std::vector<Source> mine;
      for (int i = 0; i < 20'000; ++i) {
        if (mine.empty() || random() % 2 == 0) {
          const Source source =
              Source::Of(Numbered(static_cast<uint32_t>(random() % kSources)));
          if (counts.TryTake(source, Yes) == Answer::kTaken) {
            mine.push_back(source);
            EXPECT_LE(counts.CountOf(source), kMost);
          }
        } else {
          counts.GiveBack(mine.back());
          mine.pop_back();
        }
      }
      for (const Source& source : mine) counts.GiveBack(source);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts.sources(), 0u);
}

TEST(SourceCountsDeathTest, GivingBackWhatWasNotTakenIsABug) {
  SourceCounts counts(1);
  EXPECT_DEATH(counts.GiveBack(Of("192.0.2.1")), "more connections than");
}

}  // namespace
}  // namespace sluice::internal
