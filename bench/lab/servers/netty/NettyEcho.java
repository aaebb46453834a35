// Netty: its native epoll transport where the library for it is installed, NIO
// otherwise; says on standard error which.
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import java.net.InetSocketAddress;

public final class NettyEcho {
  private static int flag(String[] args, String name, int unset) {
    int value = unset;
    for (String arg : args) {
      if (arg.startsWith("--" + name + "=")) {
        value = Integer.parseInt(arg.substring(name.length() + 3));
      }
    }
    return value;
  }

  private static final class Echo extends ChannelInboundHandlerAdapter {
    private final int messageBytes;

    Echo(int messageBytes) {
      this.messageBytes = messageBytes;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
      ByteBuf data = (ByteBuf) message;
      if (messageBytes == 0) {
        context.writeAndFlush(data);
        return;
      }
      // Each message by itself, as a handler behind a frame decoder does.
      while (data.isReadable()) {
        int size = Math.min(messageBytes, data.readableBytes());
        context.writeAndFlush(data.readRetainedSlice(size));
      }
      data.release();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
      context.close();
    }
  }

  public static void main(String[] args) throws Exception {
    int threads = flag(args, "threads", 1);
    int messageBytes = flag(args, "message_bytes", 0);
    boolean epoll = Epoll.isAvailable();
    System.err.println("netty: " + (epoll ? "epoll" : "NIO"));
    EventLoopGroup acceptors = epoll ? new EpollEventLoopGroup(1) : new NioEventLoopGroup(1);
    EventLoopGroup loops =
        epoll ? new EpollEventLoopGroup(threads) : new NioEventLoopGroup(threads);
    Class<? extends ServerChannel> type =
        epoll ? EpollServerSocketChannel.class : NioServerSocketChannel.class;
    ServerBootstrap bootstrap = new ServerBootstrap();
    bootstrap.group(acceptors, loops).channel(type);
    bootstrap.option(ChannelOption.SO_BACKLOG, 4096);
    bootstrap.childOption(ChannelOption.TCP_NODELAY, true);
    bootstrap.childHandler(
        new ChannelInitializer<SocketChannel>() {
          @Override
          protected void initChannel(SocketChannel channel) {
            channel.pipeline().addLast(new Echo(messageBytes));
          }
        });
    Channel server = bootstrap.bind("127.0.0.1", 0).sync().channel();
    System.out.println("ready " + ((InetSocketAddress) server.localAddress()).getPort());
    // The lab keeps the other end open as long as it lives.
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
