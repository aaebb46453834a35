// B36: the queue of unsent output against std::string.

#include "reactor/internal/out_queue.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/pattern.h"

namespace sluice::internal {
namespace {

using ::sluice::test::Pattern;
using ::sluice::test::SameBytes;

constexpr size_t kCap = BufferPool::kClasses[0];
constexpr size_t kSizes[] = {kCap - 1, kCap, kCap + 1, 2 * kCap + 3};

// An OutQueue and what it should hold.
class Pair {
 public:
  ~Pair() {
    Consume(model_.size());
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(pool_.outstanding_bytes(), 0u);
  }

  void Append(std::string_view bytes) {
    queue_.Append(pool_, bytes);
    model_ += bytes;
    Check();
  }
  // A payload of which `sent` bytes have left, for which the queue is empty.
  void Append(const Payload& payload, size_t sent = 0) {
    queue_.Append(pool_, payload, sent);
    model_ += payload.view().substr(sent);
    Check();
  }
  void Consume(size_t bytes) {
    bytes = std::min(bytes, model_.size());
    queue_.Consume(bytes);
    model_.erase(0, bytes);
    Check();
    if (model_.empty()) {
      ASSERT_EQ(pool_.outstanding_bytes(), 0u) << "empty, and blocks are held";
    }
  }
  // What a sendmsg with `entries` would take, and of that at most `most` bytes.
  void Send(size_t entries, size_t most) {
    std::vector<iovec> room(entries);
    const size_t used = queue_.Gather(room);
    ASSERT_LE(used, entries);
    ASSERT_EQ(used == 0, model_.empty() || entries == 0);
    size_t bytes = 0;
    for (size_t i = 0; i < used; ++i) {
      ASSERT_GT(room[i].iov_len, 0u) << "an empty entry";
      const std::string_view piece(static_cast<const char*>(room[i].iov_base),
                                   room[i].iov_len);
      ASSERT_LE(bytes + piece.size(), model_.size());
      ASSERT_TRUE(SameBytes(
          piece, std::string_view(model_).substr(bytes, piece.size())));
      bytes += piece.size();
    }
    if (used < entries) {
      ASSERT_EQ(bytes, model_.size()) << "not all was offered";
    }
    Consume(std::min(bytes, most));
  }
  size_t size() const { return model_.size(); }
  size_t held() const { return pool_.outstanding_bytes(); }

 private:
  void Check() {
    ASSERT_EQ(queue_.bytes(), model_.size());
    ASSERT_EQ(queue_.empty(), model_.empty());
  }

