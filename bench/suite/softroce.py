# SPDX-License-Identifier: BSD-3-Clause
"""Figures with an RDMA device, in real time: `make bench` runs this inside the microVM.

The microVM has two processors: servers run on one, load on the other. Emulated, it is many times
slower than the host, and a figure is meaningful only compared with others of the same row. Only
this suite can measure busy polling: the instruction-counting suite has a single processor.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from . import bed
from .processes import BUILD, Failure, Server, run, status_kib

row = bed.Rows()

SIZES = {1024: "1 KiB", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
TIME_LIMIT = 420  # in seconds; afterwards each row has one round


def listens(port):
    """Whether a process listens, as reported by the kernel: perftest takes any connection for its
    peer."""
    entry = re.compile(rf"^\s*\d+: \w+:{port:04X} \w+:0000 0A ", re.M)
    return lambda: any(entry.search(Path(f"/proc/net/{name}").read_text()) for name in ("tcp", "tcp6"))


def queue_pairs(pid):
    return len(re.findall(rf"\bpid {pid}\b", run(["rdma", "resource", "show", "qp"], core=None)))


class Guest(bed.Bed):
    time_limit = TIME_LIMIT

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.address = os.environ["AECONN_RDMA_ADDRESS"]
        self.valkey_folder = os.environ.get("VALKEY")

    # --- the device ----------------------------------------------------------------------------------
    def device(self):
        """perftest's options for the guest's address: device and GID."""
        wanted = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, self.address.split(".")))
        for gid in sorted(Path("/sys/class/infiniband").glob("*/ports/1/gids/*"), key=lambda f: int(f.name)):
            try:
                if gid.read_text().strip() == wanted:
                    return ["-d", gid.parts[4], "-x", gid.name]
            except OSError:
                pass  # empty entry
        raise Failure(f"no RDMA device has the address {self.address}")

    # --- servers -----------------------------------------------------------------------------------
    def kv(self):
        def start():
            server = Server([BUILD / "kv-server", "--listen", "tcp://127.0.0.1:7000", "--listen",
                             f"rdma://{self.address}:7000"], r"listening on rdma")
            self.fill(7000)
            return server
        return self.keep("kv", start)

    def valkey(self):
        def start():
            server = Server([f"{self.valkey_folder}/valkey-server", "--port", 7200, "--save", "", "--appendonly", "no",
                             "--bind", "127.0.0.1", "--protected-mode", "no", "--dir", self.folder, "--rdma-port", 7200,
                             "--rdma-bind", self.address], r"eady to accept")
            self.fill(7200)
            return server
        return self.keep("valkey", start)

    @staticmethod
    def fill(port):
        """Sets the keys that the reads of request-load and valkey-benchmark request."""
        for key in ("key", "key:__rand_int__"):
            run([BUILD / "bench/request-load", f"tcp://127.0.0.1:{port}", "-n", 1, "--command", f"SET {key} value",
                 "--value-size", 64])

    def perf(self, spin=""):
        """conn-perf's echo server; with `spin` one that polls that long before it sleeps."""
        port = {"": 7500, "100us": 7510, "20us": 7520}[spin]
        query = f"?spin={spin}" if spin else ""
        return self.keep(f"perf {spin}", lambda: Server(
            [BUILD / "conn-perf", "server", "--echo", "--listen", f"tcp://127.0.0.1:{port}",
             "--listen", f"rdma://{self.address}:{port}{query}"], r"listening on rdma"))

    def free(self, server, client=""):
        """One request in flight. The scheduler places both ends, because `auto` never spins if only
        one processor may be used; when emulated, a sleep takes longer than the usual spin-max. The
        first second, in which `auto` finds out what pays off, is excluded, at the server too,
        because both speak conn-perf's own protocol."""
        port = {"": 7530, "100us": 7531, "auto": 7532}[server]
        seconds = 0.3 if self.quick else 1

        def load():
            self.keep(f"free {server}", lambda: Server(
                [BUILD / "conn-perf", "server", "--listen", self.rdma(port, server)], r"listening on rdma", core=None))
            result = self.conn_perf(self.rdma(port, client), "--no-verify", "--sizes", 64, "--reply-size", 64,
                                    "--warmup", seconds, "--seconds", seconds, core=None)[0]
            spun = (result.get("waiting") or {}).get("server") or {}
            return {"rps": result["requests_per_s"], "p50_us": result["latency_us"]["p50"],
                    "p99_us": result["latency_us"]["p99"], "cpu_us": result["cpu_s_per_million"]["server"],
                    "client_cpu_us": result["cpu_s_per_million"]["client"],
                    "spin_hits": spun.get("spin_hits"), "spin_misses": spun.get("spin_misses")}
        return load

    def sink(self):
        return self.keep("sink", lambda: Server(
            [BUILD / "conn-perf", "server", "--listen", "tcp://127.0.0.1:7600", "--listen",
             f"rdma://{self.address}:7600", "--listen", f"rdma://{self.address}:7601?in-place=yes"],
            rf"listening on rdma://{self.address}:7601"))

    def bare_tcp(self):
        return self.keep("epoll-echo", lambda: Server([BUILD / "bench/epoll-echo", "tcp://127.0.0.1:7400"],
                                                      r"listening on"))

    def bare(self, spin=False):
        port, options = (7403, ["--spin"]) if spin else (7402, [])
        return self.keep(f"verbs-echo {spin}", lambda: Server(
            [BUILD / "bench/verbs-echo", "server", *options, f"{self.address}:{port}"], r"listening on"))

    # --- loads ---------------------------------------------------------------------------------------
    def verbs(self, spin, connections, depth, requests):
        """Bare verbs at both ends."""
        def load():
            server = self.bare(spin)
            before = server.cpu_ns()
            result = json.loads(run([BUILD / "bench/verbs-echo", "client", *(["--spin"] if spin else []),
                                     f"{self.address}:{7403 if spin else 7402}", "--size", 64, "--connections", connections,
                                     "--depth", depth, "--requests", requests], timeout=90))
            rate = next(v for k, v in result.items() if k.endswith("_per_s"))
            # A spinning server also uses CPU while the client starts: compute its cost from the
            # rate.
            cpu = 1e6 / rate if spin else (server.cpu_ns() - before) / requests / 1000
            if spin:
                self.stop(f"verbs-echo {spin}")  # it would take the processor from the others
            return {"rps": rate, "p50_us": result["p50_us"], "p99_us": result["p99_us"], "cpu_us": cpu}
        return load

    def rdma(self, port, spin=""):
        longest = "&spin-max=1ms" if spin == "auto" else ""
        return f"rdma://{self.address}:{port}" + (f"?spin={spin}{longest}" if spin else "")

    def perftest(self, tool, parse, *options):
        """A figure that a perftest tool prints; the tool's server ends by itself."""
        def load():
            argv = [tool, *self.device(), "-F", *options]
            for _ in range(3):
                with Server(argv, listens(18515)):
                    text = run([*argv, self.address], timeout=60)
                value = parse(next((line.split() for line in reversed(text.splitlines())
                                    if re.match(r"^ *\d+ +\d+ ", line)), None))
                if value:  # occasionally it prints 0.00
                    return value
            raise Failure(f"{tool} printed no figure")
        return load

    def rstream(self, kind, parse, *options):
        """rsocket or sockets; both ends send and therefore need the same options."""
        def load():
            flags = ["-T", "s"] if kind == "tcp" else []
            for attempt in range(3):
                with Server(["rstream", *flags, "-b", self.address, "-p", 7471, *options], lambda: self._rstream_ready(kind)):
                    try:
                        text = run(["rstream", *flags, "-s", self.address, "-p", 7471, *options], timeout=30)
                    except Failure:
                        if attempt == 2:
                            raise
                        continue
                lines = [line.split() for line in text.splitlines() if line.startswith("custom")]
                if lines:
                    return parse(lines[-1])
            raise Failure("rstream printed no figure")
        return load

    @staticmethod
    def _rstream_ready(kind):
        if kind == "tcp":
            return listens(7471)()
        return bool(re.search(r"LISTEN.*:7471|:7471.*LISTEN", run(["rdma", "resource", "show", "cm_id"], core=None)))


