"""Medians, ratios and goals of the turns, as a table and as a page."""

import collections
import html
import math
import random
import statistics

import workloads


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


HISTOGRAM = "round_trips"  # [[ns, how many], ...], where it was asked for


def summarize(workload, servers, turns, failures):
    """One workload's part of lab.json. Turns: of it and of the workloads that
    it is compared with, {workload: {server: {turn: figures}}}."""
    own = turns[workload.name]
    failures = failures[workload.name]
    measured = [s for s in servers if s.name not in failures and own[s.name]]
    result = {
        "name": workload.name,
        "title": workload.title,
        "kind": workload.kind,
        "figure": workload.figure,
        "unit": workload.unit,
        "also": list(workload.also),
        "servers": [
            {
                "name": spec.name,
                "kind": spec.kind,
                "table": spec.table,
                "figures": medians(own[spec.name]),
                "turns": [
                    {"turn": turn, **figures}
                    for turn, figures in sorted(own[spec.name].items())
                ],
            }
            for spec in measured
        ],
        "failures": failures,
    }
    floor = next((s.name for s in measured if s.kind == "floor"), None)
    for server in result["servers"]:
        ratios = floor and neighbours(
            own[server["name"]], own[floor], workload.figure
        )
        server["ratio"] = statistics.median(ratios) if ratios else None
    result["goals"] = [
        judged
        for goal in workload.goals
        if (judged := judge(goal, workload, measured, turns)) is not None
    ]
    result["notes"] = notes(result)
    return result


def medians(turns):
    """{figure: its median, least and most} of {turn: figures}."""
    all_turns = list(turns.values())
    return {
        name: {
            "median": statistics.median(t[name] for t in all_turns),
            "least": min(t[name] for t in all_turns),
            "most": max(t[name] for t in all_turns),
        }
        for name in all_turns[0]
        if name != HISTOGRAM
    }


def judge(goal, workload, measured, turns):
    """None if what it compares was not measured in this run."""
    figure = goal.figure or workload.figure
    own = turns[workload.name]
    if goal.server not in {spec.name for spec in measured}:
        return None
    if goal.pooled:
        return judge_pooled(goal, figure, own)
    value = median_of(own[goal.server], figure)
    if not goal.beside:
        return {
            "what": f"{goal.server}: {figure} at most {goal.limit:g}",
            "limit": goal.limit,
            "measured": value,
            "met": value <= goal.limit,
        }
    best = None  # of those it is compared with: the one that does best
    for name, others in references(goal, measured, workload, turns):
        ratios = neighbours(own[goal.server], others, figure)
        if ratios and (best is None or statistics.median(ratios) > best[0]):
            best = statistics.median(ratios), ratios, name, others
    if best is None:
        return None
    ratio, ratios, name, others = best
    what = f"{goal.server} at most {goal.limit:g} times {name}"
    if goal.figure:
        what = f"{goal.figure} of {what}"
    return {
        "what": what,
        "limit": goal.limit,
        "measured": ratio,
        "met": ratio <= goal.limit,
        "interval": median_interval(ratios),
        "of_medians": value / median_of(others, figure),
    }


PERCENTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


def judge_pooled(goal, figure, own):
    """One percentile of all turns' messages. A turn's own p99.9 says whether the
    machine stood still once: 64 messages are waiting when it does."""
    others = own.get(goal.beside)
    if not others:
        return None
    both = [turn for turn in own[goal.server] if turn in others]
    if not both:
        return None

    def ratio(turns):
        return pooled_percentile(
            [own[goal.server][turn] for turn in turns], PERCENTILES[figure]
        ) / pooled_percentile([others[turn] for turn in turns], PERCENTILES[figure])

    # Bootstrap: the same number of turns drawn again and again, the seed fixed.
    draw = random.Random(1)
    again = sorted(ratio(draw.choices(both, k=len(both))) for _ in range(1_000))
    measured = ratio(both)
    return {
        "what": f"{figure} of all turns together, {goal.server} at most"
        f" {goal.limit:g} times {goal.beside}",
        "limit": goal.limit,
        "measured": measured,
        "met": measured <= goal.limit,
        "interval": [again[25], again[974]],
        "of_medians": median_of(own[goal.server], figure) / median_of(others, figure),
        "control": goal.control,
    }


