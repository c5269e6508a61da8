# SPDX-License-Identifier: BSD-3-Clause
"""The performance targets of this project, and whether the figures meet them.

A target is judged by measurements within one run of one suite, by ratios within its rounds. Rows
with clock I come from the microVM that counts instructions, M from the microVM in real time, H from
the host. Those of M and K1 depend on other load on the machine: they are reported, not required.
"""

from dataclasses import dataclass, field

from .figures import Figures, number

SUITES = {"I": "exact", "M": "softroce", "H": "host"}
COMMANDS = {"exact": "make bench-exact", "softroce": "make bench", "host": "make bench"}
TOLERANCE = 1.03  # for clock I


class Missing(Exception):
    """A figure is missing; the text says why."""


class Sources:
    """The figures of all suites, by suite."""

    def __init__(self, **suites):
        self.suites = suites

    def figures(self, clock):
        return self.suites.get(SUITES[clock]) or Figures()


@dataclass
class Condition:
    text: str
    bound: float
    value: float | None = None  # None: not measured, for the reason in `why`
    spread: tuple | None = None
    at_least: bool = False
    why: str = ""

    def met(self, tolerance=1.0):
        if self.at_least:
            return self.value >= self.bound / tolerance
        return self.value <= self.bound * tolerance


@dataclass
class Result:
    id: str
    what: str
    clock: str
    target: str
    judged: bool
    limit: str = "-"
    peer: str = "-"
    us: str = "-"
    ratios: list = field(default_factory=list)
    conditions: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    @property
    def verdict(self):
        measured = [c for c in self.conditions if c.value is not None]
        reasons = "; ".join(dict.fromkeys(c.why for c in self.conditions if c.value is None))
        if not measured:
            return f"not measured: {reasons or 'no figures'}"
        failing = [c for c in measured if not c.met()]
        tolerated = self.clock == "I" and all(c.met(TOLERANCE) for c in failing)
        outside = ", ".join(f"{c.text} is {number(c.value)}, not {'>=' if c.at_least else '<='} {number(c.bound)}"
                            for c in failing)
        if not self.judged:
            verdict = "measured: " + (f"outside ({outside})" if failing else "within")
        elif failing and not tolerated:
            verdict = f"not met: {outside}"
        else:
            verdict = "met" if not failing else f"met within 3 %: {outside}"
        if reasons and verdict.startswith("met"):
            verdict = verdict.replace("met", "met in part", 1)
        return f"{verdict}; not measured: {reasons}" if reasons else verdict


class Ask:
    """The figures that a target needs, and its result."""

    def __init__(self, sources, result, rows):
        self.sources, self.figures, self.result, self.rows = sources, sources.figures(result.clock), result, rows
        self.suite = SUITES[result.clock]

    def why(self, row, who):
        if not self.figures.records:
            return f"no figures of `{COMMANDS[self.suite]}`"
        missing = {r["who"]: r["why"] for r in self.figures.records if r["row"] == "missing"}
        for name in (f"{row} {who}", row, *self.rows, "suite"):
            if name in missing:
                return missing[name]
        if who.startswith("valkey") and not any(h.get("valkey") for h in self.figures.headers()):
            return "VALKEY= names no build of Valkey"
        return f'no figure of "{row}" for {who}'

    def get(self, row, who, metric):
        value = self.figures.median(row, who, metric)
        if value is None:
            raise Missing(self.why(row, who))
        return value

    def text(self, row, who, metric, scale=1.0):
        value = self.figures.median(row, who, metric)
        return "-" if value is None else number(value * scale)

    def texts(self, rows, who, metric):
        return " / ".join(self.text(row, who, metric) for row in rows)

    def quotient(self, mine, theirs):
        """(median, minimum, maximum) of two (row, who, metric), per round if there are rounds."""
        a, b = self.figures.values(*mine), self.figures.values(*theirs)
        for values, of in ((a, mine), (b, theirs)):
            if not values:
                raise Missing(self.why(of[0], of[1]))
        ratios = sorted(a[r] / b[r] for r in a if b.get(r))
        if not ratios:
            if not self.get(*theirs):
                raise Missing(f'"{theirs[0]}" is 0 for {theirs[1]}')
            ratios = [self.get(*mine) / self.get(*theirs)]
        middle = len(ratios) // 2
        median = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
        return median, ratios[0], ratios[-1]

    def ratio(self, text, mine, theirs, bound=None, at_least=False, shown=True):
        """A ratio for the table; with a bound it is also a condition."""
        try:
            ratio, why = self.quotient(mine, theirs), ""
        except Missing as missing:
            ratio, why = None, str(missing)
        if shown and ratio:
            self.result.ratios.append(f"{text} {ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})")
        if bound is not None:
            self.result.conditions.append(
                Condition(text, bound, ratio and ratio[0], ratio, at_least, why))
        return ratio

    def value(self, text, row, who, metric, bound, at_least=False, scale=1.0):
        try:
            value, why = self.get(row, who, metric) * scale, ""
        except Missing as missing:
            value, why = None, str(missing)
        self.result.conditions.append(Condition(text, bound, value, None, at_least, why))

    def show(self, limit=None, peer=None, us=None):
        self.result.limit = limit or self.result.limit
        self.result.peer = peer or self.result.peer
        self.result.us = us or self.result.us


