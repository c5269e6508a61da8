# SPDX-License-Identifier: BSD-3-Clause
"""Writes build/bench/report.md and its plots from the figures of all available suites."""

import json
import re
import subprocess
import time
from pathlib import Path

from . import machine
from .figures import Figures, number
from .targets import Sources, judge_all

SUITES = (
    ("host", "On the host", "make bench",
     "Native, in real time: server on one core, load on another. Rates differ from run to run with what else the "
     "machine does; CPU for a request (cpu_us) repeats best."),
    ("loops", "Two loops beside one", "bench/run loops",
     "conn-perf's echo server, native, in real time. Load and server share all processors: load_percent is the "
     "load's part of the processor time, busy the processors that both keep busy together. Rows with shares: each "
     "loop may use a quarter of a processor and has 16 connections; share_percent is what it used of that."),
    ("softroce", "Soft-RoCE in the microVM, real time", "make bench",
     "Two processors, emulated unless KVM can be used: compare rows with each other, not with the host."),
    ("exact", "Instructions, in the microVM", "make bench-exact",
     "Kernel included; one instruction is one virtual nanosecond, so latencies (us) are thousand instructions of "
     "both sides. Figures repeat to about 1 % on any machine; cache misses are not in them."),
)
METRICS = {
    "rps": "requests/s", "p50_us": "p50, us", "p99_us": "p99, us", "cpu_us": "server CPU for a request, us",
    "kinsn": "server's thousand instructions for a request", "mb_per_s": "MB/s (10^6 bytes)", "ns": "ns",
    "latency_us": "latency, us", "client_cpu_us": "client CPU for a request, us", "rss_kib": "resident KiB of an idle connection",
    "pinned_kib": "pinned KiB of an idle connection", "calls": "system calls of a request", "reads": "reads of a request",
    "client_rss_kib": "client's resident KiB of an idle connection", "client_kinsn": "client's thousand instructions for a request",
    "connections": "connections", "descriptors": "descriptors", "cqs": "completion queues", "pds": "protection domains",
    "load_percent": "the load's part of the processor time, %", "busy": "processors busy",
    "share_percent": "of its share of a processor, %",
    "spin_hits": "server's spins that found work", "spin_misses": "server's spins that found none",
    "cpu_ms_10s": "CPU ms in 10 s", "left": "objects left", "guest_gib": "the machine's memory, GiB", "available_mib": "memory left, MiB",
}
LOWER_IS_BETTER = {"p50_us", "p99_us", "cpu_us", "kinsn", "ns", "latency_us", "rss_kib", "pinned_kib", "calls", "reads",
                   "client_cpu_us", "client_rss_kib", "client_kinsn", "cpu_ms_10s"}
US = ("aeconn", "aeconn rdma", "aeconn kv", "two pairs", "2 loops", "coroutines")


def load(folder):
    """{suite: Figures}; a suite without figures is left out, and so is an incomplete last line."""
    suites = {}
    for suite, *_ in SUITES:
        path = Path(folder) / f"{suite}.jsonl"
        if not path.exists():
            continue
        figures = Figures()
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                figures.records.append(json.loads(line))
            except ValueError:
                pass
        figures.date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(path.stat().st_mtime))
        if figures.records:
            suites[suite] = figures
    return suites


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(heads, rows):
    lines = ["| " + " | ".join(map(cell, heads)) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows] + [""]


def plain(text):
    """Removes paths that a failure's text may contain."""
    return re.sub(r"(?<![\w.])/(?!/)[\w.+-]+(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", text)


# ---- the machine --------------------------------------------------------------------------------
def machine_part(suites):
    headers = [h for f in suites.values() for h in f.headers() if h.get("versions")]
    about = max(headers, key=lambda h: h["date"]) if headers else machine.describe("report", 0)
    rows = [("processor", f"{about.get('processor') or 'unknown'}, {about['cores']} cores usable"),
            ("kernel", about["kernel"]), ("kernel in the microVM", about.get("guest_kernel") or "-")]
    rows += [(name, version or "not installed") for name, version in about["versions"].items()]
    for suite, title, command, _ in SUITES:
        figures = suites.get(suite)
        if not figures:
            rows.append((title, f"no figures; `{command}` makes them"))
            continue
        header = next((h for h in figures.headers() if h.get("versions")), {})
        load_ = ", load average at its start " + " ".join(map(str, header["load"])) if header.get("load") else ""
        rounds = header.get("rounds") or next((h["rounds"] for h in figures.headers() if h.get("rounds")), None)
        rows.append((title, f"{figures.date}, {rounds or 'unknown'} rounds{load_}"))
    return ["## The machine", "", *table(("", ""), rows)]


