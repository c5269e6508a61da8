# SPDX-License-Identifier: BSD-3-Clause
"""Figures of several loops on this machine: `bench/run loops`.

Compares a server on two loops with the same server on one, in two ways. Nothing is bound to a
processor.

Unlimited: the same load, with as many loops and connections, for the same time. Server and load
share all processors. Each row shows the load's share and how many processors are busy: if all are
already busy with one loop, a second cannot give more, however well it works.

With shares: each loop may use a quarter of a processor, with one loop or with two, and each has the
same number of connections. The loops are then the bottleneck, the load has processor time to spare,
and whatever two loops lose compared with twice one loop is the cost of sharing.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from . import bed
from .figures import ratio_text
from .host import Host
from .processes import BUILD, Failure, Server, cores, run
from .shares import SharedServer

row = bed.Rows()

MANY = 2  # loops of the server that is compared with one loop, and of the load
SHAPES = ((16, 1), (16, 16))  # connections, requests in flight per connection
PART = 0.25  # of a processor, per loop of a server with shares


def valkey_server():
    """The server below VALKEY=, or else the distribution's, unpacked as in the module tests."""
    if os.environ.get("VALKEY"):
        return [Path(os.environ["VALKEY"]) / "src/valkey-server"]
    unpacked = subprocess.run(["tools/foreign", "sid", "valkey-server", "valkey-tools"], capture_output=True, text=True)
    if unpacked.returncode != 0:
        raise Failure(unpacked.stderr.strip())
    return ["tools/foreign", "--run", unpacked.stdout.strip(), "valkey-server"]