TARGETS = {}


def target(id_, what, clock, text, judged=True, rows=()):
    """Declares a target; under the names in `rows` its suite records why figures are missing."""
    def declare(function):
        TARGETS[id_] = (what, clock, text, judged, rows, function)
        return function
    return declare


def judge(id_, sources):
    what, clock, text, judged, rows, function = TARGETS[id_]
    result = Result(id_, what, clock, text, judged)
    function(Ask(sources, result, rows))
    return result


def judge_all(sources):
    return [judge(id_, sources) for id_ in TARGETS]


# ---- latency ------------------------------------------------------------------------------------
SPIN, EVENT = "rdma echo 64 B c=1, spinning", "rdma echo 64 B c=1, event driven"
FREE = "rdma echo 64 B c=1, both processors"  # for spin=auto, which needs more than one
VALKEY_C1 = "valkey-benchmark rdma get c=1 P=1"


@target("L1", "RDMA p50 of a 64 B echo, 1 connection, spin=auto at both ends; us", "M",
        "<= 1.10 x both spinning by hand, <= 0.2 x TCP echo, <= 0.15 x Valkey RDMA", judged=False, rows=("latency",))
def _(ask):
    tcp = "tcp echo 64 B c=1"
    ask.show(f"{ask.text(SPIN, 'limit', 'p50_us')}, by hand {ask.text(FREE, 'by hand', 'p50_us')}",
             f"Valkey {ask.text(VALKEY_C1, 'valkey', 'p50_us')}, TCP echo {ask.text(tcp, 'aeconn', 'p50_us')}",
             ask.text(FREE, "aeconn", "p50_us"))
    mine = (FREE, "aeconn", "p50_us")
    ask.ratio("to both by hand", mine, (FREE, "by hand", "p50_us"), 1.10)
    ask.ratio("to TCP echo", mine, (tcp, "aeconn", "p50_us"), 0.2)
    ask.ratio("to Valkey", mine, (VALKEY_C1, "valkey", "p50_us"), 0.15)
    ask.ratio("by hand, each on its processor, to limit", (SPIN, "aeconn", "p50_us"), (SPIN, "limit", "p50_us"))


@target("L2", "RDMA p50, event driven, 1 connection, own client; virtual us", "I",
        "echo <= 1.05 x limit, on EpollLoop too; kv GET <= 54", rows=("rdma-echo", "verbs-client", "rdma-kv"))
def _(ask):
    own, bare, kv = "echo rdma c=1 d=1", "echo rdma, bare client c=1 d=1", "kv rdma get c=1 P=1"
    limit = (bare, "limit", "p50_us")
    ask.show(f"{ask.text(*limit)}", f"Valkey GET {ask.text(kv, 'valkey', 'p50_us')}",
             f"echo {ask.text(own, 'aeconn', 'p50_us')}, GET {ask.text(kv, 'aeconn', 'p50_us')}")
    ask.ratio("echo to limit", (own, "aeconn", "p50_us"), limit, 1.05)
    ask.ratio("EpollLoop", (own, "EpollLoop", "p50_us"), limit, 1.05)
    ask.ratio("same client", (own, "aeconn", "p50_us"), (own, "limit", "p50_us"))
    ask.ratio("bare client", (bare, "aeconn", "p50_us"), limit)
    ask.ratio("bare client, EpollLoop", (bare, "EpollLoop", "p50_us"), limit)
    ask.value("GET, us", kv, "aeconn", "p50_us", 54)


