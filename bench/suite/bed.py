# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the suites: rows, servers that are started on demand, turns, loads."""

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import machine
from .figures import Figures
from .processes import BUILD, Failure, Server, run


def free_ports(count):
    """Currently unused ports of the loopback interface."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def answers(port, address="127.0.0.1"):
    def asks():
        try:
            socket.create_connection((address, port), 0.2).close()
            return True
        except OSError:
            return False
    return asks


class Rows(dict):
    """A suite's rows by name; each row is named after its function."""

    def __call__(self, function):
        self[function.__name__.replace("_", "-")] = function
        return function


class Bed:
    """The environment of a suite; rows are functions that take one."""

    time_limit = None  # in seconds; afterwards each figure is measured only once

    def __init__(self, figures, rounds, quick):
        self.figures, self.rounds, self.quick = figures, rounds, quick
        self._temporary = tempfile.TemporaryDirectory(prefix="aeconn-bench-")
        self.folder = Path(self._temporary.name)
        self._running, self._certificate = {}, None
        self._begun = time.monotonic()

    # --- servers -----------------------------------------------------------------------------------
    def keep(self, name, start):
        """The server of this name; starts it with `start` if it is not running."""
        server = self._running.get(name)
        if server and not server.alive():
            self.stop(name)
            server = None
        if not server:
            server = self._running[name] = start()
        return server

    def stop(self, name):
        server = self._running.pop(name, None)
        if server:
            server.stop()

    def stop_all(self):
        for name in list(self._running):
            self.stop(name)

    def close(self):
        self.stop_all()
        self._temporary.cleanup()

    def certificate(self, *addresses):
        """The folder with cert.pem and key.pem: P-256, valid for these addresses."""
        if not self._certificate:
            names = ",".join(["DNS:localhost", "IP:127.0.0.1", *(f"IP:{a}" for a in addresses)])
            run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}", "-keyout", self.folder / "key.pem",
                 "-out", self.folder / "cert.pem"])
            self._certificate = self.folder
        return self._certificate

    # --- turns ---------------------------------------------------------------------------------------
    def turns(self, row, measures):
        """measures: [(who, function without arguments that returns metrics)]. Each is run once per
        round, and the order rotates from round to round."""
        failed = {}
        for round_ in range(self.rounds):
            if round_ and self.time_limit and time.monotonic() - self._begun > self.time_limit:
                break
            order = measures if round_ % 2 == 0 else list(reversed(measures))
            for who, measure in order:
                if who in failed:
                    continue
                try:
                    self.figures.add(row, who, round_, **measure())
                except Failure as failure:
                    failed[who] = str(failure)
                    self.missing(f"{row} {who}", failure)
        for who in [w for w, _ in measures if w not in failed]:
            self.show(row, who)

    def missing(self, what, why):
        self.figures.add("missing", what, 0, why=str(why))
        print(f"{what}: not measured: {why}", flush=True)

    def show(self, row, who):
        metrics = dict.fromkeys(k for r in self.figures.records if r["row"] == row and r["who"] == who
                                for k in r if k not in ("row", "who", "round"))
        parts = [f"{m} {s[0]:.2f} ({s[1]:.2f}-{s[2]:.2f})" for m in metrics
                 if (s := self.figures.spread(row, who, m))]
        print(f"{row:34} {who:16} {'  '.join(parts)}", flush=True)

    # --- loads ---------------------------------------------------------------------------------------
    @staticmethod
    def costs(server, requests, load):
        """The metrics that load() returns, plus the server's processor time per request."""
        before = server.cpu_ns()
        metrics = load()
        requests = metrics.pop("requests", None) or requests
        return {**metrics, "cpu_us": (server.cpu_ns() - before) / requests / 1000}

    @staticmethod
    def conn_perf(url, *options, core=1, timeout=120):
        """The results of one run of conn-perf as a list."""
        text = run([BUILD / "conn-perf", "client", url, *options, "--json", "-"], core=core, timeout=timeout)
        return json.loads(text)["results"]

    def echo(self, server, url, connections, depth, requests, size=64, core=1, *options):
        """Request and echo by conn-perf: rate, latency, server's cost."""
        def load():
            result = self.conn_perf(url, "--echo", "--connections", connections, "--depths", depth, "--sizes", size,
                                    "--requests", requests, "--warmup", 0, *options, core=core)[0]
            return {"requests": result["requests"], "rps": result["requests_per_s"],
                    "p50_us": result["latency_us"]["p50"], "p99_us": result["latency_us"]["p99"],
                    "client_cpu_us": result["cpu_s_per_million"]["client"]}
        return lambda: self.costs(server(), requests, load)

    def requests(self, server, url, connections, depth, requests, *options):
        """The same with request-load."""
        def load():
            result = json.loads(run([BUILD / "bench/request-load", url, "-c", connections, "-d", depth, "-n", requests,
                                     *options]))
            latency = result.get("latency_us") or {}
            return {"rps": result["requests_per_s"], "p50_us": latency.get("p50"), "p99_us": latency.get("p99")}
        return lambda: self.costs(server(), requests, load)

    def benchmark(self, server, program, target, connections, depth, requests, command, size, timeout=120):
        """The same with redis-benchmark or valkey-benchmark."""
        def load():
            text = run([program, *target, "-t", command, "-c", connections, "-P", depth, "-d", size, "-n", requests,
                        "--csv"], timeout=timeout)
            lines = [line.replace('"', "").split(",") for line in text.splitlines() if line.startswith('"')]
            cells = dict(zip(lines[0], lines[1]))
            return {"rps": float(cells["rps"]), "p50_us": float(cells["p50_latency_ms"]) * 1000,
                    "p99_us": float(cells["p99_latency_ms"]) * 1000}
        return lambda: self.costs(server(), requests, load)


def idle_client(url, count, core=1):
    """A conn-perf that keeps `count` connections open; returns once all are established."""
    return Server([BUILD / "conn-perf", "client", url, "--mode", "idle", "--echo", "--connections", count, "--hold", "900"],
                  rf"^ *{count} ", core=core)


def main(suite, rows, make, out, rounds, quick, only, at_end=None):
    """Measures the rows of a suite; a failing row does not prevent the others."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unknown = [name for name in only or () if name not in rows]
    if unknown:
        sys.exit(f"bench/run: {suite} has no row {', '.join(unknown)}; there are {', '.join(rows)}")
    figures = Figures(out)
    figures.add("header", "machine", 0, **machine.describe(suite, rounds))
    bed = make(figures, rounds, quick)
    begun = time.monotonic()
    try:
        for name, function in rows.items():
            if only and name not in only:
                continue
            started = time.monotonic()
            try:
                function(bed)
            except (Failure, subprocess.SubprocessError, OSError, ValueError, KeyError, IndexError) as failure:
                why = str(failure) if isinstance(failure, (Failure, OSError)) else repr(failure)
                bed.missing(name, why)
                bed.stop_all()
            print(f"-- {name}: {time.monotonic() - started:.0f} s", flush=True)
    finally:
        bed.close()
    if at_end:
        at_end(figures)
    print(f"-- {suite}: {time.monotonic() - begun:.0f} s", flush=True)