# ---- latency ------------------------------------------------------------------------------------
@row
def latency(guest):
    """L1, L3, C3, C4: one request in flight; both ends spin, or neither, or only the server; set
    manually and by spin=auto."""
    requests = 500 if guest.quick else 2500
    # Without a spare processor, spinning is a hundred times slower: use as many requests as take
    # half a second.
    rate = guest.verbs(True, 1, 1, 200)()["rps"]
    spinning = int(min(max(rate / 2, 400), 20000))
    guest.turns("rdma echo 64 B c=1, spinning", [
        ("limit", guest.verbs(True, 1, 1, spinning)),
        ("aeconn", guest.echo(lambda: guest.perf("100us"), guest.rdma(7510, "100us"), 1, 1, spinning))])
    guest.stop("perf 100us")
    guest.turns("rdma echo 64 B c=1, event driven", [
        ("limit", guest.verbs(False, 1, 1, requests)),
        ("aeconn", guest.echo(guest.perf, guest.rdma(7500), 1, 1, requests))])
    guest.turns("rdma echo 64 B c=1, server spins 20 us", [
        ("aeconn", guest.echo(lambda: guest.perf("20us"), guest.rdma(7520), 1, 1, requests))])
    guest.turns("tcp echo 64 B c=1", [
        ("limit", guest.echo(guest.bare_tcp, "tcp://127.0.0.1:7400", 1, 1, requests)),
        ("aeconn", guest.echo(guest.perf, "tcp://127.0.0.1:7500", 1, 1, requests))])
    guest.stop("perf 20us")
    guest.turns("rdma echo 64 B c=1, both processors", [
        ("aeconn", guest.free("auto", "auto")), ("by hand", guest.free("100us", "100us")),
        ("sleeping", guest.free("")), ("auto, its client sleeps", guest.free("auto"))])
    for spin in ("", "100us", "auto"):
        guest.stop(f"free {spin}")


