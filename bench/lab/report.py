"""Medians, ratios and goals of the turns, as a table and as a page."""

import html
import statistics


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


# Medians of finished workloads, for goals that compare with another one.
_finished = {}


def summarize(workload, servers, turns, failures):
    """One workload's part of lab.json."""
    figures = {}
    for spec in servers:
        if spec.name in failures or not turns[spec.name]:
            continue
        names = turns[spec.name][0].keys()
        figures[spec.name] = {
            name: {
                "median": statistics.median(t[name] for t in turns[spec.name]),
                "least": min(t[name] for t in turns[spec.name]),
                "most": max(t[name] for t in turns[spec.name]),
            }
            for name in names
        }
    _finished[workload.name] = figures
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
                "figures": figures[spec.name],
                "turns": turns[spec.name],
            }
            for spec in servers
            if spec.name in figures
        ],
        "failures": failures,
    }
    result["goals"] = [
        judged
        for goal in workload.goals
        if (judged := judge(goal, workload, servers, figures)) is not None
    ]
    result["notes"] = notes(result)
    return result


def judge(goal, workload, servers, figures):
    """None if what it compares was not measured in this run."""
    figure = goal.figure or workload.figure
    if goal.server not in figures:
        return None
    value = figures[goal.server][figure]["median"]
    if not goal.beside:
        measured, what = value, f"{goal.server}: {figure} at most {goal.limit:g}"
    else:
        beside = reference(goal, figure, servers, figures)
        if beside is None:
            return None
        name, base = beside
        measured = value / base
        what = f"{goal.server} at most {goal.limit:g} times {name}"
        if goal.figure:
            what = f"{goal.figure} of {what}"
    return {"what": what, "measured": measured, "met": measured <= goal.limit}


def reference(goal, figure, servers, figures):
    """(name, value) of what a goal compares with."""
    if goal.beside in ("best_peer", "best_writer"):
        peers = [
            (figures[spec.name][figure]["median"], spec.name)
            for spec in servers
            if spec.kind == "peer"
            and spec.name in figures
            and (goal.beside == "best_peer" or not spec.gathers)
        ]
        if not peers:
            return None
        value, name = min(peers)
        return f"the best peer ({name})", value
    name, _, other = goal.beside.partition(" @ ")
    where = _finished.get(other, {}) if other else figures
    if name not in where:
        return None
    return goal.beside, where[name][figure]["median"]


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


def floor_of(result):
    for server in result["servers"]:
        if server["kind"] == "floor":
            return server
    return None


def table(result):
    columns = [result["figure"], *result["also"]]
    lines = [f"\n{result['name']}: {result['title']}; {result['unit']}"]
    lines.append(
        f"  {'':<22}{'table':>7}{'ratio':>8}"
        + "".join(f"{name:>21}" for name in columns)
        + f"{'spread':>9}"
    )
    floor = floor_of(result)
    for server in result["servers"]:
        main = server["figures"][result["figure"]]
        ratio = "-"
        if floor is not None:
            base = floor["figures"][result["figure"]]["median"]
            ratio = f"{main['median'] / base:.3f}" if base > 0 else "-"
        spread = (main["most"] - main["least"]) / max(main["median"], 1e-9)
        lines.append(
            f"  {server['name']:<22}{server['table']:>7}{ratio:>8}"
            + "".join(
                f"{server['figures'][name]['median']:>21,.1f}" for name in columns
            )
            + f"{spread:>8.0%}"
        )
    for name, why in result["failures"].items():
        lines.append(f"  {name:<22} FAILED: {why}")
    for goal in result["goals"]:
        verdict = "ok" if goal["met"] else "MISSED"
        lines.append(f"  {verdict:<7} {goal['what']}: {goal['measured']:.3f}")
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
                f"<li class={'ok' if goal['met'] else 'missed'}>"
                f"{html.escape(goal['what'])}: {goal['measured']:.3f}</li>"
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