  BufferPool pool_{size_t{1} << 20};
  OutQueue queue_;
  std::string model_;
};

TEST(OutQueueTest, B36_EverySizeAtEveryOffset) {
  const std::string bytes = Pattern(4 * kCap);
  const std::string_view all = bytes;
  for (const size_t write : kSizes) {
    for (size_t offset = 0; offset <= kCap;
         offset += offset < 8 || offset > kCap - 8 ? 1 : 13) {
      Pair pair;
      pair.Append(all.substr(0, offset + 1));
      pair.Consume(offset);
      pair.Append(all.substr(offset, write));
      for (const size_t sent : kSizes) {
        pair.Send(1, sent);
        pair.Append(all.substr(sent % 7, write));
        pair.Send(4, sent);
        if (HasFatalFailure()) return;
      }
      while (pair.size() > 0) pair.Send(3, kCap);
    }
  }
}

TEST(OutQueueTest, B36_RandomSteps) {
  const std::string bytes = Pattern(8 * kCap);
  const std::string_view all = bytes;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto any = [&random](size_t most) {
      return std::uniform_int_distribution<size_t>(0, most)(random);
    };
    Pair pair;
    for (int step = 0; step < 400; ++step) {
      const size_t size = any(3) == 0 ? kSizes[any(3)] : any(kCap / 4);
      if (any(1) == 0) {
        pair.Append(all.substr(any(4 * kCap), size));
      } else {
        pair.Send(any(5), pair.size() > 64 * kCap ? pair.size() : size);
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Payloads and copied bytes in any order, as if all had been copied.
TEST(OutQueueTest, PayloadsBetweenCopies) {
  const std::string bytes = Pattern(8 * kCap);
  const std::string_view all = bytes;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto any = [&random](size_t most) {
      return std::uniform_int_distribution<size_t>(0, most)(random);
    };
    Pair pair;
    for (int step = 0; step < 400; ++step) {
      const size_t size = 1 + (any(3) == 0 ? kSizes[any(3)] : any(kCap / 4));
      const std::string_view piece = all.substr(any(4 * kCap), size);
      switch (any(3)) {
        case 0:
          pair.Append(piece);
          break;
        case 1:
          pair.Append(Payload(std::string(piece)),
                      pair.size() == 0 ? any(size - 1) : 0);
          break;
        default:
          pair.Send(1 + any(5), pair.size() > 64 * kCap ? pair.size() : size);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(OutQueueTest, APayloadIsHeldAndNotCopied) {
  BufferPool pool(0);
  OutQueue queue;
  const Payload payload(Pattern(100'000));
  queue.Append(pool, payload, 99'000);
  queue.Append(pool, payload);
  EXPECT_EQ(queue.bytes(), 101'000u);
  EXPECT_EQ(pool.outstanding_bytes(), 0u);
  iovec room[2];
  ASSERT_EQ(queue.Gather(room), 2u);
  EXPECT_EQ(room[0].iov_base, payload.view().data() + 99'000);
  EXPECT_EQ(room[0].iov_len, 1'000u);
  EXPECT_EQ(room[1].iov_base, payload.view().data());
  queue.Consume(101'000);
  EXPECT_TRUE(queue.empty());
}

// Thousands of tiny ones do not take an entry each.
TEST(OutQueueTest, SmallPayloadsBehindOthersAreCopied) {
  BufferPool pool(0);
  OutQueue queue;
  for (int i = 0; i < 3000; ++i) queue.Append(pool, Payload("12345678"));
  EXPECT_EQ(queue.bytes(), 24'000u);
  EXPECT_EQ(queue.pooled_bytes(), 24'000u - 8);
  EXPECT_LE(pool.outstanding_bytes(), 128u << 10);
  iovec room[64];
  const size_t used = queue.Gather(room);
  EXPECT_LE(used, 8u);
  std::string all;
  for (size_t i = 0; i < used; ++i) {
    all.append(static_cast<char*>(room[i].iov_base), room[i].iov_len);
  }
  EXPECT_EQ(all.size(), 24'000u);
  for (size_t i = 0; i < all.size(); i += 8) {
    ASSERT_EQ(all.substr(i, 8), "12345678");
  }
  queue.Consume(4);
  EXPECT_EQ(queue.pooled_bytes(), 24'000u - 8);
  queue.Consume(24'000 - 4);
  EXPECT_EQ(queue.pooled_bytes(), 0u);
}

// Large appends, and one byte at a time.
TEST(OutQueueTest, B36_LargeAndTiny) {
  Pair pair;
  const std::string bytes = Pattern(size_t{3} << 20);
  pair.Append(bytes);
  for (size_t i = 0; i < 2 * kCap + 3; ++i) {
    pair.Append(std::string_view(bytes).substr(i, 1));
  }
  pair.Append("");
  EXPECT_LE(pair.held(), 2 * pair.size());
  while (pair.size() > 0) {
    pair.Send(64, 100'003);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// A queue that is never quite empty gives its blocks back all the same.
TEST(OutQueueTest, B36_AStreamDoesNotGrowIt) {
  Pair pair;
  const std::string bytes = Pattern(2 * kCap);
  pair.Append(std::string_view(bytes).substr(0, 100));
  for (size_t i = 0; i < 3000; ++i) {
    pair.Append(std::string_view(bytes).substr(i % 100, 1000));
    pair.Send(8, 1000);
    ASSERT_LE(pair.held(), 8 * kCap);
  }
}

}  // namespace
}  // namespace sluice::internal