# ---- the targets --------------------------------------------------------------------------------
def targets_part(suites):
    results = judge_all(Sources(**suites))
    lines = ["## Targets", "",
             "Each row compares us with the limit, a bare program that does the least possible work with the same "
             "system calls, and with the peer, an established program; ratios are medians of the rounds with the "
             "smallest and largest in parentheses.",
             "Clock I counts instructions in the microVM, M is real time there, H is real time on the host; rows "
             "\"measured\" depend on the machine's load and are reported, not required. A miss of less than 3 % on "
             "clock I says so.", ""]
    lines += table(("", "metric", "clock", "limit", "peer", "us", "ratios", "target", "verdict"),
                   [(r.id, r.what, r.clock, r.limit, r.peer, r.us, "; ".join(r.ratios) or "-", r.target, plain(r.verdict))
                    for r in results])
    counts = {"met": 0, "met in part": 0, "not met": 0, "measured": 0, "not measured": 0}
    for r in results:
        counts[next(k for k in ("not met", "not measured", "measured", "met in part", "met") if r.verdict.startswith(k))] += 1
    return lines + [", ".join(f"{n} {k}" for k, n in counts.items()) + ".", ""], results


# ---- a suite ------------------------------------------------------------------------------------
def family(row):
    """The table a row belongs to: its name up to the colon, or else without numbers."""
    if ": " in row:
        return row.split(": ")[0]
    text = re.sub(r"\b[cdP]=\d+|\b\d+ (B|KiB|MiB)(?!\w)", "", row)
    return re.sub(r" +(?=,|$)", "", re.sub(r" +", " ", text)).strip(" ,")


def metrics_of(figures, rows):
    wanted = set(rows)
    return list(dict.fromkeys(k for r in figures.records if r["row"] in wanted for k, v in r.items()
                              if k not in ("row", "who", "round") and isinstance(v, (int, float))
                              and not isinstance(v, bool)))


def with_spread(spread):
    if spread is None:
        return "-"
    median, least, most = spread
    return number(median) if least == most else f"{number(median)} ({number(least)}-{number(most)})"


def suite_part(figures, title, command, note):
    lines = [f"## {title}", "", note, "",
             "A cell is the median of the rounds (smallest-largest); the last columns are ratios of us to each "
             "other one within a round.", "", f"Figures of {figures.date}, by `{command}`.", ""]
    families = {}
    for row in figures.rows():
        if row not in ("missing", "receiver not ready"):
            families.setdefault(family(row), []).append(row)
    for name, rows in families.items():
        whos = list(dict.fromkeys(w for row in rows for w in figures.whos(row)))
        us = next((w for w in US if w in whos), None)
        others = [w for w in whos if w != us] if us else []
        lines += [f"### {name}", ""]
        for metric in metrics_of(figures, rows):
            body = []
            for row in rows:
                cells = [with_spread(figures.spread(row, who, metric)) for who in whos]
                if all(c == "-" for c in cells):
                    continue
                ratios = []
                for other in others:
                    ratio = figures.ratio(row, us, other, metric)
                    ratios.append("-" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})")
                body.append((row, *cells, *ratios))
            if body:
                better = ", less is better" if metric in LOWER_IS_BETTER else ""
                lines += table((METRICS.get(metric, metric) + better, *whos, *(f"to {o}" for o in others)), body)
    missing = [r for r in figures.records if r["row"] == "missing"]
    if missing:
        lines += ["### Not measured", "", *(f"- {r['who']}: {plain(r['why'])}" for r in missing), ""]
    for record in figures.records:
        if record["row"] == "receiver not ready":
            counts = ", ".join(f"{k} {v}" for k, v in record.items() if k not in ("row", "who", "round"))
            lines += [f"Receiver-not-ready counters of the device after all rows: {counts}.", ""]
    return lines


