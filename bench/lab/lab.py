"""Every workload against every server, in turns: run.sh says how."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time

import report
import workloads

START_SECONDS = 30
STOP_SECONDS = 5


class LabError(Exception):
    """A server or the client did not do what it should; the text says what."""


class Server:
    """A server process, pinned, from its "ready PORT" on."""

    def __init__(self, spec, workload, folder, cpus):
        self.name = spec.name
        command = [os.path.join(folder, spec.program), *spec.flags]
        each = workload.message_bytes if workload.each_message else 0
        command += [f"--threads={workload.threads}", f"--message_bytes={each}"]
        command += workload.server_flags
        # A pipe that stays open: servers that cannot be told to end with their
        # parent end when it does.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        line = self._first_line()
        words = line.split()
        if len(words) != 2 or words[0] != "ready" or not words[1].isdigit():
            status = self.stop()
            raise LabError(
                f'{self.name}: said "{line.strip()}" instead of "ready PORT"'
                f" (exit status {status})"
            )
        self.port = int(words[1])

    def _first_line(self):
        # A server that says nothing is ended, and then there is a line: "".
        timer = signal.signal(signal.SIGALRM, lambda *_: self.process.kill())
        signal.alarm(START_SECONDS)
        try:
            return self.process.stdout.readline()
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, timer)

    def stop(self):
        self.process.stdin.close()
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()


def run_turn(spec, workload, args):
    """The figures of one turn, as lab_client names them."""
    server = Server(spec, workload, args.programs, args.server_cpus)
    try:
        client = subprocess.run(
            [
                os.path.join(args.programs, "..", "lab_client"),
                f"--port={server.port}",
                f"--pid={server.process.pid}",
                *workload.client_flags(spec, args.scale),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=workload.timeout,
            preexec_fn=lambda: os.sched_setaffinity(0, args.client_cpus),
        )
    except subprocess.TimeoutExpired:
        raise LabError(
            f"{spec.name}, {workload.name}: not over in {workload.timeout} s"
        ) from None
    finally:
        server.stop()
    if client.returncode != 0:
        raise LabError(f"{spec.name}, {workload.name}: {client.stderr.strip()}")
    return json.loads(client.stdout)


def groups_of(chosen):
    """Workloads that a goal compares run in the same turns, others alone."""
    groups = []
    for workload in chosen:
        for group in groups:
            if any(workload.compared_with(w) for w in group):
                group.append(workload)
                break
        else:
            groups.append([workload])
    return groups


def run_group(group, servers, args):
    """({workload: {server: {turn: figures}}}, {workload: {server: failure}}).

    Each turn is short and has every server once, A B C B C A C A B ...: what is
    compared was measured within seconds of each other. Peers that are far from
    being the best are left out after the first few turns.
    """
    turns = {w.name: {s.name: {} for s in servers if w.runs(s)} for w in group}
    failures = {w.name: {} for w in group}
    for turn in range(max(w.turns(args.turns) for w in group)):
        first = turn % len(servers)
        for spec in servers[first:] + servers[:first]:
            for workload in group:
                own = turns[workload.name]
                if (
                    not workload.runs(spec)
                    or turn >= workload.turns(args.turns)
                    or spec.name in failures[workload.name]
                    or report.is_far_off(workload, spec, own, turn)
                ):
                    continue
                try:
                    figures = run_turn(spec, workload, args)
                except LabError as error:
                    print(f"  FAILED  {error}", file=sys.stderr)
                    failures[workload.name][spec.name] = str(error)
                else:
                    own[spec.name][turn] = figures
    return turns, failures


def cpu_list(text):
    """'0,2-3' as {0, 2, 3}."""
    cpus = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            cpus.update(range(int(first), int(last or first) + 1))
        except ValueError:
            raise argparse.ArgumentTypeError(f'"{text}" is no list of CPUs')
    allowed = os.sched_getaffinity(0)
    if not cpus <= allowed:
        raise argparse.ArgumentTypeError(
            f"{text}: this process may use {sorted(allowed)}"
        )
    return cpus


def parse_args():
    allowed = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", required=True, help="folder of the servers")
    parser.add_argument("--out", default="lab", help="folder of the results")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the number of messages"
    )
    parser.add_argument("--workloads", default="", help="comma separated; all")
    parser.add_argument("--servers", default="", help="comma separated; all")
    parser.add_argument(
        "--server_cpus", type=cpu_list, default={allowed[0]}, metavar="LIST"
    )
    parser.add_argument(
        "--client_cpus", type=cpu_list, default={allowed[-1]}, metavar="LIST"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit code 1 if a goal is missed"
    )
    args = parser.parse_args()
    for flag, known in (
        ("workloads", workloads.WORKLOADS),
        ("servers", workloads.SERVERS),
    ):
        names = [name for name in getattr(args, flag).split(",") if name]
        unknown = set(names) - {one.name for one in known}
        if unknown:
            parser.error(
                f"--{flag}: {', '.join(sorted(unknown))}: there are "
                + ", ".join(one.name for one in known)
            )
        setattr(args, flag, [o for o in known if not names or o.name in names])
    if args.turns < 1:
        parser.error(f"--turns={args.turns}: must be at least 1")
    if args.scale <= 0:
        parser.error(f"--scale={args.scale}: must be above 0")
    return args


def main():
    args = parse_args()
    built = []
    missing = []
    for spec in args.servers:
        there = os.access(os.path.join(args.programs, spec.program), os.X_OK)
        (built if there else missing).append(spec)
    results = {
        "machine": {
            "kernel": platform.release(),
            "processor": report.processor(),
            "server_cpus": sorted(args.server_cpus),
            "client_cpus": sorted(args.client_cpus),
        },
        "turns": args.turns,
        "scale": args.scale,
        "began": time.strftime("%Y-%m-%d %H:%M:%S"),
        "not_built": [spec.name for spec in missing],
        "workloads": [],
    }
    for spec in missing:
        print(f"NOT BUILT: {spec.name}; it is in none of these figures")
    for group in groups_of(args.workloads):
        turns, failures = run_group(group, built, args)
        for workload in group:
            servers = [spec for spec in built if workload.runs(spec)]
            if not servers:
                continue
            result = report.summarize(workload, servers, turns, failures)
            results["workloads"].append(result)
            print(report.table(result), flush=True)
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "lab.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    with open(os.path.join(args.out, "lab.html"), "w", encoding="utf-8") as file:
        file.write(report.page(results))
    print(f"written: {args.out}/lab.json, {args.out}/lab.html")
    goals = [
        goal
        for w in results["workloads"]
        for goal in w["goals"]
        if not goal.get("control")
    ]
    missed = [goal for goal in goals if not goal["met"]]
    undecided = [goal for goal in goals if report.is_undecided(goal)]
    failed = [w["name"] for w in results["workloads"] if w["failures"]]
    print(
        f"goals: {len(goals) - len(missed)} of {len(goals)} met"
        + (f", {len(undecided)} undecided" if undecided else "")
        + (f"; turns failed in {', '.join(failed)}" if failed else "")
    )
    if failed:
        return 2
    return 1 if args.check and (missed or missing) else 0


if __name__ == "__main__":
    sys.exit(main())