@target("L3", "tail of the same as L1: p99 / p50", "M", "<= 2.5", judged=False, rows=("latency",))
def _(ask):
    tails = {}
    for name, who, row in (("limit", "limit", SPIN), ("aeconn", "aeconn", FREE), ("valkey", "valkey", VALKEY_C1)):
        try:
            tails[name] = number(ask.quotient((row, who, "p99_us"), (row, who, "p50_us"))[0])
        except Missing:
            tails[name] = "-"
    ask.show(tails["limit"], f"Valkey {tails['valkey']}", tails["aeconn"])
    ask.ratio("p99 / p50", (FREE, "aeconn", "p99_us"), (FREE, "aeconn", "p50_us"), 2.5)
    ask.ratio("by hand", (FREE, "by hand", "p99_us"), (FREE, "by hand", "p50_us"))


# ---- throughput ---------------------------------------------------------------------------------
@target("T1a", "RDMA kv GET, c=16 P=1, unmodified valkey-benchmark; requests/s", "I", ">= 1.12 x Valkey",
        rows=("valkey-benchmark",))
def _(ask):
    row = "valkey-benchmark rdma get c=16 P=1"
    ask.show(None, f"Valkey {ask.text(row, 'valkey', 'rps')}", ask.text(row, "aeconn", "rps"))
    ask.ratio("to Valkey", (row, "aeconn", "rps"), (row, "valkey", "rps"), 1.12, at_least=True)
    ask.ratio("server's instructions", (row, "aeconn", "kinsn"), (row, "valkey", "kinsn"))


@target("T1b", "the same, kv-server with our client beside Valkey with its own; requests/s", "I",
        ">= 1.6 x Valkey", rows=("rdma-kv", "valkey-benchmark"))
def _(ask):
    row, theirs = "kv rdma get c=16 P=1", ("valkey-benchmark rdma get c=16 P=1", "valkey", "rps")
    limit = ask.text("echo rdma c=16 d=1", "limit", "rps")
    ask.show(f"echo {limit}", f"Valkey {ask.text(*theirs)}", ask.text(row, "aeconn", "rps"))
    ask.ratio("to Valkey", (row, "aeconn", "rps"), theirs, 1.6, at_least=True)
    ask.ratio("our client at both", (row, "aeconn", "rps"), (row, "valkey", "rps"))
    ask.ratio("echo to limit", ("echo rdma c=16 d=1", "aeconn", "rps"), ("echo rdma c=16 d=1", "limit", "rps"))


@target("T2", "RDMA kv GET, c=16 P=16, unmodified valkey-benchmark; requests/s", "I",
        ">= 1.3 x Valkey, >= Valkey over TCP", judged=False, rows=("valkey-benchmark",))
def _(ask):
    row, tcp = "valkey-benchmark rdma get c=16 P=16", "valkey-benchmark tcp get c=16 P=16"
    ask.show(None, f"Valkey {ask.text(row, 'valkey', 'rps')}, over TCP {ask.text(tcp, 'valkey', 'rps')}",
             ask.text(row, "aeconn", "rps"))
    ask.ratio("to Valkey", (row, "aeconn", "rps"), (row, "valkey", "rps"), 1.3, at_least=True)
    ask.ratio("to Valkey over TCP", (row, "aeconn", "rps"), (tcp, "valkey", "rps"), 1.0, at_least=True)


@target("T3", "stream of 64 KiB messages, in place; MB/s", "M", ">= 0.97 x ib_write_bw, >= 1.0 x rsocket", judged=False,
        rows=("streams", "perftest", "rstream"))
def _(ask):
    row = "stream 64 KiB"
    ask.show(ask.text(row, "ib_write_bw", "mb_per_s"), f"rsocket {ask.text(row, 'rsocket', 'mb_per_s')}",
             f"{ask.text(row, 'aeconn rdma, in place', 'mb_per_s')}, with read() and write() "
             f"{ask.text(row, 'aeconn rdma', 'mb_per_s')}")
    mine = (row, "aeconn rdma, in place", "mb_per_s")
    ask.ratio("to limit", mine, (row, "ib_write_bw", "mb_per_s"), 0.97, at_least=True)
    ask.ratio("to rsocket", mine, (row, "rsocket", "mb_per_s"), 1.0, at_least=True)


