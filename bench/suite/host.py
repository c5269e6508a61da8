# SPDX-License-Identifier: BSD-3-Clause
"""Figures of the host, in real time: `make bench`.

Servers run on one core and load on another. Each figure is measured in rounds, and within a round
each server has its turn. Runs are short: other activity of the machine affects the rates, but much
less the server's processor time per request.
"""

import json
import resource
import threading

from . import bed, python_echo
from .figures import ratio_text
from .processes import BUILD, Failure, Server, cores, run, status_kib

row = bed.Rows()

TRANSPORTS = ("tcp", "unix", "tls")
ECHO = {(1, 1): 6000, (1, 4): 20000, (1, 16): 60000, (1, 64): 150000, (50, 1): 40000, (50, 16): 250000}
SHAPES = {(1, 1): 5000, (1, 16): 50000, (50, 1): 40000, (50, 16): 200000}
SIZES = {16: "16 B", 1024: "1 KiB", 16384: "16 KiB", 65536: "64 KiB"}
IDLE = (100, 1000, 5000, 20000)
LOOPS = {"aeconn": "aeconn", "EpollLoop": "epoll_loop", "libev": "libev", "epoll": "epoll"}  # names in loop-bench's JSON


class Host(bed.Bed):
    time_limit = 600

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.ports = {}
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for wanted in (40000, hard):  # root may exceed the hard limit; other users may raise the soft limit up to it
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
                break
            except (ValueError, OSError):
                pass
        self.descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def port(self, name):
        if name not in self.ports:
            self.ports[name] = bed.free_ports(1)[0]
        return self.ports[name]

    def url(self, name, transport):
        """The URL at which one of aeconn's servers or a bare one listens."""
        if transport == "unix":
            return f"unix://{self.folder}/{name}.sock"
        return f"{transport}://127.0.0.1:{self.port(f'{name} {transport}')}"

    def ca(self, url):
        return f"{url}?ca={self.certificate()}/cert.pem" if url.startswith("tls") else url

    def served(self, name, transport):
        """--listen and its URL."""
        url = self.url(name, transport)
        if transport == "tls":
            url += f"?cert={self.certificate()}/cert.pem&key={self.folder}/key.pem"
        return ["--listen", url]

    # --- servers -----------------------------------------------------------------------------------
    def kv(self):
        return self.keep("kv", lambda: Server(
            [BUILD / "kv-server", *self.served("kv", "tcp"), *self.served("kv", "unix"), *self.served("kv", "tls"),
             "--maxclients", "100000"], r"listening on tls"))

    def kv_plain(self):
        """kv-server without session tickets."""
        url = self.url("kv-plain", "tls")
        return self.keep("kv-plain", lambda: Server(
            [BUILD / "kv-server", "--listen",
             f"{url}?cert={self.certificate()}/cert.pem&key={self.folder}/key.pem&resumption=no"],
            r"listening on tls"))

    def redis(self):
        tcp, tls = self.port("redis tcp"), self.port("redis tls")
        folder = self.certificate()
        return self.keep("redis", lambda: Server(
            ["redis-server", "--port", tcp, "--bind", "127.0.0.1", "127.0.0.2", "--save", "", "--appendonly", "no",
             "--dir", folder, "--maxclients", "100000", "--tcp-backlog", "511", "--unixsocket", folder / "redis.sock",
             "--tls-port", tls, "--tls-cert-file", folder / "cert.pem", "--tls-key-file", folder / "key.pem",
             "--tls-ca-cert-file", folder / "cert.pem", "--tls-auth-clients", "no"], r"eady to accept"))

    def memcached(self):
        port = self.port("memcached tcp")
        return self.keep("memcached", lambda: Server(
            ["memcached", "-l", "127.0.0.1", "-p", port, "-U", 0, "-t", 1, "-u", "root", "-c", "4096"],
            bed.answers(port)))

    def perf(self):
        return self.keep("perf", lambda: Server(
            [BUILD / "conn-perf", "server", "--echo", *self.served("perf", "tcp"), *self.served("perf", "unix"),
             *self.served("perf", "tls")], r"listening on tls"))

    def bare(self, transport, *options):
        name = " ".join(("bare", *options))
        url = self.url(name.replace(" ", ""), transport)
        if transport == "tls":
            argv = [BUILD / "bench/tls-echo", url.replace("tls:", "tcp:"), "--cert", self.certificate() / "cert.pem",
                    "--key", self.folder / "key.pem", "--read-ahead", *options]
        else:
            argv = [BUILD / "bench/epoll-echo", url]
        return self.keep(f"{name} {transport}", lambda: Server(argv, r"listening on"))

    def bare_url(self, transport, *options):
        return self.ca(self.url("".join(("bare", *options)), transport))

    def at(self, name, transport):
        """redis-benchmark's options to reach a server."""
        if transport == "unix":
            return ["-s", self.folder / f"{name}.sock"]
        tls = ["--tls", "--cacert", self.certificate() / "cert.pem"] if transport == "tls" else []
        return ["-p", self.port(f"{name} {transport}"), *tls]

    def few(self, table):
        """The shapes of `table` to measure; fewer in a quick run."""
        return {k: max(v // 4, 1000) for k, v in table.items() if k in ((1, 1), (50, 16))} if self.quick else table


# ---- the loop -----------------------------------------------------------------------------------
@row
def loop(host):
    """Cost of an event, of 100,000 timers, of post(): LibevLoop (aeconn) and EpollLoop, compared
    with bare libev and epoll."""
    seen = {}
    for round_ in range(host.rounds):
        for line in json.loads(run([BUILD / "bench/loop-bench", "--json", "--rounds", 1], timeout=120))["rows"]:
            for who, key in LOOPS.items():
                if line.get(key) is not None:
                    host.figures.add(f"loop: {line['name']}", who, round_, ns=line[key])
                    seen[f"loop: {line['name']}", who] = None
    for name, who in seen:
        host.show(name, who)


# ---- echoes -------------------------------------------------------------------------------------
def echoes(host, transport):
    for (connections, depth), requests in host.few(ECHO).items():
        requests = requests // 2 if transport == "tls" else requests
        host.turns(f"echo {transport} c={connections} d={depth}", [
            ("limit", host.echo(lambda: host.bare(transport), host.bare_url(transport), connections, depth, requests)),
            ("aeconn", host.echo(host.perf, host.ca(host.url("perf", transport)), connections, depth, requests))])


@row
def tcp_echo(host):
    echoes(host, "tcp")


@row
def unix_echo(host):
    echoes(host, "unix")


@row
def tls_echo(host):
    echoes(host, "tls")


@row
def same_host(host):
    """Shared memory beside a Unix socket, and beside a bare program over shared memory; both ends
    sleep, then both spin."""
    shapes = (("no", 1, 1, 64, 6000), ("no", 16, 1, 64, 60000), ("no", 16, 16, 64, 800000), ("no", 1, 1, 65536, 2000),
              ("no", 1, 16, 65536, 4000), ("100us", 1, 1, 64, 50000), ("100us", 1, 1, 4096, 30000),
              ("100us", 1, 1, 65536, 5000))
    for spin, connections, depth, size, requests in shapes:
        def server(name=f"same host {spin}", spin=spin):
            return host.keep(name, lambda: Server(
                [BUILD / "conn-perf", "server", "--echo", "--spin", spin, *host.served(f"{spin}", "unix"),
                 "--listen", f"shm://{host.folder}/{spin}.shm"], r"listening on shm"))

        def bare(spin=spin, depth=depth, size=size, requests=requests):
            return json.loads(run([BUILD / "bench/shm-echo", *(["--spin"] if spin != "no" else []), "--size", size,
                                   "--depth", depth, "--requests", requests], core=None))

        requests = requests // 4 if host.quick else requests
        turns = [(who, host.echo(server, url, connections, depth, requests, size, 1, "--spin", spin, "--no-verify"))
                 for who, url in (("unix", host.url(f"{spin}", "unix")), ("shm", f"shm://{host.folder}/{spin}.shm"))]
        if connections == 1:
            turns.append(("limit", bare))
        row = f"same host {'sleeping' if spin == 'no' else 'spinning'} c={connections} d={depth} {size}"
        host.turns(row, turns)
        print(f"{row:40} shm to unix: " + ", ".join(
            f"{text} {ratio_text(host.figures.ratio(row, 'shm', 'unix', metric))}"
            for metric, text in (("rps", "rate"), ("p50_us", "p50"), ("cpu_us", "server's CPU"))), flush=True)
    for spin in ("no", "100us"):
        host.stop(f"same host {spin}")

    host.redis()
    for spin, connections, requests in (("100us", 1, 30000), ("no", 50, 60000)):
        def kv(spin=spin):
            return host.keep(f"kv shm {spin}", lambda: Server(
                [BUILD / "kv-server", "--spin", spin, "--listen", f"shm://{host.folder}/kv.{spin}"], r"listening on shm"))

        urls = {"aeconn": f"shm://{host.folder}/kv.{spin}?spin={spin}", "redis": f"unix://{host.folder}/redis.sock"}
        kv()
        for url in urls.values():
            run([BUILD / "bench/request-load", url, "-n", 1, "--command", "SET key value", "--value-size", 16])
        row = f"same host kv get {'sleeping' if spin == 'no' else 'spinning'} c={connections} P=1"
        requests = requests // 4 if host.quick else requests
        host.turns(row, [(who, host.requests(start, urls[who], connections, 1, requests, "--command", "GET key"))
                         for who, start in (("aeconn", kv), ("redis", host.redis))])
        print(f"{row:40} aeconn over shm to redis over unix: rate "
              f"{ratio_text(host.figures.ratio(row, 'aeconn', 'redis', 'rps'))}", flush=True)
        host.stop(f"kv shm {spin}")


@row
def co_echo(host):
    """The same echo server with coroutines and with handlers."""
    def server(who, *options):
        return host.keep(f"co-echo {who}", lambda: Server(
            [BUILD / "bench/co-echo", *options, host.url(f"co-{who}", "tcp")], r"listening on"))

    sides = {"coroutines": lambda: server("coroutines"), "handlers": lambda: server("handlers", "--handlers")}
    for (connections, depth), requests in host.few(ECHO).items():
        row = f"co echo tcp c={connections} d={depth}"
        host.turns(row, [(who, host.echo(start, host.url(f"co-{who}", "tcp"), connections, depth, requests))
                         for who, start in sides.items()])
        ratio = host.figures.ratio(row, *sides, "cpu_us")
        print(f"{row:34} coroutine echo to callback echo: server's CPU {ratio_text(ratio)}", flush=True)


@row
def python_streams(host):
    """An echo server with asyncio's streams: over the Python package, asyncio, and uvloop."""
    python_echo.rates(host)


# ---- kv-server and redis-server -----------------------------------------------------------------
def values(host, transport):
    host.kv(), host.redis()
    sizes = {16: "16 B", 16384: "16 KiB"} if host.quick else SIZES
    for size, name in sizes.items():
        for who in ("kv", "redis"):  # the key that GET reads
            run(["redis-benchmark", *host.at(who, "tcp"), "-t", "set", "-d", size, "-n", 1, "--csv"])
        for (connections, depth), requests in host.few(SHAPES).items():
            requests = min(requests, max(500_000_000 // size // (4 if transport == "tls" else 1), 2000))
            for command in ("get", "set") if size in (16, 16384) and not host.quick else ("get",):
                # The client's second, small record waits for the acknowledgement of the first: 44
                # ms per request, with redis-server as well.
                if transport == "tls" and command == "set" and size >= 16384 and depth == 1:
                    continue
                host.turns(f"kv {transport} {command} {name} c={connections} P={depth}", [
                    (who, host.benchmark(server, "redis-benchmark", host.at(short, transport), connections, depth,
                                         requests, command, size))
                    for who, short, server in (("aeconn", "kv", host.kv), ("redis", "redis", host.redis))])


@row
def tcp_kv(host):
    values(host, "tcp")


@row
def unix_kv(host):
    values(host, "unix")


@row
def tls_kv(host):
    values(host, "tls")


@row
def memcached(host):
    """redis-benchmark does not speak memcached's protocol: request-load measures all three."""
    host.memcached(), host.kv(), host.redis()
    cached = f"tcp://127.0.0.1:{host.port('memcached tcp')}"
    theirs = f"tcp://127.0.0.1:{host.port('redis tcp')}"
    sizes = {64: "64 B"} if host.quick else {64: "64 B", 16384: "16 KiB"}
    for size, name in sizes.items():
        for url in (host.url("kv", "tcp"), theirs):
            run([BUILD / "bench/request-load", url, "-n", 1, "--command", "SET key value", "--value-size", size])
        run([BUILD / "bench/request-load", cached, "-n", 1, "--protocol", "memcached", "--command", "set key value",
             "--value-size", size])
        for (connections, depth), requests in host.few(SHAPES).items():
            requests = min(requests, 500_000_000 // size)
            host.turns(f"kv by request-load tcp get {name} c={connections} P={depth}", [
                ("aeconn", host.requests(host.kv, host.url("kv", "tcp"), connections, depth, requests, "--command",
                                         "GET key")),
                ("redis", host.requests(host.redis, theirs, connections, depth, requests, "--command", "GET key")),
                ("memcached", host.requests(host.memcached, cached, connections, depth, requests, "--protocol",
                                            "memcached", "--command", "get key"))])
    host.stop("memcached")


# ---- connections --------------------------------------------------------------------------------
@row
def tls_handshake(host):
    """X3: full handshakes, TLS 1.3 and P-256; one request per connection."""
    count = 500 if host.quick else 1500
    echo, ping = ("--protocol", "echo", "--value-size", 64), ("--command", "PING")
    redis_url = host.ca(f"tls://127.0.0.1:{host.port('redis tls')}")
    cases = [("limit", lambda: host.bare("tls"), host.bare_url("tls"), echo),
             ("limit, no tickets", lambda: host.bare("tls", "--no-tickets"), host.bare_url("tls", "--no-tickets"), echo),
             ("aeconn", host.kv, host.ca(host.url("kv", "tls")), ping),
             ("aeconn, no tickets", host.kv_plain, host.ca(host.url("kv-plain", "tls")), ping),
             ("redis", host.redis, redis_url, ping)]
    for _, server, *_ in cases:
        server()
    host.turns("tls new connections", [
        (who, host.requests(server, url, 8, 1, count, "--new-connections", *options))
        for who, server, url, options in cases])
    host.stop("kv-plain")
    host.stop("bare --no-tickets tls")


@row
def tcp_connect(host):
    """A TCP connection, one request, close."""
    count = 1000 if host.quick else 4000
    host.kv(), host.redis()
    host.turns("tcp new connections", [
        ("limit", host.requests(lambda: host.bare("tcp"), host.bare_url("tcp"), 16, 1, count, "--new-connections",
                                "--protocol", "echo", "--value-size", 64)),
        ("aeconn", host.requests(host.kv, host.url("kv", "tcp"), 16, 1, count, "--new-connections", "--command", "PING")),
        ("redis", host.requests(host.redis, f"tcp://127.0.0.1:{host.port('redis tcp')}", 16, 1, count,
                                "--new-connections", "--command", "PING"))])


@row
def two_loops(host):
    """K1: a pair is a server with one loop and its client, two processes on one core; two pairs
    have a core each and share nothing but the machine. Several loops of one server are measured by
    `bench/run loops`."""
    if len(cores()) < 2:
        raise Failure("this machine has one core to use")
    seconds = 0.4 if host.quick else 1.0

    def pair(core, results):
        name = f"loop{core}"
        server = host.keep(name, lambda: Server(
            [BUILD / "conn-perf", "server", "--echo", *host.served(name, "tcp")], r"listening on tcp", core=core))
        before = server.cpu_ns()
        result = host.conn_perf(host.url(name, "tcp"), "--echo", "--connections", 16, "--seconds", seconds, "--warmup",
                                0, core=core)[0]
        results[core] = (result["requests_per_s"], result["requests"], server.cpu_ns() - before)

    def take(which):
        results = {}
        threads = [threading.Thread(target=pair, args=(core, results)) for core in which]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(results) < len(which):
            raise Failure("a pair failed")
        requests = sum(r[1] for r in results.values())
        return {"rps": sum(r[0] for r in results.values()), "cpu_us": sum(r[2] for r in results.values()) / requests / 1000}

    for round_ in range(host.rounds):
        cases = [("echo tcp c=16, one pair", [round_ % 2]), ("echo tcp c=16, two pairs", [0, 1])]
        for name, which in cases if round_ % 2 == 0 else reversed(cases):
            host.figures.add(name, "aeconn", round_, **take(which))
    for name, _ in cases:
        host.show(name, "aeconn")
    host.stop("loop0"), host.stop("loop1")


@row
def scale(host):
    """Idle connections with 50 busy ones among them. Each round starts a new server."""
    spare = 300  # other descriptors that a server needs
    counts = [n for n in IDLE if n + spare <= host.descriptors][:2 if host.quick else None]
    if not host.quick and len(counts) < len(IDLE):
        most = (host.descriptors - spare) // 100 * 100
        counts.append(most)
        host.missing(f"scale: {IDLE[-1]} idle", f"a process may open {host.descriptors} files here, so {most:,} "
                                                f"connections were taken; `ulimit -Hn {IDLE[-1] + spare}` allows it")
    requests = 20000 if host.quick else 50000
    for round_ in range(host.rounds):
        whos = ("kv", "redis") if round_ % 2 == 0 else ("redis", "kv")
        for short in whos:
            who = "aeconn" if short == "kv" else short
            name = f"scale {short}"
            clients = []
            try:
                port = bed.free_ports(1)[0]
                if short == "kv":
                    argv = [BUILD / "kv-server", "--listen", f"tcp://127.0.0.1,127.0.0.2:{port}", "--maxclients", "100000"]
                    ready = r"listening on tcp.*127\.0\.0\.2"
                else:
                    argv = ["redis-server", "--port", port, "--bind", "127.0.0.1", "127.0.0.2", "--save", "",
                            "--appendonly", "no", "--dir", host.folder, "--maxclients", "100000"]
                    ready = r"eady to accept"
                server = host.keep(name, lambda: Server(argv, ready))
                busy = host.requests(lambda: server, f"tcp://127.0.0.1:{port}", 50, 1, requests, "--command", "GET key")
                busy_warm = host.requests(lambda: server, f"tcp://127.0.0.1:{port}", 50, 1, 2000, "--command",
                                          "SET key value", "--value-size", 64)
                busy_warm()
                host.figures.add("scale tcp: 0 idle, 50 busy", who, round_, **busy())
                base, open_ = status_kib(server.pid, "VmRSS"), 0
                for count in counts:
                    while open_ < count:  # in steps: the ports of one address would not suffice
                        more = min(count - open_, 10000)
                        address = f"127.0.0.{1 + len(clients) % 2}"
                        clients.append(bed.idle_client(f"tcp://{address}:{port}", more))
                        open_ += more
                    rss = (status_kib(server.pid, "VmRSS") - base) / count
                    host.figures.add(f"scale tcp: {count} idle, 50 busy", who, round_, **busy(), rss_kib=rss)
            finally:
                for client in clients:
                    client.stop()
                host.stop(name)
    for count in (0, *counts):
        for who in ("aeconn", "redis"):
            host.show(f"scale tcp: {count} idle, 50 busy", who)


def main(out, rounds=3, quick=False, only=None):
    bed.main("host", row, Host, out, rounds, quick, only)