# ---- plots --------------------------------------------------------------------------------------
def quoted(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Plots:
    """Writes each plot as SVG and PNG; plots without data are left out."""

    COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#7f7f7f", "#17becf")

    def __init__(self, folder):
        self.folder, self.made, self.problem = Path(folder), [], None

    def draw(self, name, title, commands, data):
        self.folder.mkdir(parents=True, exist_ok=True)
        for terminal, ending in (("svg size 900,460 dynamic background 'white'", "svg"),
                                 ("png size 900,460", "png")):
            script = "\n".join([f"set terminal {terminal}", f"set output {quoted(self.folder / f'{name}.{ending}')}",
                                f"set title {quoted(title)} noenhanced", "set grid", "set key outside right noenhanced",
                                "set xtics noenhanced", *data, *commands, ""])
            try:
                done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, timeout=60)
            except FileNotFoundError:
                self.problem = "gnuplot is not installed (package gnuplot-nox)"
                return
            except subprocess.TimeoutExpired:
                self.problem = "gnuplot did not end"
                return
            if done.returncode != 0:
                self.problem = "gnuplot: " + (done.stderr.strip().splitlines() or ["failed"])[-1]
                return
        self.made.append((name, title))

    def lines(self, name, title, x, y, series, logx=True, logy=False):
        """series: {label: [(x, y, minimum, maximum)]}"""
        series = {label: sorted(points) for label, points in series.items() if points}
        if not any(len(p) > 1 for p in series.values()):
            return
        data, parts = [], []
        for i, (label, points) in enumerate(series.items()):
            data += [f"$d{i} << EOD", *(" ".join(map(str, p)) for p in points), "EOD"]
            colour = self.COLOURS[i % len(self.COLOURS)]
            parts.append(f"$d{i} using 1:2:3:4 with yerrorlines lw 2 lc rgb {quoted(colour)} title {quoted(label)}")
        commands = [f"set xlabel {quoted(x)}", f"set ylabel {quoted(y)}", "set logscale x" if logx else "",
                    "set logscale y" if logy else "set yrange [0:*]",
                    "set xtics (" + ", ".join(f"{quoted(f'{v:g}')} {v}" for v in
                                             sorted({p[0] for ps in series.values() for p in ps})) + ")",
                    "plot " + ", ".join(parts)]
        self.draw(name, title, commands, data)

    def bars(self, name, title, y, groups, labels):
        """groups: {row: {label: value}}"""
        if not groups:
            return
        body = [" ".join([quoted(row), *(str(values.get(label, "NaN")) for label in labels)])
                for row, values in groups.items()]
        data = ["$d << EOD", *body, "EOD", "set style data histogram", "set style histogram clustered gap 1",
                "set style fill solid 0.9", "set boxwidth 0.9", "set xtics rotate by -20"]
        parts = [f"$d using {i + 2}{':xtic(1)' if i == 0 else ''} lc rgb {quoted(self.COLOURS[i % 7])} "
                 f"title {quoted(label)}" for i, label in enumerate(labels)]
        self.draw(name, title, [f"set ylabel {quoted(y)}", "set yrange [0:*]", "plot " + ", ".join(parts)], data)


SIZES = {"16 B": 16, "64 B": 64, "1 KiB": 1024, "4 KiB": 4096, "16 KiB": 16384, "64 KiB": 65536, "1 MiB": 1 << 20}


def point(figures, row, who, metric, x):
    spread = figures.spread(row, who, metric)
    return [(x, *spread)] if spread else []


