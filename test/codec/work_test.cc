// What decoding costs, counted rather than timed: each byte is searched once,
// and what needs no search is never touched.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "codec/internal/delimited.h"
#include "codec/internal/delimiter_finder.h"
#include "codec/internal/frame_rules.h"
#include "codec/internal/line_finder.h"
#include "gtest/gtest.h"
#include "test/codec/expect.h"

namespace sluice::test {
namespace {

// --- Bytes searched.

// Counts the bytes that another finder is asked to search.
template <typename Finder>
struct Counting {
  internal::FrameEnd Find(std::string_view input, size_t from) const {
    const internal::FrameEnd found = finder.Find(input, from);
    *searched += (found ? found.end : input.size()) - from;
    return found;
  }
  size_t tail() const { return finder.tail(); }
  bool MayFit(std::string_view input, size_t max_frame) const {
    return finder.MayFit(input, max_frame);
  }

  Finder finder;
  size_t* searched;
};

// Searched in all when `stream` arrives in pieces of `piece` bytes.
template <typename Finder>
size_t SearchedBytes(const Finder& finder, const LineOptions& options,
                     std::string_view stream, size_t piece) {
  size_t searched = 0;
  const Counting<Finder> counting{finder, &searched};
  const internal::FrameRules rules = internal::RulesOf(options);
  DecodeState state;
  size_t begin = 0;
  // A second search of everything is enough to know.
  for (size_t end = 0; end < stream.size() && searched <= stream.size();) {
    end = std::min(end + piece, stream.size());
    for (;;) {
      const DecodeResult result = internal::DecodeDelimited(
          rules, counting, true, stream.substr(begin, end - begin), state);
      begin += result.consumed;
      if (result.code == DecodeCode::kNeedMore) break;
    }
  }
  return searched;
}

// A stream of frames of `size` bytes, of false starts of "\r\n--".
std::string FramesOf(size_t size, std::string_view end) {
  std::string stream;
  while (stream.size() < (size_t{1} << 18)) {
    std::string frame;
    while (frame.size() < size) frame += "\r\r-";
    stream += frame.substr(0, size);
    stream += end;
  }
  return stream;
}

TEST(Work, EachByteIsSearchedOnceHoweverTheStreamIsCut) {
  const internal::DelimiterFinder several({"\r\n--", "\r\r\r", "|"});
  for (const WhenTooLong when :
       {WhenTooLong::kCloseConnection, WhenTooLong::kSkipFrame}) {
    for (const bool skips : {false, true}) {
      if (skips && when == WhenTooLong::kCloseConnection) continue;
      // Skipped frames are searched too, their last bytes perhaps twice.
      LineOptions options{.when_too_long = when};
      if (skips) options.max_frame = 10;
      for (const size_t size : {size_t{16}, size_t{1000}, size_t{1} << 18}) {
        const std::string lines = FramesOf(size, "\n");
        const std::string parts = FramesOf(size, "\r\n--");
        for (const size_t piece :
             {size_t{1}, size_t{7}, size_t{1460}, lines.size()}) {
          EXPECT_EQ(
              SearchedBytes(internal::LineFinder{}, options, lines, piece),
              lines.size())
              << size << " in pieces of " << piece;
          EXPECT_EQ(SearchedBytes(several, options, parts, piece), parts.size())
              << size << " in pieces of " << piece;
        }
      }
    }
  }
}

// --- Memory touched.

// Pages that can be made to end the program when they are touched.
class Pages {
 public:
  explicit Pages(size_t count)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        size_(count * page_),
        data_(static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { munmap(data_, size_); }

  size_t page() const { return page_; }
  size_t size() const { return size_; }
  char* data() const { return data_; }
  std::string_view view() const { return {data_, size_}; }
  // The pages that lie wholly in [begin, end).
  void Forbid(size_t begin, size_t end) {
    begin = (begin + page_ - 1) / page_ * page_;
    end = end / page_ * page_;
    if (begin >= end) return;
    ASSERT_EQ(mprotect(data_ + begin, end - begin, PROT_NONE), 0);
  }

 private:
  size_t page_;
  size_t size_;
  char* data_;
};

// A frame that fills all pages but for its end, which arrives in pieces of
// `piece` bytes. What has been seen is forbidden, except for `tail` bytes.
template <typename Decoder>
void ExpectNoSecondLook(const Decoder& decoder, std::string_view end,
                        size_t tail, size_t piece) {
  Pages pages(64);
  std::fill(pages.data(), pages.data() + pages.size(), 'x');
  std::copy(end.begin(), end.end(), pages.data() + pages.size() - end.size());
  DecodeState state;
  for (size_t seen = piece; seen < pages.size() - end.size(); seen += piece) {
    ASSERT_EQ(decoder.Decode(pages.view().substr(0, seen), state).code,
              DecodeCode::kNeedMore);
    pages.Forbid(0, seen - std::min(seen, tail));
  }
  const DecodeResult result = decoder.Decode(pages.view(), state);
  EXPECT_EQ(result.code, DecodeCode::kFrame);
  EXPECT_EQ(result.frame.data(), pages.data());
  EXPECT_EQ(result.frame.size(), pages.size() - end.size());
}

TEST(Work, WhatWasSearchedIsNotTouchedAgain) {
  const LineDecoder line = MakeDecoder(LineOptions{});
  const DelimiterDecoder one =
      MakeDecoder(DelimiterOptions{.delimiters = {"--end--"}});
  const DelimiterDecoder several =
      MakeDecoder(DelimiterOptions{.delimiters = {"--end--", "\r\n", "\n"}});
  for (const size_t piece : {size_t{1}, size_t{1460}, size_t{10000}}) {
    ExpectNoSecondLook(line, "\r\n", 1, piece);
    ExpectNoSecondLook(one, "--end--", 6, piece);
    ExpectNoSecondLook(several, "--end--", 6, piece);
  }
}

// Or many frames in one read would each cost a search of all of it.
TEST(Work, NothingFarBehindTheFrameIsTouched) {
  const auto expect = [](const auto& decoder, std::string_view frame) {
    Pages pages(8);
    std::copy(frame.begin(), frame.end(), pages.data());
    pages.Forbid(pages.page(), pages.size());
    DecodeState state;
    EXPECT_EQ(decoder.Decode(pages.view(), state).consumed, frame.size());
  };
  expect(MakeDecoder(LineOptions{}), "line\n");
  expect(MakeDecoder(DelimiterOptions{.delimiters = {"--"}}), "one--");
  expect(MakeDecoder(DelimiterOptions{.delimiters = {"||", "--", "$"}}),
         "several--");
  expect(MakeDecoder(FixedLengthOptions{.frame_length = 5}), "fixed");
  expect(MakeDecoder(LengthFieldOptions{.length_bytes = 1}), "\5field");
  expect(MakeDecoder(VarintOptions{}), "\6varint");
}

// A header is at the front; the frame ends with the pages, and none behind the
// header may be touched.
template <typename Decoder>
void ExpectBodyUntouched(const Decoder& decoder, std::string_view header) {
  Pages pages(8);
  std::copy(header.begin(), header.end(), pages.data());
  pages.Forbid(pages.page(), pages.size());
  DecodeState state;
  for (size_t seen = 1; seen < pages.size(); seen += 1000) {
    EXPECT_EQ(decoder.Decode(pages.view().substr(0, seen), state).code,
              DecodeCode::kNeedMore);
  }
  const DecodeResult result = decoder.Decode(pages.view(), state);
  EXPECT_EQ(result.code, DecodeCode::kFrame);
  EXPECT_EQ(result.consumed, pages.size());
}

TEST(Work, BodiesBehindALengthAreNotTouched) {
  const size_t size = 8 * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  ExpectBodyUntouched(MakeDecoder(FixedLengthOptions{.frame_length = size}),
                      "");
  const auto encoder = LengthFieldEncoder::Create({});
  ExpectBodyUntouched(MakeDecoder(LengthFieldOptions{}),
                      encoder->Header(size - 4)->view());
  // Three bytes hold the length of what is behind them.
  ExpectBodyUntouched(MakeDecoder(VarintOptions{}),
                      VarintEncoder().Header(size - 3)->view());
}

}  // namespace
}  // namespace sluice::test