@target("T4", "64 KiB GET x 16, crossing a window of 1 MiB, to x 8; requests/s", "I", ">= 0.95",
        rows=("window-wrap", "valkey-benchmark"))
def _(ask):
    row = "rdma get 64 KiB c=1 P={}"
    theirs = "valkey-benchmark " + row
    try:
        valkey = ask.quotient((theirs.format(16), "valkey", "rps"), (theirs.format(8), "valkey", "rps"))[0]
        peer = f"Valkey {valkey:.2f}"
    except Missing:
        peer = None
    ask.show("1", peer, f"{ask.text(row.format(16), 'aeconn', 'rps')} to {ask.text(row.format(8), 'aeconn', 'rps')}")
    ask.ratio("x 16 to x 8", (row.format(16), "aeconn", "rps"), (row.format(8), "aeconn", "rps"), 0.95, at_least=True)


@target("T5", "RDMA GET of 64 KiB, 8 under way, unmodified valkey-benchmark; requests/s", "I", ">= 1.1 x Valkey",
        rows=("valkey-benchmark",))
def _(ask):
    row = "valkey-benchmark rdma get 64 KiB c=1 P=8"
    ask.show(None, f"Valkey {ask.text(row, 'valkey', 'rps')}", ask.text(row, "aeconn", "rps"))
    ask.ratio("to Valkey", (row, "aeconn", "rps"), (row, "valkey", "rps"), 1.1, at_least=True)
    ask.ratio("server's instructions", (row, "aeconn", "kinsn"), (row, "valkey", "kinsn"))


@target("T6", "SET of 16 KiB over TCP, c=50 P=16; requests/s, server's CPU", "H", ">= 1.05 x redis, <= 0.9 x its CPU",
        rows=("tcp-kv",))
def _(ask):
    row = "kv tcp set 16 KiB c=50 P=16"
    ask.show(None, f"redis {ask.text(row, 'redis', 'rps')}, {ask.text(row, 'redis', 'cpu_us')} us",
             f"{ask.text(row, 'aeconn', 'rps')}, {ask.text(row, 'aeconn', 'cpu_us')} us")
    ask.ratio("rate to redis", (row, "aeconn", "rps"), (row, "redis", "rps"), 1.05, at_least=True)
    ask.ratio("CPU to redis", (row, "aeconn", "cpu_us"), (row, "redis", "cpu_us"), 0.9)
    for transport in ("unix", "tls"):
        other = row.replace("tcp", transport)
        ask.ratio(f"rate, {transport}", (other, "aeconn", "rps"), (other, "redis", "rps"))
        ask.ratio(f"CPU, {transport}", (other, "aeconn", "cpu_us"), (other, "redis", "cpu_us"))


# ---- processor time -----------------------------------------------------------------------------
@target("C1", "CPU of an RDMA echo, c=1 / 16 / 64; server's thousand instructions", "I",
        "<= 1.03 x limit each, on EpollLoop too", rows=("verbs-client", "rdma-echo"))
def _(ask):
    bare = [f"echo rdma, bare client c={c} d=1" for c in (1, 16, 64)]
    ask.show(ask.texts(bare, "limit", "kinsn"), None, ask.texts(bare, "aeconn", "kinsn"))
    for connections, row in zip((1, 16, 64), bare):
        ask.ratio(f"c={connections}", (row, "aeconn", "kinsn"), (row, "limit", "kinsn"), 1.03)
        ask.ratio(f"EpollLoop c={connections}", (row, "EpollLoop", "kinsn"), (row, "limit", "kinsn"), 1.03)
    for connections in (1, 16, 64):
        row = f"echo rdma c={connections} d=1"
        ask.ratio(f"our client c={connections}", (row, "aeconn", "kinsn"), (row, "limit", "kinsn"))


@target("C2", "system calls of a request, RDMA, c=16", "I", "<= 1.3", rows=("system-calls",))
def _(ask):
    row = "system calls rdma c=16"
    ask.show(ask.text(row, "limit", "calls"), f"Valkey {ask.text(row, 'valkey', 'calls')}",
             f"echo {ask.text(row, 'aeconn', 'calls')}, kv {ask.text(row, 'aeconn kv', 'calls')}")
    ask.value("echo", row, "aeconn", "calls", 1.3)
    ask.ratio("to limit", (row, "aeconn", "calls"), (row, "limit", "calls"))