class Loops(Host):
    def echo_on(self, count, transport, part):
        """conn-perf's echo server on `count` loops; every TLS handshake is a full one."""
        name = f"loops{count}" + ("shares" if part else "")
        option, url = self.served(name, transport)
        url += "&resumption=no" if transport == "tls" else ""
        argv = [BUILD / "conn-perf", "server", "--echo", "--loops", count, option, url]
        ready = r"listening on"
        start = (lambda: SharedServer(argv, ready, part, core=None)) if part else (lambda: Server(argv, ready, core=None))
        return self.keep(f"{name} {transport}", start), self.ca(self.url(name, transport))

    def turn(self, count, transport, connections, *options, part=None):
        """One measurement: rate, latency, and the cost of both sides."""
        server, url = self.echo_on(count, transport, part)
        before = server.cpu_ns()
        result = self.conn_perf(url, "--echo", "--loops", MANY, "--warmup", 0, "--seconds", 0.3 if self.quick else 2,
                                "--connections", connections * count if part else connections, *options, core=None)[0]
        requests, rate = result["requests"], result["requests_per_s"]
        served = (server.cpu_ns() - before) / requests / 1000
        loaded = result["cpu_s_per_million"]["client"]
        said = {"rps": rate, "p50_us": result["latency_us"]["p50"], "p99_us": result["latency_us"]["p99"],
                "cpu_us": served, "client_cpu_us": loaded, "load_percent": 100 * loaded / (served + loaded),
                "busy": (served + loaded) * rate / 1e6}
        return {**said, "share_percent": served * rate / 1e4 / (count * part)} if part else said

    def compare(self, name, transport, connections, *options):
        """Both ways: unlimited, and with shares."""
        if len(cores()) < 2:
            raise Failure("this machine has one core to use")
        whos = {"2 loops": MANY, "1 loop": 1}
        for row_, part in ((name, None), (f"{name} shares", PART)):
            self.turns(row_, [(who, lambda count=count, part=part: self.turn(count, transport, connections, *options,
                                                                            part=part))
                              for who, count in whos.items()])
            ratios = [f"{what} {ratio_text(self.figures.ratio(row_, *whos, metric))}"
                      for what, metric in (("rate", "rps"), ("server's CPU", "cpu_us"))]
            print(f"{row_:34} 2 loops to 1: {'  '.join(ratios)}", flush=True)

    # --- servers of keys and values ----------------------------------------------------------------
    def kv_servers(self):
        """{who: (server, port, protocol)}, each with two serving threads."""
        def start(who, argv, ready):
            return self.keep(f"{who} x2", lambda: Server(argv, ready, core=None))

        def like_redis(who, program):
            port = self.port(f"{who} x2")
            return start(who, [*program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                               "--dir", self.folder, "--io-threads", MANY, "--io-threads-do-reads", "yes"],
                         r"eady to accept"), port, "resp"

        port = self.port("aeconn x2")
        found = {"aeconn": (start("aeconn", [BUILD / "kv-server", "--loops", MANY, "--listen", f"tcp://127.0.0.1:{port}"],
                                  r"listening on"), port, "resp")}
        for who, program in (("redis", lambda: ["redis-server"]), ("valkey", valkey_server)):
            try:
                found[who] = like_redis(who, program())
            except (Failure, FileNotFoundError) as why:
                self.missing(f"loops kv {who}", why if isinstance(why, Failure) else f"{who}-server is not there")
        try:
            port = self.port("memcached x2")
            found["memcached"] = (start("memcached", ["memcached", "-l", "127.0.0.1", "-p", port, "-U", 0, "-t", MANY,
                                                      "-u", "root"], bed.answers(port)), port, "memcached")
        except (Failure, FileNotFoundError) as why:
            self.missing("loops kv memcached", why)
        return found

    def ask(self, server, port, protocol, depth):
        """Two simultaneous loads, GET of a 64-byte value."""
        url, key = f"tcp://127.0.0.1:{port}", "key"
        load = [BUILD / "bench/request-load", url, "--protocol", protocol]
        prepare = f"set {key} value" if protocol == "memcached" else f"SET {key} value"
        command = f"get {key}" if protocol == "memcached" else f"GET {key}"
        run([*load, "-n", 1, "--command", prepare, "--value-size", 64], core=None)
        argv = [str(a) for a in (*load, "--connections", 8, "--depth", depth, "--command", command, "--seconds",
                                 0.3 if self.quick else 2)]
        before, begun = server.cpu_ns(), time.monotonic()
        loads = [subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
                 for _ in range(MANY)]
        said = [each.communicate(timeout=60)[0] for each in loads]
        if any(each.returncode != 0 for each in loads):
            raise Failure("request-load failed")
        spent, elapsed = server.cpu_ns() - before, time.monotonic() - begun
        results = [json.loads(each) for each in said]
        requests = sum(r["requests"] for r in results)
        loaded = sum(r["client_cpu_s"] for r in results) * 1e9
        return {"rps": sum(r["requests_per_s"] for r in results), "p99_us": max(r["latency_us"]["p99"] for r in results),
                "cpu_us": spent / requests / 1000, "client_cpu_us": loaded / requests / 1000,
                "load_percent": 100 * loaded / (spent + loaded), "busy": (spent + loaded) / elapsed / 1e9}


def echoes(loops, transport):
    for connections, depth in SHAPES:
        loops.compare(f"loops {transport} c={connections} d={depth}", transport, connections, "--depths", depth)


@row
def tcp_echo(loops):
    echoes(loops, "tcp")


@row
def unix_echo(loops):
    echoes(loops, "unix")


@row
def tls_echo(loops):
    echoes(loops, "tls")


@row
def tls_handshake(loops):
    """Full handshakes, TLS 1.3 and P-256; one request per connection."""
    loops.compare("loops tls new connections", "tls", 16, "--mode", "connect")


@row
def kv(loops):
    """kv-server on two loops compared with other servers with two threads."""
    servers = loops.kv_servers()
    for depth in (1, 16):
        name = f"loops kv GET c=16 d={depth}"
        loops.turns(name, [(who, lambda at=at: loops.ask(*at, depth)) for who, at in servers.items()])
        for who in servers:
            if who != "aeconn":
                print(f"{name:34} aeconn to {who}: rate {ratio_text(loops.figures.ratio(name, 'aeconn', who, 'rps'))}  "
                      f"server's CPU {ratio_text(loops.figures.ratio(name, 'aeconn', who, 'cpu_us'))}", flush=True)


def main(out, rounds=3, quick=False, only=None):
    bed.main("loops", row, Loops, out, rounds, quick, only)
