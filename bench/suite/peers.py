# SPDX-License-Identifier: BSD-3-Clause
"""The same server on this library, asio, libuv and libevent (bench/peers): `make bench-peers`.

request-load drives all of them. Its two suites are `peers`, rates and the server's processor time
by the clock, whose rounds interleave the servers, and `peers-counted`, system calls and, under
callgrind, instructions of user space for a request.
"""

import json
import os

from . import bed
from .callgrind import CountedServer
from .figures import by_row, number
from .processes import BUILD, Failure, Server, SystemCalls, run

timed, counted = bed.Rows(), bed.Rows()

SIZES = (64, 1024, 16384, 65536)
SHAPES = ((1, 1), (16, 1), (64, 1), (1, 16), (16, 16), (64, 16))  # connections, requests under way on each
QUICK = ((16, 1),)
# Instructions for a request hardly depend on the number of connections.
COUNTED = ((16, 1), (16, 16))
COUNTED_SIZES = (64, 16384, 65536)
WORK = 1000  # rounds of the work of an RPC request: one to two microseconds
SECONDS = float(os.environ.get("AECONN_PEERS_SECONDS", "0.4"))  # of one measurement
READY = r"^listening on"
# Handshakes take long under callgrind.
PATIENT = "connect-timeout=10m&handshake-timeout=10m"
WHO = {"aeconn": ("aeconn", "libev"), "aeconn, EpollLoop": ("aeconn", "epoll"),
       "asio": ("asio", ""), "libuv": ("libuv", ""), "libevent": ("libevent", "")}
OTHERS = ("asio", "libuv", "libevent")


def size_text(size):
    return f"{size} B" if size < 1024 else f"{size >> 10} KiB"