@target("C3", "server's CPU of an RDMA echo, c=1, spinning to event driven; us", "M", "<= 0.6; auto <= 1", judged=False,
        rows=("latency",))
def _(ask):
    ask.show(f"{ask.text(SPIN, 'limit', 'cpu_us')} to {ask.text(EVENT, 'limit', 'cpu_us')}", None,
             f"{ask.text(SPIN, 'aeconn', 'cpu_us')} to {ask.text(EVENT, 'aeconn', 'cpu_us')}")
    ask.ratio("limit", (SPIN, "limit", "cpu_us"), (EVENT, "limit", "cpu_us"))
    ask.ratio("spinning to event driven", (SPIN, "aeconn", "cpu_us"), (EVENT, "aeconn", "cpu_us"), 0.6)
    ask.ratio("auto to sleeping", (FREE, "aeconn", "cpu_us"), (FREE, "sleeping", "cpu_us"), 1)


@target("C4", "spin=auto at the server, its client sleeps: server's CPU to no spinning; us", "M", "<= 1.01",
        judged=False, rows=("latency",))
def _(ask):
    who, fixed = "auto, its client sleeps", "rdma echo 64 B c=1, server spins 20 us"
    ask.show(None, None, f"{ask.text(FREE, who, 'cpu_us')} to {ask.text(FREE, 'sleeping', 'cpu_us')}")
    ask.ratio("auto to none", (FREE, who, "cpu_us"), (FREE, "sleeping", "cpu_us"), 1.01)
    ask.ratio("20 us to none", (fixed, "aeconn", "cpu_us"), (EVENT, "aeconn", "cpu_us"))


# ---- memory, numbers ----------------------------------------------------------------------------
def idle_row(ask, metric):
    ask.show(ask.text("idle rdma", "limit", metric), f"Valkey {ask.text('idle rdma', 'valkey', metric)}",
             ask.text("idle rdma", "aeconn", metric))


@target("M1", "server's resident memory of an idle RDMA connection, of 500; KiB", "I", "<= 72, 37 x less than Valkey",
        rows=("idle",))
def _(ask):
    idle_row(ask, "rss_kib")
    ask.value("KiB", "idle rdma", "aeconn", "rss_kib", 72)
    ask.ratio("Valkey to us", ("idle rdma", "valkey", "rss_kib"), ("idle rdma", "aeconn", "rss_kib"), 37,
              at_least=True)


@target("M2", "pinned memory of an idle RDMA connection; KiB", "I", "<= 64", rows=("idle",))
def _(ask):
    idle_row(ask, "pinned_kib")
    ask.value("KiB", "idle rdma", "aeconn", "pinned_kib", 64)


@target("M3", "descriptors, completion queues, domains of a connection; objects left after all closed", "I",
        "0 / 0 / 0 / 0", rows=("idle",))
def _(ask):
    metrics = ("descriptors", "cqs", "pds", "left")
    each = {who: " / ".join(ask.text("idle rdma", who, m) for m in metrics) for who in ("limit", "valkey", "aeconn")}
    ask.show(each["limit"], f"Valkey {each['valkey']}", each["aeconn"])
    for metric in metrics[:3]:
        ask.value(metric, "idle rdma", "aeconn", metric, 0.001)
    ask.value("left", "idle rdma", "aeconn", "left", 0)


@target("M4", "CPU of 500 idle RDMA connections in 10 s; ms", "I", "<= 10", rows=("idle",))
def _(ask):
    idle_row(ask, "cpu_ms_10s")
    ask.value("ms", "idle rdma", "aeconn", "cpu_ms_10s", 10)


@target("N1", "RDMA connections in a guest of 4 GiB, both ends", "M", ">= 4,000", judged=False, rows=("many",))
def _(ask):
    ask.show(None, None, ask.text("rdma connections in 4 GiB", "aeconn", "connections"))
    ask.value("connections", "rdma connections in 4 GiB", "aeconn", "connections", 4000, at_least=True)


@target("N2", "CPU of a request on 16 RDMA connections beside 1,000 idle ones, to none idle", "I", "<= 1.03",
        rows=("idle-among",))