def pooled_percentile(turns, fraction):
    """In ns, of the histograms of several turns."""
    counts = collections.Counter()
    for figures in turns:
        for ns, count in figures[HISTOGRAM]:
            counts[ns] += count
    left = math.ceil(fraction * counts.total())
    for ns, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return ns
    raise ValueError("no round trips were recorded")


def references(goal, measured, workload, turns):
    """[(name, {turn: figures})] of what a goal compares with."""
    own = turns[workload.name]
    if goal.beside in ("best_peer", "best_writer"):
        return [
            (f"the best peer ({spec.name})", own[spec.name])
            for spec in measured
            if spec.kind == "peer"
            and (goal.beside == "best_peer" or not spec.gathers)
        ]
    name, _, other = goal.beside.partition(" @ ")
    where = turns.get(other or workload.name, {})
    return [(goal.beside, where[name])] if where.get(name) else []


def neighbours(turns, others, figure):
    """The ratio in each turn that has both: the machine's speed changes within
    a minute, so only what was measured side by side is compared."""
    return [
        figures[figure] / others[turn][figure]
        for turn, figures in turns.items()
        if turn in others and others[turn][figure] > 0
    ]


def is_far_off(workload, spec, turns, turn):
    """Whether a peer has shown in the first turns that no goal is about it."""
    if spec.kind != "peer" or turn < workloads.FEW_TURNS:
        return False
    first = {
        peer.name: dict(list(turns[peer.name].items())[: workloads.FEW_TURNS])
        for peer in workloads.SERVERS
        if peer.kind == "peer" and turns.get(peer.name)
    }
    if spec.name not in first:
        return False
    best = min(first.values(), key=lambda of: median_of(of, workload.figure))
    ratios = neighbours(first[spec.name], best, workload.figure)
    return bool(ratios) and statistics.median(ratios) > workloads.FAR_OFF


def median_of(turns, figure):
    return statistics.median(figures[figure] for figures in turns.values())


def median_interval(values):
    """Where the median lies with 95 % confidence, whatever the distribution:
    between two order statistics (the binomial's normal approximation). With
    fewer than six values there is no such pair: the least and the most."""
    ordered = sorted(values)
    n = len(ordered)
    low = max(math.floor((n - 1.96 * math.sqrt(n)) / 2), 0)
    return [ordered[low], ordered[n - 1 - low]]


def verdict(goal):
    """What was measured, for the table and for the page."""
    text = f"{goal['what']}: {goal['measured']:.3f}"
    if "interval" in goal:
        low, high = goal["interval"]
        text += f" ({low:.3f} to {high:.3f}; medians {goal['of_medians']:.3f})"
    return text


def word(goal):
    if goal.get("control"):
        return "control"
    if goal["met"]:
        return "ok"
    # The interval of what was measured has the limit in it.
    return "UNDECIDED" if is_undecided(goal) else "MISSED"


def is_undecided(goal):
    return not goal["met"] and "interval" in goal and (
        goal["interval"][0] <= goal["limit"]
    )


def notes(result):
    """What a reader must know before believing the figures."""
    said = []
    for server in result["servers"]:
        figures = server["figures"]
        # The open loop's client spins until the next message is due.
        if "client_busy" not in figures or result["kind"] == "open":
            continue
        client = figures["client_busy"]["median"]
        if client > 0.95 and figures["server_busy"]["median"] < 0.9:
            said.append(
                f"{server['name']}: the client was the bottleneck (busy"
                f" {client:.0%} of the time): rate and times are the client's"
            )
    return said


def table(result):
    columns = [result["figure"], *result["also"]]
    lines = [f"\n{result['name']}: {result['title']}; {result['unit']}"]
    lines.append(
        f"  {'':<18}{'table':>7}{'turns':>7}{'ratio':>8}"
        + "".join(f"{name:>21}" for name in columns)
        + f"{'spread':>9}"
    )
    for server in result["servers"]:
        main = server["figures"][result["figure"]]
        ratio = "-" if server["ratio"] is None else f"{server['ratio']:.3f}"
        spread = (main["most"] - main["least"]) / max(main["median"], 1e-9)
        lines.append(
            f"  {server['name']:<18}{server['table']:>7}"
            f"{len(server['turns']):>7}{ratio:>8}"
            + "".join(
                f"{server['figures'][name]['median']:>21,.1f}" for name in columns
            )
            + f"{spread:>8.0%}"
        )
    for name, why in result["failures"].items():
        lines.append(f"  {name:<18} FAILED: {why}")
    for goal in result["goals"]:
        lines.append(f"  {word(goal):<9} {verdict(goal)}")
    lines.extend(f"  note: {note}" for note in result["notes"])
    return "\n".join(lines)


