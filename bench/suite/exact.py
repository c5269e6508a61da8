# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per request, counted by QEMU's clock in the microVM: `make bench-exact`.

One instruction is one nanosecond of the guest's time, on one processor, so figures repeat to a few
thousandths regardless of other load on the machine. Instructions of the kernel and of rxe are
included; cache misses and bus latency are not. A cost is the difference between a long and a short
run, divided by the difference of their numbers of requests, so that connection setup cancels out.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from .bed import Bed, Rows, answers
from .figures import Figures
from .processes import BUILD, Failure, Server, SystemCalls, descriptors, run, status_kib

ROWS = row = Rows()


class Guest(Bed):
    """Shared by the rows: addresses, a certificate, servers that are started on demand."""

    def __init__(self, figures, rounds, scale):
        super().__init__(figures, rounds, quick=False)
        self.scale = scale
        self.address = os.environ["AECONN_RDMA_ADDRESS"]
        self.valkey = os.environ.get("VALKEY")
        self.certificate(self.address)

    # --- servers -----------------------------------------------------------------------------------
    def server(self, name):
        return self.keep(name, getattr(self, "_start_" + name.replace("-", "_")))

    def _tls(self):
        return f"?cert={self.folder}/cert.pem&key={self.folder}/key.pem"

    def _start_kv(self):
        server = Server([BUILD / "kv-server", "--enable-debug-command", "--listen", "tcp://127.0.0.1:7000",
                         "--listen", f"unix://{self.folder}/kv.sock", "--listen", f"rdma://{self.address}:7000",
                         "--listen", f"tls://127.0.0.1:7001{self._tls()}"], r"listening on tls")
        self.fill("tcp://127.0.0.1:7000")
        return server

    def _start_kv_calm(self):
        return Server([BUILD / "kv-server", "--listen", f"rdma://{self.address}:7600?keepalive=15s"],
                      r"listening on rdma")

    def _start_redis(self):
        server = Server(["redis-server", "--port", 7100, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1",
                         "--unixsocket", self.folder / "redis.sock", "--tls-port", 7101,
                         "--tls-cert-file", self.folder / "cert.pem", "--tls-key-file", self.folder / "key.pem",
                         "--tls-ca-cert-file", self.folder / "cert.pem", "--tls-auth-clients", "no"],
                        r"eady to accept")
        self.fill("tcp://127.0.0.1:7100")
        return server

    def _start_valkey(self):
        server = Server([f"{self.valkey}/valkey-server", "--port", 7200, "--save", "", "--appendonly", "no",
                         "--bind", "127.0.0.1", "--protected-mode", "no",
                         "--rdma-port", 7200, "--rdma-bind", self.address], r"eady to accept")
        self.fill("tcp://127.0.0.1:7200")
        return server

    def _start_memcached(self):
        return Server(["memcached", "-l", "127.0.0.1", "-p", 7300, "-U", 0, "-t", 1, "-u", "root"], answers(7300))

    def _start_epoll_echo(self):
        return Server([BUILD / "bench/epoll-echo", "tcp://127.0.0.1:7400"], r"listening on")

    def _start_co_echo(self):
        return Server([BUILD / "bench/co-echo", "tcp://127.0.0.1:7410"], r"listening on")

    def _start_handler_echo(self):
        return Server([BUILD / "bench/co-echo", "--handlers", "tcp://127.0.0.1:7411"], r"listening on")

    def _start_epoll_echo_unix(self):
        return Server([BUILD / "bench/epoll-echo", f"unix://{self.folder}/echo.sock"], r"listening on")

    def _start_tls_echo(self):
        return Server([BUILD / "bench/tls-echo", "tcp://127.0.0.1:7401", "--cert", self.folder / "cert.pem",
                       "--key", self.folder / "key.pem", "--read-ahead"], r"listening on")

    def _start_verbs_echo(self):
        return Server([BUILD / "bench/verbs-echo", "server", f"{self.address}:7402"], r"listening on")

    def _start_echo(self):
        return Server([BUILD / "conn-perf", "server", "--echo", "--listen", "tcp://127.0.0.1:7500",
                       "--listen", f"unix://{self.folder}/perf.sock", "--listen", f"rdma://{self.address}:7500",
                       "--listen", f"tls://127.0.0.1:7501{self._tls()}"], r"listening on tls")

    def _start_echo_epoll(self):
        return Server([BUILD / "conn-perf", "server", "--echo", "--event-loop", "epoll",
                       "--listen", f"rdma://{self.address}:7510"], r"listening on rdma")

    def note_receivers(self, when):
        """R1: how often a peer on the device had no receive posted so far."""
        for values_ in counters():
            rnr = {k: v for k, v in values_.items() if "rnr" in k}
            self.figures.add("receiver not ready", when, 0, **rnr)
            print(f"receiver-not-ready NAKs {when}: {rnr}", flush=True)

    # --- load --------------------------------------------------------------------------------------
    def fill(self, url, size=64):
        """Sets the key that the reads request."""
        run([BUILD / "bench/request-load", url, "-c", 1, "-n", 1, "--command", "SET key value",
             "--value-size", size])

    def ca(self, url):
        return f"{url}?ca={self.folder}/cert.pem" if url.startswith("tls") else url

    def load(self, url, connections, depth, requests, *options):
        text = run([BUILD / "bench/request-load", self.ca(url), "-c", connections, "-d", depth, "-n", requests,
                    *options], timeout=900)
        return json.loads(text)

    def cost(self, row_, who, server, load, requests, **more):
        """Measures `row_` for one server: instructions of the server per request, and its rate."""
        short = max(requests // 8, 64)
        for round_ in range(self.rounds):
            before = server.cpu_ns()
            load(short)
            middle = server.cpu_ns()
            result = load(requests)
            after = server.cpu_ns()
            kinsn = ((after - middle) - (middle - before)) / (requests - short) / 1000
            latency = result.get("latency_us") or {}
            client = result.get("client_cpu_s")
            self.figures.add(row_, who, round_, kinsn=kinsn,
                             client_kinsn=client and client * 1e6 / result["requests"], rps=result["requests_per_s"],
                             p50_us=latency.get("p50"), p99_us=latency.get("p99"), **more)
        self.show(row_, who)


SHAPES = ((1, 1, 2000), (16, 1, 4000), (16, 16, 32000))


def echo_load(guest, url, connections, depth, size=64, event_loop="libev"):
    return lambda n: guest.load(url, connections, depth, n, "--protocol", "echo", "--value-size", size,
                                "--event-loop", event_loop)


def kv_load(guest, url, connections, depth, command="GET key", size=64):
    return lambda n: guest.load(url, connections, depth, n, "--command", command, "--value-size", size)


def echoes(guest, transport, limit, limit_url, our_url, shapes=SHAPES):
    for connections, depth, requests in shapes:
        name = f"echo {transport} c={connections} d={depth}"
        for who, server, url in (("limit", limit, limit_url), ("aeconn", "echo", our_url)):
            guest.cost(name, who, guest.server(server), echo_load(guest, url, connections, depth),
                       requests * guest.scale)


def values(guest, transport, urls, shapes=SHAPES, commands=("GET key", "SET key value")):
    for connections, depth, requests in shapes:
        for command in commands:
            name = f"kv {transport} {command.split()[0].lower()} c={connections} P={depth}"
            for who, server, url in urls:
                guest.cost(name, who, guest.server(server), kv_load(guest, url, connections, depth, command),
                           requests * guest.scale)


@row
def tcp_echo(guest):
    """P1: the loop and the connection layer compared with bare epoll."""
    echoes(guest, "tcp", "epoll-echo", "tcp://127.0.0.1:7400", "tcp://127.0.0.1:7500")


@row
def co_echo(guest):
    """O1: the same echo server with coroutines and with handlers."""
    for connections, depth, requests in SHAPES:
        for who, server, port in (("coroutines", "co-echo", 7410), ("handlers", "handler-echo", 7411)):
            guest.cost(f"co echo tcp c={connections} d={depth}", who, guest.server(server),
                       echo_load(guest, f"tcp://127.0.0.1:{port}", connections, depth), requests * guest.scale)


@row
def unix_echo(guest):
    echoes(guest, "unix", "epoll-echo-unix", f"unix://{guest.folder}/echo.sock",
           f"unix://{guest.folder}/perf.sock")


@row
def tls_echo(guest):
    """X1: compared with OpenSSL on bare epoll."""
    echoes(guest, "tls", "tls-echo", "tls://127.0.0.1:7401", "tls://127.0.0.1:7501")


@row
def rdma_echo(guest):
    """C1, L2: compared with bare verbs, using the same client for both; and EpollLoop at both
    ends."""
    shapes = SHAPES + ((64, 1, 8000),)
    echoes(guest, "rdma", "verbs-echo", f"rdma://{guest.address}:7402", f"rdma://{guest.address}:7500", shapes)
    url = f"rdma://{guest.address}:7510"
    for connections, depth, requests in shapes:
        guest.cost(f"echo rdma c={connections} d={depth}", "EpollLoop", guest.server("echo-epoll"),
                   echo_load(guest, url, connections, depth, event_loop="epoll"), requests * guest.scale)


def bare_load(guest, port, connections, depth):
    """The bare verbs client: cheaper than conn-perf, so it hides less of a server's cost."""
    def once(n):
        result = json.loads(run([BUILD / "bench/verbs-echo", "client", f"{guest.address}:{port}", "--requests", n,
                                 "--size", 64, "--connections", connections, "--depth", depth], timeout=300))
        return {**result, "latency_us": {"p50": result["p50_us"], "p99": result["p99_us"]}}
    return once


@row
def verbs_client(guest):
    """C1, L2: the bare client with the bare server and with aeconn's, on LibevLoop and on
    EpollLoop."""
    for connections, depth, requests in SHAPES + ((64, 1, 8000),):
        for who, server, port in (("limit", "verbs-echo", 7402), ("aeconn", "echo", 7500),
                                  ("EpollLoop", "echo-epoll", 7510)):
            guest.cost(f"echo rdma, bare client c={connections} d={depth}", who, guest.server(server),
                       bare_load(guest, port, connections, depth), requests * guest.scale)


@row
def tcp_kv(guest):
    """P2, P3."""
    urls = [("limit", "epoll-echo", None), ("aeconn", "kv", "tcp://127.0.0.1:7000"),
            ("redis", "redis", "tcp://127.0.0.1:7100")]
    if guest.valkey:
        urls.append(("valkey", "valkey", "tcp://127.0.0.1:7200"))
    values(guest, "tcp", urls[1:])
    guest.server("memcached")
    guest.load("tcp://127.0.0.1:7300", 1, 1, 1, "--protocol", "memcached", "--command", "set key value",
               "--value-size", 64)
    for connections, depth, requests in SHAPES:
        guest.cost(f"kv tcp get c={connections} P={depth}", "memcached", guest.server("memcached"),
                   lambda n: guest.load("tcp://127.0.0.1:7300", connections, depth, n, "--protocol", "memcached",
                                        "--command", "get key"), requests * guest.scale)


@row
def unix_kv(guest):
    """P4."""
    values(guest, "unix", [("aeconn", "kv", f"unix://{guest.folder}/kv.sock"),
                           ("redis", "redis", f"unix://{guest.folder}/redis.sock")])


@row
def tls_kv(guest):
    """X1."""
    values(guest, "tls", [("aeconn", "kv", "tls://127.0.0.1:7001"), ("redis", "redis", "tls://127.0.0.1:7101")])


@row
def rdma_kv(guest):
    """T1b: aeconn's own client, both servers."""
    urls = [("aeconn", "kv", f"rdma://{guest.address}:7000")]
    if guest.valkey:
        urls.append(("valkey", "valkey", f"rdma://{guest.address}:7200"))
    values(guest, "rdma", urls)


@row
def valkey_benchmark(guest):
    """T1a, T2, T4: Valkey's own client, unmodified, both servers, RDMA and TCP."""
    if not guest.valkey:
        raise Failure("VALKEY= names no build of Valkey")

    def load(flags, port, connections, depth, size):
        def once(n):
            text = run([f"{guest.valkey}/valkey-benchmark", *flags, "-p", port, "-t", "get", "-c", connections,
                        "-P", depth, "-d", size, "-n", n, "--csv"], timeout=600)
            cells = text.splitlines()[1].replace('"', "").split(",")
            return {"requests_per_s": float(cells[1]),
                    "latency_us": {"p50": float(cells[4]) * 1000, "p99": float(cells[6]) * 1000}}
        return once

    def keys(size):
        for name, port in (("kv", 7000), ("valkey", 7200)):
            guest.server(name)
            subprocess.run([f"{guest.valkey}/valkey-cli", "-p", str(port), "-x", "SET", "key:__rand_int__"],
                           input=b"x" * size, check=True, capture_output=True)

    keys(64)
    for connections, depth, requests in SHAPES:
        for transport, flags in (("rdma", ["--rdma", "-h", guest.address]), ("tcp", ["-h", "127.0.0.1"])):
            for who, server, port in (("aeconn", "kv", 7000), ("valkey", "valkey", 7200)):
                guest.cost(f"valkey-benchmark {transport} get c={connections} P={depth}", who, guest.server(server),
                           load(flags, port, connections, depth, 64), 2 * requests * guest.scale)
                guest.stop("valkey")  # it does not release the resources of closed RDMA connections
                keys(64)
    keys(65536)
    for depth in (8, 16):
        for who, server, port in (("aeconn", "kv", 7000), ("valkey", "valkey", 7200)):
            guest.cost(f"valkey-benchmark rdma get 64 KiB c=1 P={depth}", who, guest.server(server),
                       load(["--rdma", "-h", guest.address], port, 1, depth, 65536), 800 * guest.scale)
    guest.stop("valkey")
    guest.stop("kv")


@row
def window_wrap(guest):
    """T4: 16 replies of 64 KiB wrap around a window of 1 MiB; 8 do not. aeconn's own client."""
    url = f"rdma://{guest.address}:7000"
    guest.server("kv")
    guest.fill(url, 65536)
    for depth in (8, 16):
        guest.cost(f"rdma get 64 KiB c=1 P={depth}", "aeconn", guest.server("kv"),
                   kv_load(guest, url, 1, depth, size=65536), 400 * guest.scale)
    guest.fill(url, 64)


@row
def connection_rate(guest):
    """S1, S2: connect, one request, close."""
    def once(url, options):
        return lambda n: guest.load(url, 16, 1, n, "--new-connections", *options)
    kv, echo = ["--command", "GET key"], ["--protocol", "echo", "--value-size", 64]
    for who, server, url, options in (
            ("limit", "epoll-echo", "tcp://127.0.0.1:7400", echo), ("aeconn", "kv", "tcp://127.0.0.1:7000", kv),
            ("redis", "redis", "tcp://127.0.0.1:7100", kv)):
        guest.cost("connect tcp", who, guest.server(server), once(url, options), 2000 * guest.scale)
    peers = [("limit", "verbs-echo", f"rdma://{guest.address}:7402", echo),
             ("aeconn", "kv", f"rdma://{guest.address}:7000", kv)]
    for who, server, url, options in peers:
        guest.cost("connect rdma", who, guest.server(server), once(url, options), 400 * guest.scale)
    if guest.valkey:
        guest.cost("connect rdma", "valkey", guest.server("valkey"), once(f"rdma://{guest.address}:7200", kv), 80)

        def storm(count):
            guest.stop("valkey")  # it does not release the resources of closed connections
            guest.server("valkey")
            started = time.monotonic()
            run([f"{guest.valkey}/valkey-benchmark", "--rdma", "-h", guest.address, "-p", 7200, "-t", "get",
                 "-c", count, "-n", count, "--csv"], timeout=120)
            return time.monotonic() - started
        for round_ in range(guest.rounds):
            guest.figures.add("connect rdma", "valkey at both ends", round_, rps=199 / (storm(200) - storm(1)))
        guest.show("connect rdma", "valkey at both ends")
        guest.stop("valkey")


READS = ("read", "readv", "recvfrom", "recvmsg")


@row
def system_calls(guest):
    """C2, X2."""
    if not SystemCalls.available():
        raise Failure("this kernel's tracepoints cannot be read")
    cases = [("tcp", "limit", "epoll-echo", echo_load(guest, "tcp://127.0.0.1:7400", 16, 1)),
             ("tcp", "aeconn", "echo", echo_load(guest, "tcp://127.0.0.1:7500", 16, 1)),
             ("tcp", "aeconn kv", "kv", kv_load(guest, "tcp://127.0.0.1:7000", 16, 1)),
             ("tcp", "redis", "redis", kv_load(guest, "tcp://127.0.0.1:7100", 16, 1)),
             ("tls", "limit", "tls-echo", echo_load(guest, "tls://127.0.0.1:7401", 16, 1)),
             ("tls", "aeconn kv", "kv", kv_load(guest, "tls://127.0.0.1:7001", 16, 1)),
             ("tls", "redis", "redis", kv_load(guest, "tls://127.0.0.1:7101", 16, 1)),
             ("rdma", "limit", "verbs-echo", echo_load(guest, f"rdma://{guest.address}:7402", 16, 1)),
             ("rdma", "aeconn", "echo", echo_load(guest, f"rdma://{guest.address}:7500", 16, 1)),
             ("rdma", "aeconn kv", "kv", kv_load(guest, f"rdma://{guest.address}:7000", 16, 1))]
    if guest.valkey:
        cases.append(("rdma", "valkey", "valkey", kv_load(guest, f"rdma://{guest.address}:7200", 16, 1)))
    for transport, who, name, load in cases:
        server = guest.server(name)
        for round_ in range(guest.rounds):
            counter = SystemCalls(server.pid, ("*", *READS))
            load(500)
            middle = counter.read()
            load(4500)
            after = counter.read()
            counter.close()
            first = {k: middle[k] for k in middle}
            each = {k: (after[k] - 2 * first[k]) / 4000 for k in after}
            guest.figures.add(f"system calls {transport} c=16", who, round_, calls=each["*"],
                              reads=sum(each[k] for k in READS))
        guest.show(f"system calls {transport} c=16", who)


def rdma_objects(pid):
    """{kind: count} of a process's verbs objects."""
    counts = {}
    for kind in ("pd", "cq", "qp", "mr", "cm_id"):
        text = run(["rdma", "resource", "show", kind], core=None)
        counts[kind] = len(re.findall(rf"\bpid {pid}\b", text))
    return counts


@row
def idle(guest):
    """M1 to M4: 500 idle RDMA connections."""
    count = 500
    whos = [("limit", "verbs-echo", 7402), ("aeconn", "kv", 7000), ("aeconn, keepalive=15s", "kv-calm", 7600)]
    if guest.valkey:
        whos.append(("valkey", "valkey", 7200))
    for who, name, port in whos:
        guest.stop(name)
        server = guest.server(name)
        url = f"rdma://{guest.address}:{port}" + ("?keepalive=15s" if name == "kv-calm" else "")
        load = [BUILD / "conn-perf", "client", url, "--mode", "idle", "--echo",
                "--connections", count if who != "valkey" else 200, "--hold", 60]
        n = count if who != "valkey" else 200
        run([*load[:-3], 2, "--hold", 0], timeout=120)  # resources that the first connection sets up for all
        time.sleep(1)
        base = (status_kib(server.pid, "VmRSS"), status_kib(server.pid, "VmPin"), descriptors(server.pid),
                rdma_objects(server.pid))
        client = subprocess.Popen([str(a) for a in load], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 200
            while rdma_objects(server.pid)["qp"] - base[3]["qp"] < n:
                if time.monotonic() > deadline or client.poll() is not None:
                    raise Failure(f"{n} idle connections to {who} were not established")
                time.sleep(0.2)
            time.sleep(1)
            now = (status_kib(server.pid, "VmRSS"), status_kib(server.pid, "VmPin"), descriptors(server.pid),
                   rdma_objects(server.pid))
            before = server.cpu_ns()
            time.sleep(30)
            cpu = (server.cpu_ns() - before) / 3 / 1e6
            if rdma_objects(server.pid)["qp"] - base[3]["qp"] < n:
                raise Failure(f"of {n} idle connections to {who} some were lost")
        finally:
            client.terminate()
            client.wait()
        deadline = time.monotonic() + 120  # memory for windows is kept for 45 s for new connections

        def left():
            return sum(rdma_objects(server.pid).values()) - sum(base[3].values()) + descriptors(server.pid) - base[2]
        while left() > 0 and time.monotonic() < deadline:
            time.sleep(1)
        guest.figures.add("idle rdma", who, 0, connections=n, rss_kib=(now[0] - base[0]) / n,
                          pinned_kib=(now[1] - base[1]) / n, descriptors=(now[2] - base[2]) / n,
                          cqs=(now[3]["cq"] - base[3]["cq"]) / n, pds=(now[3]["pd"] - base[3]["pd"]) / n,
                          cpu_ms_10s=cpu * 500 / n,
                          left=max(left(), 0))
        guest.show("idle rdma", who)
        if who == "valkey":
            guest.stop("valkey")


@row
def idle_among(guest):
    """N2: the cost of a request on 16 connections beside 1,000 idle ones, over three seconds of the
    guest's time: long enough for each to send and receive a keepalive."""
    server = guest.server("echo")
    url = f"rdma://{guest.address}:7500"
    requests = 72000 * guest.scale

    def measure(name):
        for round_ in range(min(guest.rounds, 2)):
            before = server.cpu_ns()
            result = echo_load(guest, url, 16, 1)(requests)
            guest.figures.add(name, "aeconn", round_, kinsn=(server.cpu_ns() - before) / requests / 1000,
                              rps=result["requests_per_s"], p99_us=result["latency_us"]["p99"])
        guest.show(name, "aeconn")

    measure("echo rdma c=16, none idle")
    client = subprocess.Popen([BUILD / "conn-perf", "client", url, "--mode", "idle", "--echo", "--connections", "1000",
                               "--hold", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 300
        while rdma_objects(server.pid)["qp"] < 1000:
            if time.monotonic() > deadline or client.poll() is not None:
                raise Failure("1,000 idle connections were not established")
            time.sleep(0.5)
        time.sleep(1)
        measure("echo rdma c=16, 1000 idle")
    finally:
        client.terminate()
        client.wait()


@row
def burst(guest):
    """R2: one client writes 10,000 one-byte messages, the first of which blocks the loop."""
    guest.note_receivers("device")
    server = guest.server("kv")
    pings = 1663
    text = "DEBUG SLEEP 0.05\r\n" + "PING\r\n" * pings
    for round_ in range(guest.rounds):
        result = json.loads(run([BUILD / "bench/verbs-echo", "client", f"{guest.address}:7000",
                                 "--burst", len(text), "--text", text, "--reply", "+OK\r\n" + "+PONG\r\n" * pings],
                                timeout=120))
        guest.figures.add("burst rdma", "aeconn", round_, **{k: v for k, v in result.items()
                                                            if isinstance(v, (int, float))})
    guest.show("burst rdma", "aeconn")


def counters():
    for folder in Path("/sys/class/infiniband").glob("*/ports/1/hw_counters"):
        yield {f.name: int(f.read_text()) for f in folder.iterdir()}


def main(out, rounds=3, scale=1, only=None):
    figures = Figures(out)
    figures.add("header", "host", 0, kernel=os.uname().release, rounds=rounds, scale=scale,
                valkey=bool(os.environ.get("VALKEY")))
    guest = Guest(figures, rounds, scale)
    try:
        for name, function in ROWS.items():
            if only and name not in only:
                continue
            try:
                function(guest)
            except (Failure, subprocess.CalledProcessError) as failure:
                guest.missing(name, failure)
                guest.stop_all()
    finally:
        guest.close()
    guest.note_receivers("device after the burst")