def _(ask):
    row = "echo rdma c=16, {} idle"
    ask.show("1", None, f"{ask.text(row.format('1000'), 'aeconn', 'kinsn')} to "
                        f"{ask.text(row.format('none'), 'aeconn', 'kinsn')}")
    ask.ratio("idle to none", (row.format("1000"), "aeconn", "kinsn"), (row.format("none"), "aeconn", "kinsn"), 1.03)


# ---- connecting ---------------------------------------------------------------------------------
@target("S1", "RDMA connections a second, each with a request; server's million instructions", "I",
        ">= 25 x Valkey, <= 0.40 million", rows=("connection-rate",))
def _(ask):
    row = "connect rdma"
    each = {who: f"{ask.text(row, who, 'rps')}, {ask.text(row, who, 'kinsn', 1e-3)} M"
            for who in ("limit", "valkey", "aeconn")}
    both = "valkey at both ends"
    ask.show(each["limit"], f"Valkey at both ends {ask.text(row, both, 'rps')}; with our client {each['valkey']}",
             each["aeconn"])
    ask.ratio("to Valkey at both ends", (row, "aeconn", "rps"), (row, both, "rps"), 25, at_least=True)
    ask.ratio("the same client", (row, "aeconn", "rps"), (row, "valkey", "rps"))
    ask.value("million instructions", row, "aeconn", "kinsn", 0.40, scale=1e-3)
    ask.ratio("rate to limit", (row, "aeconn", "rps"), (row, "limit", "rps"))


@target("S2", "TCP connection with one request; server's thousand instructions", "I", "<= 0.85 x redis",
        rows=("connection-rate",))
def _(ask):
    row = "connect tcp"
    ask.show(ask.text(row, "limit", "kinsn"), f"redis {ask.text(row, 'redis', 'kinsn')}",
             ask.text(row, "aeconn", "kinsn"))
    ask.ratio("to redis", (row, "aeconn", "kinsn"), (row, "redis", "kinsn"), 0.85)
    ask.ratio("to limit", (row, "aeconn", "kinsn"), (row, "limit", "kinsn"))


# ---- TLS ----------------------------------------------------------------------------------------
@target("X1", "TLS echo and GET, c=16 P=1; server's thousand instructions", "I", "echo <= 1.04 x limit, GET <= 0.92 x redis",
        rows=("tls-echo", "tls-kv"))
def _(ask):
    echo, get = "echo tls c=16 d=1", "kv tls get c=16 P=1"
    ask.show(ask.text(echo, "limit", "kinsn"), f"redis GET {ask.text(get, 'redis', 'kinsn')}",
             f"echo {ask.text(echo, 'aeconn', 'kinsn')}, GET {ask.text(get, 'aeconn', 'kinsn')}")
    ask.ratio("echo to limit", (echo, "aeconn", "kinsn"), (echo, "limit", "kinsn"), 1.04)
    ask.ratio("GET to redis", (get, "aeconn", "kinsn"), (get, "redis", "kinsn"), 0.92)


@target("X2", "reads of the socket for a TLS request", "I", "1", rows=("system-calls",))
def _(ask):
    row = "system calls tls c=16"
    ask.show(ask.text(row, "limit", "reads"), f"redis {ask.text(row, 'redis', 'reads')}",
             f"kv {ask.text(row, 'aeconn kv', 'reads')}")
    ask.value("reads", row, "aeconn kv", "reads", 1.005)


@target("X3", "TLS 1.3 handshake, P-256; server's CPU, us", "H", "<= 1.05 x limit, <= 0.85 x redis",
        rows=("tls-handshake",))
def _(ask):
    row = "tls new connections"
    ask.show(f"{ask.text(row, 'limit', 'cpu_us')}, without tickets {ask.text(row, 'limit, no tickets', 'cpu_us')}",
             f"redis {ask.text(row, 'redis', 'cpu_us')}",
             f"{ask.text(row, 'aeconn', 'cpu_us')}, without tickets {ask.text(row, 'aeconn, no tickets', 'cpu_us')}")
    ask.ratio("to limit, no tickets", (row, "aeconn, no tickets", "cpu_us"), (row, "limit, no tickets", "cpu_us"), 1.05)
    ask.ratio("to limit, 1 ticket to 2", (row, "aeconn", "cpu_us"), (row, "limit", "cpu_us"))
    ask.ratio("to redis", (row, "aeconn", "cpu_us"), (row, "redis", "cpu_us"), 0.85)