def plot_all(suites, folder):
    plots = Plots(folder)
    host, guest, exact = (suites.get(s) for s in ("host", "softroce", "exact"))
    if host:
        for transport in ("tcp", "unix", "tls"):
            series = {}
            for depth in (1, 16):
                for who, label in (("aeconn", "kv-server"), ("redis", "redis-server")):
                    series[f"{label}, -P {depth}"] = [p for size, n in SIZES.items() for p in point(
                        host, f"kv {transport} get {size} c=50 P={depth}", who, "rps", n)]
            plots.lines(f"kv-{transport}", f"GET over {transport}, 50 connections, redis-benchmark", "bytes of the value",
                        "requests/s", series, logy=True)
        for metric, label, name in (("rps", "requests/s of 50 busy connections", "idle-rate"),
                                    ("cpu_us", "server CPU for a request, us", "idle-cpu")):
            idle = sorted(int(m.group(1)) for r in host.rows() if (m := re.match(r"scale tcp: (\d+) idle", r)))
            series = {label_: [p for n in idle if n for p in point(host, f"scale tcp: {n} idle, 50 busy", who, metric, n)]
                      for who, label_ in (("aeconn", "kv-server"), ("redis", "redis-server"))}
            plots.lines(name, "50 busy connections among idle ones, TCP", "idle connections", label, series)
    for suite, figures, depths in (("host", host, ("tcp", "unix", "tls")), ("softroce", guest, ("tcp", "rdma"))):
        if figures:
            series = {}
            for transport in depths:
                for quantile in ("p50", "p99"):
                    series[f"{transport} {quantile}"] = [
                        p for d in (1, 4, 16, 64) for p in point(
                            figures, f"echo {transport} c=1 d={d}", "aeconn", f"{quantile}_us", d)]
            where = "the host" if suite == "host" else "the microVM"
            plots.lines(f"latency-depth-{suite}", f"Latency against depth, 1 connection, 64 B, on {where}",
                        "requests under way", "us", series, logy=True)
    if guest:
        whos = list(dict.fromkeys(w for size in SIZES for w in guest.whos(f"stream {size}")))
        series = {who: [p for size, n in SIZES.items() for p in point(guest, f"stream {size}", who, "mb_per_s", n)]
                  for who in whos}
        plots.lines("streams", "Soft-RoCE streams in the microVM", "bytes of a message", "MB/s", series, logy=True)
    if exact:
        for depth in (1, 16):
            groups = {}
            for transport in ("tcp", "unix", "tls", "rdma"):
                bars = {}
                for label, row, who in (("bare echo", f"echo {transport} c=16 d={depth}", "limit"),
                                        ("our echo", f"echo {transport} c=16 d={depth}", "aeconn"),
                                        *((w, f"kv {transport} get c=16 P={depth}", k) for w, k in (
                                            ("kv-server GET", "aeconn"), ("redis GET", "redis"),
                                            ("valkey GET", "valkey"), ("memcached GET", "memcached")))):
                    value = exact.median(row, who, "kinsn")
                    if value is not None:
                        bars[label] = value
                if bars:
                    groups[transport] = bars
            labels = list(dict.fromkeys(label for bars in groups.values() for label in bars))
            plots.bars(f"instructions-{depth}", f"Server's instructions for a request, 16 connections, depth {depth}",
                       "thousand instructions", groups, labels)
    return plots


# ---- all ----------------------------------------------------------------------------------------
def main(folder="build/bench"):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    suites = load(folder)
    lines = ["# Benchmarks of aeconn", "",
             "What is compared, with which settings and why that is fair: bench/peers.md.", ""]
    lines += machine_part(suites)
    part, results = targets_part(suites)
    lines += part
    plots = plot_all(suites, folder / "plots")
    if plots.made or plots.problem:
        lines += ["## Plots", ""]
        lines += [f"![{title}](plots/{name}.svg)\n" for name, title in plots.made]
        if plots.problem:
            lines += [f"Plots that are not here: {plots.problem}.", ""]
    for suite, title, command, note in SUITES:
        if suite in suites:
            lines += suite_part(suites[suite], title, command, note)
        else:
            lines += [f"## {title}", "", f"No figures; `{command}` makes them.", ""]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    width = max(len(r.us) for r in results)
    for r in results:
        print(f"{r.id:4} {r.us:{min(width, 60)}}  {'; '.join(r.ratios) or '-'}  [{plain(r.verdict)}]")
    print(f"The report is {folder}/report.md.")
