"""What is measured: the servers, the workloads, and the goals."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ServerSpec:
    name: str
    program: str  # in the folder of the servers
    flags: tuple = ()
    kind: str = "peer"  # floor, peer or sluice
    # Whether threads share the descriptor table. A process with one thread has
    # its table to itself, and the kernel gives it a discount on each system
    # call; so such a server is compared with those that have it too.
    table: str = "own"
    # Writes an answer for each message if asked to; the others answer what one
    # read brought at once.
    each_message: bool = True
    # Those answers leave together, in fewer system calls.
    gathers: bool = False
    warmup_ms: int = 200  # until it is as fast as it gets
    everywhere: bool = True  # or only in the workloads that name it


SERVERS = [
    ServerSpec(
        "raw_epoll",
        "raw_epoll",
        ("--share_table",),
        kind="floor",
        table="shared",
        each_message=False,
    ),
    ServerSpec(
        "raw_epoll_own", "raw_epoll", kind="floor", each_message=False
    ),
    # The same once more: what a ratio is worth if nothing differs.
    ServerSpec(
        "raw_epoll_again",
        "raw_epoll",
        ("--share_table",),
        kind="floor",
        table="shared",
        each_message=False,
        everywhere=False,
    ),
    ServerSpec("raw_uring", "raw_uring", kind="floor", each_message=False),
    ServerSpec("sluice", "../lab_sluice", kind="sluice", table="shared"),
    ServerSpec(
        "sluice_own",
        "../lab_sluice",
        ("--fd_tables=per_reactor",),
        kind="sluice",
    ),
    ServerSpec(
        "sluice_reuseport",
        "../lab_sluice",
        ("--accept=reuseport",),
        kind="sluice",
        table="shared",
        everywhere=False,  # it matters to accepting alone
    ),
    ServerSpec("libevent", "libevent_plain"),
    ServerSpec("bufferevent", "libevent_buffer", gathers=True),
    ServerSpec("libuv", "uv"),
    ServerSpec("asio", "asio"),
    ServerSpec("go_net", "go_net", table="shared"),
    ServerSpec("netty", "netty", table="shared", warmup_ms=3_000),
]


@dataclasses.dataclass(frozen=True)
class Goal:
    """A figure of `server` is at most `limit`, or that many times that of
    `beside`: a server, a server @ another workload, best_peer, or best_writer,
    the best peer that sends each message by itself."""

    server: str
    limit: float
    beside: str = ""
    figure: str = ""  # default: the workload's
    # Of the round trips of all turns together, not of each turn: a percentile
    # with few messages above it in one turn.
    pooled: bool = False
    control: bool = False  # not a goal: what the others must be seen beside


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str  # of lab_client: echo, open, churn, idle
    figure: str  # what it is about
    unit: str
    flags: dict
    goals: tuple = ()
    also: tuple = ()  # further figures in the table
    threads: int = 1
    message_bytes: int = 128
    each_message: bool = False
    servers: tuple = ()  # names; empty: all
    server_flags: tuple = ()
    timeout: int = 300
    most_turns: int = 0  # where more say nothing new; 0: as many as asked for

    def turns(self, asked):
        return min(asked, self.most_turns or asked)

    def compared_with(self, other):
        """Whether a goal of one is about a figure of the other."""
        return any(
            goal.beside.endswith(f" @ {two.name}")
            for one, two in ((self, other), (other, self))
            for goal in one.goals
        )

    def runs(self, spec):
        if self.servers:
            return spec.name in self.servers
        return spec.everywhere

    def client_flags(self, spec, scale):
        flags = dict(self.flags)
        if self.kind in ("echo", "churn"):
            depth = flags.get("depth", 1)
            messages = int(flags["messages"] * scale) // depth * depth
            flags["messages"] = max(messages, depth)
        if self.kind == "fanout":
            flags["messages"] = max(int(flags["messages"] * scale), 3)
        if self.kind == "open":
            flags["duration_ms"] = max(int(flags["duration_ms"] * scale), 200)
        return [
            f"--workload={self.kind}",
            f"--message_bytes={self.message_bytes}",
            f"--warmup_ms={spec.warmup_ms}",
            *(f"--{name}={value}" for name, value in flags.items()),
        ]


ECHO_ALSO = (
    "user_ns",
    "system_ns",
    "sleeps",
    "per_second",
    "p50_us",
    "p99_us",
    "p999_us",
)


# Of workloads that no goal is about: they show the shape of things. And until a
# peer that costs that much more than the best one is left out of the rest.
FEW_TURNS = 7
FAR_OFF = 1.2


def echo(name, title, connections, messages, goals=(), **more):
    more.setdefault("most_turns", 0 if goals else FEW_TURNS)
    flags = {"connections": connections, "messages": messages}
    flags.update(more.pop("flags", {}))
    return Workload(
        name,
        title,
        "echo",
        "cpu_ns",
        "ns of the server's CPU a message",
        flags,
        goals,
        ECHO_ALSO,
        **more,
    )


def echo_goals():
    return (
        Goal("sluice", 1.02, "raw_epoll"),
        Goal("sluice_own", 0.99, "raw_epoll"),
        Goal("sluice_own", 1.01, "best_peer"),
    )


def size_goals():
    return (Goal("sluice", 1.03, "raw_epoll"),)


WORKLOADS = [
    echo("echo_1", "echo, 1 connection", 1, 10_000),
    echo("echo_8", "echo, 8 connections", 8, 20_000),
    echo(
        "echo_64",
        "echo, 64 connections",
        64,
        30_000,
        echo_goals(),
    ),
    echo(
        "tail_64",
        "round trips of 64 connections, the slowest thousandth",
        64,
        100_000,
        (
            Goal("sluice", 1.0, "raw_epoll", "p999_us", pooled=True),
            Goal(
                "raw_epoll_again",
                1.0,
                "raw_epoll",
                "p999_us",
                pooled=True,
                control=True,
            ),
        ),
        flags={"histogram": "true"},
        servers=("raw_epoll", "raw_epoll_again", "sluice", "sluice_own"),
    ),
    echo("echo_1000", "echo, 1,000 connections", 1_000, 30_000, echo_goals()),
    echo("echo_10000", "echo, 10,000 connections", 10_000, 50_000),
    echo(
        "beside_idle",
        "echo, 64 connections beside 15,000 idle",
        64,
        30_000,
        (Goal("sluice", 1.03, "sluice @ echo_64"),),
        flags={"idle_beside": 15_000},
        servers=("raw_epoll", "sluice", "sluice_own", "libevent", "libuv", "go_net"),
    ),
    echo(
        "pipelined",
        "pipelined, 16 messages at a time, each answered by itself",
        64,
        100_000,
        (
            Goal("sluice", 1.05, "raw_epoll"),
            Goal("sluice", 0.5, "best_writer"),
        ),
        flags={"depth": 16},
        each_message=True,
    ),
    echo(
        "echo_16k",
        "echo, messages of 16 KiB",
        64,
        10_000,
        size_goals(),
        message_bytes=16 << 10,
    ),
    echo(
        "echo_1m",
        "echo, messages of 1 MiB",
        8,
        300,
        size_goals(),
        message_bytes=1 << 20,
    ),
    echo(
        "echo_2_loops",
        "echo, 64 connections, 2 loops",
        64,
        30_000,
        (Goal("sluice", 1.02, "raw_epoll"),),
        threads=2,
    ),
    echo("echo_4_loops", "echo, 64 connections, 4 loops", 64, 30_000, threads=4),
    Workload(
        "open_64",
        "open loop, 10,000 messages a second on 64 connections",
        "open",
        "p999_us",
        "us from due to answered, 99.9 %",
        {"connections": 64, "rate": 10_000, "duration_ms": 1_000},
        also=("p50_us", "p99_us", "max_us", "uncorrected_p999_us", "cpu_ns"),
        most_turns=FEW_TURNS,
    ),
    Workload(
        "churn",
        "churn: connect, one echo, close",
        "churn",
        "cpu_ns",
        "ns of the server's CPU a connection",
        {"connections": 16, "messages": 6_000},
        (
            Goal("sluice", 1.10, "raw_epoll"),
            Goal("sluice_reuseport", 1.03, "raw_epoll"),
        ),
        ECHO_ALSO,
        servers=tuple(
            spec.name for spec in SERVERS if spec.name != "raw_epoll_again"
        ),
    ),
    Workload(
        "accept",
        "accept and close at once",
        "churn",
        "cpu_ns",
        "ns of the server's CPU a connection",
        {"connections": 16, "messages": 6_000},
        also=ECHO_ALSO,
        message_bytes=0,
        servers=("raw_epoll", "sluice", "sluice_reuseport"),
        server_flags=("--accept_and_close",),
        most_turns=FEW_TURNS,
    ),
    Workload(
        "fan_out",
        "what one connection says goes to 1,000",
        "fanout",
        "cpu_ns",
        "ns of the server's CPU a recipient",
        {"connections": 1_000, "messages": 100},
        also=ECHO_ALSO,
        servers=("raw_epoll", "sluice", "sluice_own"),
        server_flags=("--fan_out",),
        most_turns=FEW_TURNS,
    ),
    Workload(
        "idle",
        "15,000 idle connections",
        "idle",
        "bytes_per_connection",
        "bytes of the server's memory a connection",
        {"connections": 15_000},
        (Goal("sluice", 104), Goal("sluice", 1.0, "best_peer")),
        (
            "kernel_bytes",
            "open_wall_ns",
            "open_cpu_ns",
            "close_wall_ns",
            "close_cpu_ns",
        ),
        most_turns=5,  # memory does not depend on what else the machine does
    ),
]