# ---- TCP, Unix ----------------------------------------------------------------------------------
@target("P1", "TCP echo, c=16; server's thousand instructions", "I", "<= 1.02 x limit", rows=("tcp-echo",))
def _(ask):
    row = "echo tcp c=16 d=1"
    ask.show(ask.text(row, "limit", "kinsn"), None, ask.text(row, "aeconn", "kinsn"))
    ask.ratio("to limit", (row, "aeconn", "kinsn"), (row, "limit", "kinsn"), 1.02)


@target("O1", "TCP echo by coroutines, c=16; server's thousand instructions", "I",
        "<= 1.02 x the same by handlers", rows=("co-echo",))
def _(ask):
    row = "co echo tcp c=16 d=1"
    ask.show(None, f"handlers {ask.text(row, 'handlers', 'kinsn')}", ask.text(row, "coroutines", "kinsn"))
    ask.ratio("to handlers", (row, "coroutines", "kinsn"), (row, "handlers", "kinsn"), 1.02)
    deep = "co echo tcp c=16 d=16"
    ask.ratio("16 under way", (deep, "coroutines", "kinsn"), (deep, "handlers", "kinsn"))


@target("O2", "coroutine echo to callback echo, TCP, c=50; server's CPU, us", "H", "<= 1.02", rows=("co-echo",))
def _(ask):
    row = "co echo tcp c=50 d={}"
    ask.show(None, f"handlers {ask.texts((row.format(1), row.format(16)), 'handlers', 'cpu_us')}",
             ask.texts((row.format(1), row.format(16)), "coroutines", "cpu_us"))
    for depth, text in ((1, "coroutine echo to callback echo"), (16, "16 under way")):
        ask.ratio(text, (row.format(depth), "coroutines", "cpu_us"), (row.format(depth), "handlers", "cpu_us"),
                  1.02 if depth == 1 else None)


def command_row(ask, transport, depth, bound, peers):
    row, echo = f"kv {transport} get c=16 P={depth}", f"echo {transport} c=16 d={depth}"
    ask.show(f"echo {ask.text(echo, 'limit', 'kinsn')}",
             ", ".join(f"{who} {ask.text(row, who, 'kinsn')}" for who, _ in peers), ask.text(row, "aeconn", "kinsn"))
    ask.value("thousand instructions", row, "aeconn", "kinsn", bound)
    for who, most in peers:
        ask.ratio(f"to {who}", (row, "aeconn", "kinsn"), (row, who, "kinsn"), most)
    ask.ratio("echo to limit", (echo, "aeconn", "kinsn"), (echo, "limit", "kinsn"))


@target("P2", "TCP kv GET, c=16 P=1; server's thousand instructions", "I", "<= 17.0, <= 0.88 x redis, <= 0.96 x memcached",
        rows=("tcp-kv",))
def _(ask):
    command_row(ask, "tcp", 1, 17.0, (("redis", 0.88), ("memcached", 0.96)))


@target("P3", "TCP kv GET, c=16 P=16; server's thousand instructions", "I", "<= 2.8, <= 0.61 x redis", rows=("tcp-kv",))
def _(ask):
    command_row(ask, "tcp", 16, 2.8, (("redis", 0.61), ("valkey", None)))


@target("P4", "Unix kv GET, c=16 P=1; server's thousand instructions", "I", "<= 10", rows=("unix-kv",))
def _(ask):
    command_row(ask, "unix", 1, 10.0, (("redis", None),))


# ---- Python -------------------------------------------------------------------------------------
@target("Y1", "asyncio streams over TCP: rate to asyncio's own, 64 B and 64 KiB, c=1 and c=50", "H",
        "64 B >= 0.9, 64 KiB >= 1.0", judged=False, rows=("python-streams",))