@row
def one_way(guest):
    """The latency reported by the raw tools, half a round trip."""
    count = 500 if guest.quick else 1000

    def typical(cells):
        return cells and {"latency_us": float(cells[4]), "p99_us": float(cells[7])}

    def per_transfer(cells):
        return {"latency_us": float(cells[-1])}
    guest.turns("one way, 64 B", [
        ("ib_write_lat", guest.perftest("ib_write_lat", typical, "-n", count, "-s", 64)),
        ("ib_send_lat", guest.perftest("ib_send_lat", typical, "-n", count, "-s", 64)),
        ("ib_send_lat -e", guest.perftest("ib_send_lat", typical, "-n", count, "-s", 64, "-e")),
        ("rsocket", guest.rstream("rsocket", per_transfer, "-S", 64, "-I", count, "-C", 1)),
        ("rstream, TCP", guest.rstream("tcp", per_transfer, "-S", 64, "-I", count, "-C", 1))])


@row
def depths(guest):
    """Latency against depth, one connection; requests/s of 16 connections."""
    shapes = {(1, 1): 1500, (1, 4): 4000, (1, 16): 12000, (1, 64): 24000, (16, 1): 6000, (16, 16): 40000}
    if guest.quick:
        shapes = {(1, 1): 500, (16, 16): 10000}
    for (connections, depth), requests in shapes.items():
        guest.turns(f"echo rdma c={connections} d={depth}", [
            ("limit", guest.verbs(False, connections, depth, requests)),
            ("aeconn", guest.echo(guest.perf, guest.rdma(7500), connections, depth, requests))])
        guest.turns(f"echo tcp c={connections} d={depth}", [
            ("limit", guest.echo(guest.bare_tcp, "tcp://127.0.0.1:7400", connections, depth, requests)),
            ("aeconn", guest.echo(guest.perf, "tcp://127.0.0.1:7500", connections, depth, requests))])


# ---- streams --------------------------------------------------------------------------------------
@row
def streams(guest):
    """T3."""
    def average(cells):  # perftest's MB is 2^20 bytes
        return cells and float(cells[3]) > 0 and {"mb_per_s": float(cells[3]) * 1.048576}

    def ours(url, size, *options):
        def load():
            guest.sink()
            result = guest.conn_perf(url, "--mode", "stream", "--no-verify", *options, "--sizes", size, "--seconds", "0.7", "--warmup", "0.1")[0]
            return {"mb_per_s": result["mb_per_s"],
                    "cpu_us": (result["cpu_s_per_million"]["server"] or 0) or None}
        return load

    counts = {1024: (3000, 3000), 4096: (2000, 2000), 65536: (300, 300), 1 << 20: (40, 20)}
    for size, name in SIZES.items():
        if guest.quick and size != 65536:
            continue
        writes, transfers = counts[size]

        def per_transfer(cells):  # its Gb/s have only two digits
            return {"mb_per_s": size / float(cells[-1])}
        guest.turns(f"stream {name}", [
            ("ib_write_bw", guest.perftest("ib_write_bw", average, "-n", writes, "-s", size, "-t", min(writes, 64))),
            ("rsocket", guest.rstream("rsocket", per_transfer, "-S", size, "-I", 1, "-C", transfers)),
            ("aeconn rdma", ours(guest.rdma(7600), size)),
            ("aeconn rdma, in place", ours(guest.rdma(7601), size, "--in-place")),
            ("rstream, TCP", guest.rstream("tcp", per_transfer, "-S", size, "-I", 1, "-C", transfers)),
            ("aeconn tcp", ours("tcp://127.0.0.1:7600", size))])
    guest.stop("sink")


