// What it costs to find frames of 64 bytes, for each decoder: in one buffer,
// and in reads of 1,460 bytes as TCP over Ethernet gives them. netty_codec/
// does the same work with Netty.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmark/benchmark.h"
#include "codec/delimiter_codec.h"
#include "codec/fixed_length_codec.h"
#include "codec/length_field_codec.h"
#include "codec/line_codec.h"
#include "codec/varint_codec.h"

namespace sluice::bench {
namespace {

constexpr size_t kFrames = 1000;
constexpr size_t kPayload = 64;
constexpr size_t kReadBytes = 1460;

void DieUnless(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "codec_bench: %s\n", status.ToString().c_str());
  std::exit(2);
}
template <typename T>
T Checked(absl::StatusOr<T> value) {
  DieUnless(value.status());
  return *std::move(value);
}

template <typename Encoder>
std::string Encoded(const Encoder& encoder) {
  std::string stream;
  for (size_t i = 0; i < kFrames; ++i) {
    DieUnless(encoder.Encode(std::string(kPayload, 'x'), &stream));
  }
  return stream;
}

// Of one pass over the stream.
struct Tally {
  size_t frames = 0;
  size_t bytes = 0;
};

// Takes all whole frames out of `input`; returns what is left of it.
template <typename Decoder>
std::string_view TakeFrames(const Decoder& decoder, std::string_view input,
                            DecodeState& state, Tally* tally) {
  for (;;) {
    const DecodeResult result = decoder.Decode(input, state);
    input.remove_prefix(result.consumed);
    if (result.code == DecodeCode::kNeedMore) return input;
    if (result.code == DecodeCode::kError) DieUnless(result.fault.ToStatus());
    ++tally->frames;
    tally->bytes += result.frame.size();
  }
}

template <typename Decoder>
Tally OneBuffer(const Decoder& decoder, std::string_view stream) {
  Tally tally;
  DecodeState state;
  TakeFrames(decoder, stream, state, &tally);
  return tally;
}

// Each read is copied into a buffer, behind what was left over, as recv(2)
// would put it there.
template <typename Decoder>
Tally Reads(const Decoder& decoder, std::string_view stream) {
  Tally tally;
  DecodeState state;
  char buffer[kReadBytes + 2 * kPayload];
  size_t left = 0;
  while (!stream.empty()) {
    const size_t read = stream.copy(buffer + left, kReadBytes);
    stream.remove_prefix(read);
    const std::string_view rest =
        TakeFrames(decoder, {buffer, left + read}, state, &tally);
    left = rest.size();
    std::memmove(buffer, rest.data(), left);
  }
  return tally;
}

template <typename Decoder>
void Run(benchmark::State& state, const Decoder& decoder,
         std::string_view stream,
         Tally (*pass)(const Decoder&, std::string_view)) {
  for (auto _ : state) {
    const Tally tally = pass(decoder, stream);
    if (tally.frames != kFrames || tally.bytes != kFrames * kPayload) {
      state.SkipWithError("frames were lost");
      return;
    }
  }
  const auto rate = [&](size_t of_a_pass) {
    return benchmark::Counter(static_cast<double>(of_a_pass) *
                                  static_cast<double>(state.iterations()),
                              benchmark::Counter::kIsRate);
  };
  state.counters["frames/s"] = rate(kFrames);
  state.counters["bytes/s"] = rate(stream.size());
}

template <typename Encoder, typename Decoder>
void Register(const std::string& name, const Encoder& encoder,
              const Decoder& decoder) {
  const std::string stream = Encoded(encoder);
  benchmark::RegisterBenchmark((name + "/one_buffer").c_str(),
                               [=](benchmark::State& s) {
                                 Run(s, decoder, stream, OneBuffer<Decoder>);
                               });
  benchmark::RegisterBenchmark(
      (name + "/reads_1460").c_str(),
      [=](benchmark::State& s) { Run(s, decoder, stream, Reads<Decoder>); });
}

void RegisterAll() {
  Register("line", LineEncoder(), Checked(LineDecoder::Create()));
  Register("delimiter", Checked(DelimiterEncoder::Create({"$$"})),
           Checked(DelimiterDecoder::Create({.delimiters = {"$$"}})));
  Register("delimiters_2", Checked(DelimiterEncoder::Create({"$$", "||"})),
           Checked(DelimiterDecoder::Create({.delimiters = {"$$", "||"}})));
  Register("fixed_length",
           Checked(FixedLengthEncoder::Create({.frame_length = kPayload})),
           Checked(FixedLengthDecoder::Create({.frame_length = kPayload})));
  Register("length_field", Checked(LengthFieldEncoder::Create()),
           Checked(LengthFieldDecoder::Create({.strip = 4})));
  Register("varint", VarintEncoder(), Checked(VarintDecoder::Create()));
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  sluice::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
