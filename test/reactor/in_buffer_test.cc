// B36: the buffer of unread input against std::string.

#include "reactor/internal/in_buffer.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "test/support/pattern.h"

namespace sluice::internal {
namespace {

using ::sluice::test::Pattern;
using ::sluice::test::SameBytes;

constexpr size_t kCap = BufferPool::kClasses[0];
constexpr size_t kSizes[] = {kCap - 1, kCap, kCap + 1, 2 * kCap + 3};

// An InBuffer and what it should hold.
class Pair {
 public:
  ~Pair() {
    buffer_.Consume(buffer_.size());
    buffer_.Trim();
    EXPECT_EQ(pool_.outstanding_bytes(), 0u);
  }

  void Append(std::string_view bytes) {
    buffer_.Append(pool_, bytes);
    model_ += bytes;
    Check();
  }
  // As a read into it does: all the room is there, less of it is used.
  void Fill(std::string_view bytes, size_t least) {
    const std::span<char> room = buffer_.Room(pool_, least);
    ASSERT_GE(room.size(), least);
    const size_t n = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), n);
    // The rest of the room is ours to spoil: nothing unread lies there.
    std::memset(room.data() + n, 0xEE, room.size() - n);
    buffer_.Filled(n);
    model_ += bytes.substr(0, n);
    Check();
  }
  void Consume(size_t bytes) {
    bytes = std::min(bytes, model_.size());
    const std::string_view before = buffer_.view();
    buffer_.Consume(bytes);
    // Views stay good.
    ASSERT_TRUE(SameBytes(before, model_));
    model_.erase(0, bytes);
    Check();
  }
  void Trim() {
    buffer_.Trim();
    if (model_.empty()) {
      EXPECT_EQ(pool_.outstanding_bytes(), 0u);
    }
    Check();
  }
  size_t size() const { return model_.size(); }
  size_t held() const { return pool_.outstanding_bytes(); }

 private:
  void Check() {
    ASSERT_EQ(buffer_.size(), model_.size());
    ASSERT_TRUE(SameBytes(buffer_.view(), model_));
  }

  BufferPool pool_{size_t{1} << 20};
  InBuffer buffer_;
  std::string model_;
};

TEST(InBufferTest, B36_EverySizeAtEveryOffset) {
  const std::string bytes = Pattern(4 * kCap);
  const std::string_view all = bytes;
  for (const size_t write : kSizes) {
    // Every offset near the ends of a block, and some of those between.
    for (size_t offset = 0; offset <= kCap;
         offset += offset < 8 || offset > kCap - 8 ? 1 : 13) {
      Pair pair;
      // `offset` bytes are consumed and still in the block, one is unread.
      pair.Append(all.substr(0, offset + 1));
      pair.Consume(offset);
      pair.Append(all.substr(offset, write));
      for (const size_t discard : kSizes) {
        pair.Consume(discard);
        pair.Append(all.substr(discard % 7, write));
      }
      pair.Consume(pair.size());
      pair.Trim();
      pair.Append("again");
    }
  }
}

TEST(InBufferTest, B36_RandomSteps) {
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
      size_t size = any(3) == 0 ? kSizes[any(3)] : any(kCap / 4);
      const std::string_view piece = all.substr(any(4 * kCap), size);
      switch (any(4)) {
        case 0:
          pair.Append(piece);
          break;
        case 1:
          pair.Fill(piece, 1 + any(2 * kCap));
          break;
        case 2:
          pair.Trim();
          break;
        default:
          pair.Consume(pair.size() > 16 * kCap ? pair.size() : size);
          break;
      }
      if (HasFatalFailure()) return;
    }
  }
}

// A reader that stays a little behind costs no more and more memory.
TEST(InBufferTest, B36_AStreamDoesNotGrowIt) {
  const std::string bytes = Pattern(2 * kCap);
  Pair pair;
  pair.Append(std::string_view(bytes).substr(0, 100));
  for (size_t i = 0; i < 1000; ++i) {
    pair.Append(std::string_view(bytes).substr(i % 100, 1000));
    pair.Consume(1000);
  }
  EXPECT_LE(pair.held(), 4 * kCap);
}

TEST(InBufferTest, B36_TrimKeepsWhatIsUnread) {
  Pair pair;
  pair.Trim();
  pair.Append("");
  EXPECT_EQ(pair.held(), 0u);
  pair.Append("abc");
  pair.Consume(2);
  pair.Trim();
  EXPECT_EQ(pair.size(), 1u);
  pair.Consume(1);
  pair.Trim();
  EXPECT_EQ(pair.held(), 0u);
}

}  // namespace
}  // namespace sluice::internal