def _(ask):
    rows = {f"{size} c={c}": bound for size, bound in (("64 B", 0.9), ("64 KiB", 1.0)) for c in (1, 50)}
    names = [f"python streams tcp {row}" for row in rows]
    ask.show(None, f"asyncio {ask.texts(names, 'asyncio', 'rps')}; uvloop {ask.texts(names, 'uvloop', 'rps')}",
             ask.texts(names, "aeconn", "rps"))
    for name, (row, bound) in zip(names, rows.items()):
        ask.ratio(row, (name, "aeconn", "rps"), (name, "asyncio", "rps"), bound, at_least=True)
        ask.ratio(f"{row}, CPU", (name, "aeconn", "cpu_us"), (name, "asyncio", "cpu_us"))


# ---- the loop -----------------------------------------------------------------------------------
def loop_rows(ask, bounds):
    """{row: bound}: both aeconn loops compared with bare libev; the bound applies to both."""
    for row, bound in bounds.items():
        for who in ("aeconn", "EpollLoop"):
            ask.ratio(f"{row}, {'LibevLoop' if who == 'aeconn' else who}", (f"loop: {row}", who, "ns"),
                      (f"loop: {row}", "libev", "ns"), bound)


def loop_texts(ask, rows, who):
    return ask.texts([f"loop: {row}" for row in rows], who, "ns")


@target("E1", "100,000 timers: add by a known time, cancel, fire; ns", "H", "<= 2 x libev each", rows=("loop",))
def _(ask):
    rows = [f"100,000 timers: {what}" for what in ("add one, by a known time", "cancel one", "fire one, all are due")]
    ask.show(None, f"libev {loop_texts(ask, rows, 'libev')}",
             f"{loop_texts(ask, rows, 'aeconn')}, EpollLoop {loop_texts(ask, rows, 'EpollLoop')}")
    loop_rows(ask, dict.fromkeys(rows, 2.0))


@target("E2", "one ready file; write interest on and off; ns", "H", "<= 1.02 and 1.1 x libev", rows=("loop",))
def _(ask):
    bounds = {"1 ready file": 1.02, "write interest on and off": 1.1}
    ask.show(f"epoll {loop_texts(ask, bounds, 'epoll')}", f"libev {loop_texts(ask, bounds, 'libev')}",
             f"{loop_texts(ask, bounds, 'aeconn')}, EpollLoop {loop_texts(ask, bounds, 'EpollLoop')}")
    loop_rows(ask, bounds)


# ---- more loops, robustness ---------------------------------------------------------------------
@target("K1", "two processes of one loop on two cores to one: requests/s, CPU of a request", "H", ">= 1.90, <= 1.03", judged=False,
        rows=("two-loops",))
def _(ask):
    one, two = "echo tcp c=16, one pair", "echo tcp c=16, two pairs"
    ask.show("2.00, 1.00", None, f"{ask.text(two, 'aeconn', 'rps')} to {ask.text(one, 'aeconn', 'rps')}")
    ask.ratio("requests/s", (two, "aeconn", "rps"), (one, "aeconn", "rps"), 1.90, at_least=True)
    ask.ratio("CPU", (two, "aeconn", "cpu_us"), (one, "aeconn", "cpu_us"), 1.03)


@target("R1", "receiver-not-ready NAKs of the device during all rows, of both clocks", "I", "0")
def _(ask):
    # Counts since the device was created; the burst, which belongs to R2, comes after "device".
    records = [r for clock in ("I", "M") for r in ask.sources.figures(clock).records
               if r["row"] == "receiver not ready" and r["who"] == "device"]
    if not records:
        ask.value("NAKs", "receiver not ready", "device", "rcvd_rnr_err", 0)
        return
    total = sum(v for r in records for k, v in r.items() if "rnr" in k and isinstance(v, (int, float)))
    ask.show("0", None, number(total))
    ask.result.conditions.append(Condition("NAKs", 0, total))


@target("R2", "10,000 one-byte writes while the loop sleeps 50 ms: worst silence; ms", "I",
        "<= 20 beyond the sleep, the connection survives", rows=("burst",))
def _(ask):
    row = "burst rdma"
    ask.show(None, None, f"{ask.text(row, 'aeconn', 'worst_silence_us', 1e-3)}, "
                         f"gap between replies {ask.text(row, 'aeconn', 'worst_gap_us', 1e-3)}, "
                         f"errors {ask.text(row, 'aeconn', 'errors')}")
    ask.value("worst silence with the sleep in it, ms", row, "aeconn", "worst_silence_us", 70, scale=1e-3)
    ask.value("errors", row, "aeconn", "errors", 0)