# ---- key-value servers ------------------------------------------------------------------------------
@row
def values(guest):
    """kv-server with aeconn's own client; compared with Valkey if available."""
    shapes = {(1, 1): 1000} if guest.quick else {(1, 1): 2000, (16, 1): 5000, (16, 16): 30000}
    guest.kv()
    for (connections, depth), requests in shapes.items():
        for transport, url in (("rdma", guest.rdma(7000)), ("tcp", "tcp://127.0.0.1:7000")):
            whos = [("aeconn", guest.requests(guest.kv, url, connections, depth, requests, "--command", "GET key"))]
            if guest.valkey_folder:
                whos.append(("valkey", fresh(guest, guest.requests(
                    guest.valkey, url.replace(":7000", ":7200"), connections, depth, requests, "--command", "GET key"))))
            guest.turns(f"kv {transport} get c={connections} P={depth}", whos)


def fresh(guest, load):
    """valkey-server does not release the resources of closed RDMA connections, so each measurement
    starts a new one."""
    def once():
        guest.valkey()
        try:
            return load()
        finally:
            guest.stop("valkey")
    return once


@row
def valkey_benchmark(guest):
    """L1, L3: Valkey's own client, unmodified, with both servers, over RDMA and TCP."""
    if not guest.valkey_folder:
        raise Failure("VALKEY= names no build of Valkey")
    program = f"{guest.valkey_folder}/valkey-benchmark"
    guest.kv()
    for (connections, depth), requests in {(1, 1): 1500, (16, 16): 20000}.items():
        for transport, flags in (("rdma", ["--rdma", "-h", guest.address]), ("tcp", ["-h", "127.0.0.1"])):
            def load(server, port):
                return guest.benchmark(server, program, [*flags, "-p", port], connections, depth, requests, "get", 64)
            guest.turns(f"valkey-benchmark {transport} get c={connections} P={depth}", [
                ("aeconn", load(guest.kv, 7000)), ("valkey", fresh(guest, load(guest.valkey, 7200)))])


# ---- many connections ---------------------------------------------------------------------------
def opened(guest, server, url, count, seconds):
    """An idle client; returns once the server has `count` queue pairs or creates no more."""
    base = queue_pairs(server.pid)
    client = subprocess.Popen([str(a) for a in (BUILD / "conn-perf", "client", url, "--mode", "idle", "--echo",
                                                "--connections", count, "--hold", 600)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    deadline, most = time.monotonic() + seconds, 0
    while most < count and time.monotonic() < deadline and client.poll() is None and server.alive():
        time.sleep(0.3)
        most = max(most, queue_pairs(server.pid) - base)
    return client, most


def end(client):
    client.terminate()
    try:
        client.wait(20)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()


@row
def idle(guest):
    """Memory of an idle connection, at the server and at aeconn's client. One round: it does not
    vary."""
    whos = [("limit", "verbs-echo False", guest.bare, guest.rdma(7402), 500),
            ("aeconn", "kv", guest.kv, guest.rdma(7000), 500)]
    if guest.valkey_folder:
        whos.append(("valkey", "valkey", guest.valkey, guest.rdma(7200), 200))
    for who, name, start, url, count in whos:
        count = 50 if guest.quick else count
        guest.stop(name)
        server = start()
        client, _ = opened(guest, server, url, 2, 30)  # resources that the first connection sets up for all
        end(client)
        time.sleep(1)
        before = status_kib(server.pid, "VmRSS"), status_kib(server.pid, "VmPin")
        client, most = opened(guest, server, url, count, 100)
        try:
            if most < count:
                guest.missing(f"rdma idle {who}", f"{most} of {count} connections were established")
                continue
            time.sleep(1)
            guest.figures.add("rdma idle", who, 0, connections=count,
                              rss_kib=(status_kib(server.pid, "VmRSS") - before[0]) / count,
                              pinned_kib=(status_kib(server.pid, "VmPin") - before[1]) / count,
                              client_rss_kib=status_kib(client.pid, "VmRSS") / count)
            guest.show("rdma idle", who)
        finally:
            end(client)
            guest.stop(name)


@row
def many(guest):
    """N1: both ends are on this machine."""
    guest.stop_all()
    wanted = 200 if guest.quick else 4000
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1)) / (1 << 20)
    server = guest.perf()
    client, most = opened(guest, server, guest.rdma(7500), wanted, 180)
    available = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1)) / (1 << 10)
    end(client)
    name = f"rdma connections, {wanted} wanted" if guest.quick else "rdma connections in 4 GiB"
    guest.figures.add(name, "aeconn", 0, connections=most, guest_gib=memory, available_mib=available)
    guest.show(name, "aeconn")


def device_counters(figures):
    for folder in Path("/sys/class/infiniband").glob("*/ports/1/hw_counters"):
        figures.add("receiver not ready", "device", 0,
                    **{f.name: int(f.read_text()) for f in folder.iterdir() if "rnr" in f.name})


def main(out, rounds=3, quick=False, only=None):
    bed.main("softroce", row, Guest, out, rounds, quick, only, at_end=device_counters)