COLOURS = {"floor": "#8a8f98", "sluice": "#1f77b4", "peer": "#c9a26b"}


def bars(result):
    """Horizontal bars: the median, with a line from the least to the most."""
    row, left, width = 24, 190, 560
    figure = result["figure"]
    most = max(s["figures"][figure]["most"] for s in result["servers"])
    scale = width / max(most, 1e-9)
    height = row * len(result["servers"]) + 8
    parts = [
        f'<svg viewBox="0 0 {left + width + 110} {height}" role="img" '
        f'aria-label="{html.escape(result["title"])}">'
    ]
    for i, server in enumerate(result["servers"]):
        values = server["figures"][figure]
        y = i * row + 4
        middle = y + row / 2 - 3
        end = left + values["median"] * scale
        parts.append(
            f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">'
            f"{html.escape(server['name'])}</text>"
            f'<rect x="{left}" y="{y}" width="{max(end - left, 1):.1f}" '
            f'height="{row - 7}" fill="{COLOURS[server["kind"]]}"/>'
            f'<line x1="{left + values["least"] * scale:.1f}" y1="{middle}" '
            f'x2="{left + values["most"] * scale:.1f}" y2="{middle}" '
            'stroke="#222"/>'
            f'<text x="{left + values["most"] * scale + 6:.1f}" '
            f'y="{middle + 4}">{values["median"]:,.0f}</text>'
        )
    parts.append("</svg>")
    return "".join(parts)


STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 60em;
       padding: 0 1em; color: #222; }
h2 { font-size: 1.1em; margin: 2em 0 .3em; }
svg { width: 100%; font-size: 12px; }
.goals { list-style: none; padding: 0; }
.ok::before { content: "met "; color: #2a7d2a; font-weight: 600; }
.undecided::before { content: "UNDECIDED "; color: #8a5a00; font-weight: 600; }
.control::before { content: "control "; color: #555; font-weight: 600; }
.missed::before { content: "MISSED "; color: #b3261e; font-weight: 600; }
.note { color: #555; }
.key span { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0
            1em; vertical-align: -1px; }
"""


def page(results):
    machine = results["machine"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>sluice: the lab</title><style>{STYLE}</style>"
        "<h1>sluice beside the floor and its peers</h1>"
        f"<p>{html.escape(results['began'])}, {html.escape(machine['processor'])},"
        f" Linux {html.escape(machine['kernel'])}; server on CPUs"
        f" {machine['server_cpus']}, client on {machine['client_cpus']};"
        f" medians of {results['turns']} turns, the line from the least to the"
        " most. The lengths belong to this machine; their ratios are what"
        " counts.</p><p class=key>"
        + "".join(
            f'<span style="background:{colour}"></span>{kind}'
            for kind, colour in COLOURS.items()
        )
        + "</p>"
    ]
    if results["not_built"]:
        names = ", ".join(results["not_built"])
        parts.append(f"<p class=note>Not built: {html.escape(names)}</p>")
    for result in results["workloads"]:
        parts.append(
            f"<h2>{html.escape(result['title'])}</h2>"
            f"<div class=note>{html.escape(result['unit'])}</div>"
        )
        if result["servers"]:
            parts.append(bars(result))
        parts.append("<ul class=goals>")
        for goal in result["goals"]:
            parts.append(
                f"<li class={word(goal).lower()}>"
                f"{html.escape(verdict(goal))}</li>"
            )
        parts.append("</ul>")
        for name, why in result["failures"].items():
            parts.append(
                f"<p class=note>{html.escape(name)} failed: {html.escape(why)}</p>"
            )
        for note in result["notes"]:
            parts.append(f"<p class=note>{html.escape(note)}</p>")
    parts.append("</html>")
    return "".join(parts)