class Peers(bed.Bed):
    time_limit = float(os.environ.get("AECONN_PEERS_LIMIT", "3000"))

    def __init__(self, figures, rounds, quick):
        super().__init__(figures, rounds, quick)
        self.certificate()
        self.who = {}
        for who, (program, loop) in WHO.items():
            path = BUILD / f"bench/{program}-server"
            if path.exists():
                self.who[who] = (path, loop)
            else:
                self.missing(who, f"{path} was not built")
        self.ports = dict(zip(self.who, bed.free_ports(len(self.who))))

    def argv(self, who, transport, protocol):
        program, _ = self.who[who]
        tls = ["--cert", self.folder / "cert.pem", "--key", self.folder / "key.pem"] if transport == "tls" else []
        frames = ["--frames", "--work", WORK] if protocol == "frames" else []
        return [program, f"{transport}://127.0.0.1:{self.ports[who]}", *tls, *frames]

    def load(self, who, transport, protocol, shape, size, *how_long):
        connections, depth = shape
        url = f"{transport}://127.0.0.1:{self.ports[who]}"
        if transport == "tls":
            url += f"?ca={self.folder}/cert.pem&{PATIENT}"
        text = run([BUILD / "bench/request-load", url, "-c", connections, "-d", depth, "--protocol", protocol,
                    "--value-size", size, "--command", "value", *how_long], timeout=600)
        return json.loads(text)

    def start(self, who, transport, protocol):
        _, loop = self.who[who]
        return Server(self.argv(who, transport, protocol), READY, env={"AECONN_LOOP": loop} if loop else None)

    # --- by the clock ------------------------------------------------------------------------------
    def rates(self, transport, protocol, name):
        for who in self.who:
            self.keep(who, lambda who=who: self.start(who, transport, protocol))
        for size in SIZES:
            for shape in QUICK if self.quick else SHAPES:
                def measure(who, size=size, shape=shape):
                    def one():
                        server = self.keep(who, lambda: self.start(who, transport, protocol))
                        before = server.cpu_ns()
                        result = self.load(who, transport, protocol, shape, size, "--seconds", SECONDS)
                        if result["requests"] == 0:
                            raise Failure("no request was answered in time; AECONN_PEERS_SECONDS is longer")
                        cpu = (server.cpu_ns() - before) / result["requests"] / 1000
                        return {"rps": result["requests_per_s"], "cpu_us": cpu}
                    return one
                self.turns(f"{transport} {name} {size_text(size)} {shape[0]}x{shape[1]}",
                           [(who, measure(who)) for who in self.who])
        self.stop_all()

    # --- counted -----------------------------------------------------------------------------------
    def counts(self, transport, protocol, name):
        for who in self.who:
            for size in COUNTED_SIZES:
                for shape in QUICK if self.quick else COUNTED:
                    row = f"{transport} {name} {size_text(size)} {shape[0]}x{shape[1]}"
                    number = 400 if size > 16384 else 1000
                    try:
                        self.figures.add(row, who, 0, **self.instructions(who, transport, protocol, shape, size, number))
                    except Failure as failure:
                        self.missing(f"{row} {who}", failure)
                        self.stop(who)
            self.stop(who)
            if SystemCalls.available():
                for size in COUNTED_SIZES:
                    for shape in QUICK if self.quick else COUNTED:
                        row = f"{transport} {name} {size_text(size)} {shape[0]}x{shape[1]}"
                        try:
                            self.figures.add(row, who, 0, **self.calls(who, transport, protocol, shape, size, 3000))
                        except Failure as failure:
                            self.missing(f"{row} {who}", failure)
                self.stop(who)
            for row in self.figures.rows():
                if who in self.figures.whos(row) and row.startswith(f"{transport} {name} "):
                    self.show(row, who)

    def instructions(self, who, transport, protocol, shape, size, number):
        """Of user space, for a request: a long load less a short one."""
        _, loop = self.who[who]
        argv = self.argv(who, transport, protocol)

        def start():
            server = CountedServer(argv, READY, caches=(), env={"AECONN_LOOP": loop} if loop else None)
            self.load(who, transport, protocol, shape, size, "-n", number)  # warms it
            server.take()
            return server

        server, profiles = self.keep(who, start), []
        for requests in (number // 2, number + number // 2):
            self.load(who, transport, protocol, shape, size, "-n", requests)
            profiles.append(server.take())
        return {"instructions": profiles[1].each(profiles[0], number).events["Ir"]}

    def calls(self, who, transport, protocol, shape, size, number):
        """System calls for a request, without those of set-up."""
        server = self.keep(who, lambda: self.start(who, transport, protocol))
        counter, totals = SystemCalls(server.pid), []
        try:
            for requests in (number // 2, number + number // 2):
                before = counter.read()["*"]
                self.load(who, transport, protocol, shape, size, "-n", requests)
                totals.append(counter.read()["*"] - before)
        finally:
            counter.close()
        return {"calls": (totals[1] - totals[0]) / number}


def row(transport, protocol, name):
    function = lambda peers: peers.rates(transport, protocol, name)  # noqa: E731
    timed[f"{transport}-{name}"] = function
    counted[f"{transport}-{name}"] = lambda peers: peers.counts(transport, protocol, name)


for transport_ in ("tcp", "tls"):
    row(transport_, "echo", "echo")
    row(transport_, "frames", "rpc")


# ---- the tables -----------------------------------------------------------------------------------
METRICS = {"rps": "requests a second", "cpu_us": "server CPU for a request, us",
           "instructions": "instructions of user space", "calls": "system calls"}


def tables(figures):
    """Medians of each metric; and for what the clock measures, this library's to the best of the others."""
    for metric, text in METRICS.items():
        rows = by_row(figures, metric)
        if not rows:
            continue
        whos = [who for who in WHO if any(who in cells for cells in rows.values())]
        print(f"\n| {text} | {' | '.join(whos)} |\n|{'---|' * (len(whos) + 1)}")
        for name, cells in rows.items():
            print(f"| {name} | " + " | ".join(number(cells.get(who)) for who in whos) + " |")
    for metric in ("rps", "cpu_us"):
        for who in WHO:
            if who not in OTHERS:
                ratios(figures, metric, who)


def ratios(figures, metric, who):
    """A line for each size; the best of the others is the best of each shape."""
    lines = {}
    for row in by_row(figures, metric):
        name, shape = row.rsplit(" ", 1)
        others = [(figures.ratio(row, who, other, metric), other) for other in OTHERS]
        others = [(ratio, other) for ratio, other in others if ratio]
        if others:
            worst = (min if metric == "rps" else max)(others)
            lines.setdefault(name, {})[shape] = f"{worst[0][0]:.2f}"
    if lines:
        shapes = list(dict.fromkeys(shape for cells in lines.values() for shape in cells))
        print(f"\n| {METRICS[metric]}: {who} to the best other | {' | '.join(shapes)} |\n|{'---|' * (len(shapes) + 1)}")
        for name, cells in lines.items():
            print(f"| {name} | " + " | ".join(cells.get(shape, "-") for shape in shapes) + " |")


def main(suite, out, rounds, quick, only):
    bed.main(suite, timed if suite == "peers" else counted, Peers, out, rounds, quick, only, at_end=tables)
