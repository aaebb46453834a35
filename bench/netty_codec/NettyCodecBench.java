// The work of codec_bench.cc with Netty's decoders: 1,000 frames with payloads
// of 64 bytes, in one buffer and in reads of 1,460 bytes.

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.codec.DelimiterBasedFrameDecoder;
import io.netty.handler.codec.FixedLengthFrameDecoder;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.codec.LineBasedFrameDecoder;
import io.netty.handler.codec.protobuf.ProtobufVarint32FrameDecoder;
import io.netty.util.Version;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.Supplier;

public final class NettyCodecBench {
  private static final int FRAMES = 1000;
  private static final int PAYLOAD = 64;
  private static final int READ_BYTES = 1460;
  private static final int MAX_FRAME = 1 << 20;
  private static final ByteBufAllocator ALLOCATOR =
      PooledByteBufAllocator.DEFAULT;

  // At the end of the pipeline, where a server's handler would be.
  private static final class Tally extends ChannelInboundHandlerAdapter {
    long frames;
    long bytes;

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
      ByteBuf frame = (ByteBuf) message;
      ++frames;
      bytes += frame.readableBytes();
      frame.release();
    }
  }

  private interface Pass {
    void run(ChannelPipeline pipeline);
  }

  // Of this thread, as codec_bench measures it: the collector's is left out.
  private static long cpuTime() {
    return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
  }

  // Header, payload and trailer of one frame, FRAMES times.
  private static byte[] stream(byte[] header, String trailer) {
    byte[] end = trailer.getBytes(StandardCharsets.US_ASCII);
    ByteBuf stream = Unpooled.buffer();
    byte[] payload = new byte[PAYLOAD];
    Arrays.fill(payload, (byte) 'x');
    for (int i = 0; i < FRAMES; ++i) {
      stream.writeBytes(header).writeBytes(payload).writeBytes(end);
    }
    byte[] bytes = new byte[stream.readableBytes()];
    stream.readBytes(bytes);
    return bytes;
  }

  private static ByteBuf ascii(String text) {
    return Unpooled.copiedBuffer(text, StandardCharsets.US_ASCII);
  }

  private static void measure(String name, ChannelHandler decoder, Pass pass,
      int streamBytes, double seconds) {
    Tally tally = new Tally();
    EmbeddedChannel channel = new EmbeddedChannel(decoder, tally);
    ChannelPipeline pipeline = channel.pipeline();
    // The first rounds are for the compiler. Of the others the median counts.
    double[] rates = new double[7];
    for (int round = -3; round < rates.length; ++round) {
      tally.frames = 0;
      tally.bytes = 0;
      long passes = 0;
      long begin = cpuTime();
      long now;
      do {
        for (int i = 0; i < 4; ++i) pass.run(pipeline);
        passes += 4;
        now = cpuTime();
      } while (now - begin < seconds * 1e9);
      channel.checkException();
      if (tally.frames != passes * FRAMES
          || tally.bytes != passes * FRAMES * PAYLOAD) {
        throw new IllegalStateException(name + ": frames were lost");
      }
      if (round >= 0) rates[round] = passes * 1e9 / (now - begin);
    }
    channel.finishAndReleaseAll();
    Arrays.sort(rates);
    double passesPerSecond = rates[rates.length / 2];
    System.out.printf("%-26s %10.0f ns bytes/s=%.4fG/s frames/s=%.4fM/s%n",
        name, 1e9 / passesPerSecond, passesPerSecond * streamBytes / 1e9,
        passesPerSecond * FRAMES / 1e6);
  }

  private static void run(String name, Supplier<ChannelHandler> decoder,
      byte[] stream, double seconds) {
    ByteBuf all = ALLOCATOR.directBuffer(stream.length).writeBytes(stream);
    measure(name + "/one_buffer", decoder.get(), pipeline -> {
      pipeline.fireChannelRead(all.retainedDuplicate());
      pipeline.fireChannelReadComplete();
    }, stream.length, seconds);
    // Each read is copied into a buffer, as recv(2) would fill one.
    measure(name + "/reads_1460", decoder.get(), pipeline -> {
      for (int at = 0; at < stream.length; at += READ_BYTES) {
        ByteBuf read = ALLOCATOR.directBuffer(2048);
        read.writeBytes(all, at, Math.min(READ_BYTES, stream.length - at));
        pipeline.fireChannelRead(read);
        pipeline.fireChannelReadComplete();
      }
    }, stream.length, seconds);
    all.release();
  }

  private static double seconds(String[] arguments) {
    if (arguments.length == 0) return 1;
    try {
      double seconds = Double.parseDouble(arguments[0]);
      if (arguments.length == 1 && seconds > 0 && seconds <= 3600) {
        return seconds;
      }
    } catch (NumberFormatException notANumber) {
      // Told below.
    }
    System.err.println("netty_codec: SECONDS is \""
        + String.join(" ", arguments) + "\": must be one number, above 0 and at"
        + " most 3600");
    System.exit(2);
    throw new AssertionError();
  }

  public static void main(String[] arguments) {
    double seconds = seconds(arguments);
    System.out.println("Netty " + Version.identify().get("netty-codec")
        + ", Java " + System.getProperty("java.version"));
    byte[] none = {};
    run("line", () -> new LineBasedFrameDecoder(MAX_FRAME, true, true),
        stream(none, "\n"), seconds);
    run("delimiter",
        () -> new DelimiterBasedFrameDecoder(MAX_FRAME, ascii("$$")),
        stream(none, "$$"), seconds);
    run("delimiters_2",
        () -> new DelimiterBasedFrameDecoder(
            MAX_FRAME, ascii("$$"), ascii("||")),
        stream(none, "$$"), seconds);
    run("fixed_length", () -> new FixedLengthFrameDecoder(PAYLOAD),
        stream(none, ""), seconds);
    run("length_field",
        () -> new LengthFieldBasedFrameDecoder(MAX_FRAME, 0, 4, 0, 4),
        stream(new byte[] {0, 0, 0, PAYLOAD}, ""), seconds);
    run("varint", ProtobufVarint32FrameDecoder::new,
        stream(new byte[] {PAYLOAD}, ""), seconds);
  }
}
