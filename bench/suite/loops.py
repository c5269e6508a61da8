"""Figures of several loops on this machine: `bench/run loops`.

A server on two loops beside the same on one, under the same load: as many loops and connections, for
as long. Nothing is bound to a processor, so server and load share all there are. What share the
load takes, and how many processors are busy, stands in each row: where they are all busy with one
loop already, a second cannot give more, however well it works.
"""

from . import bed
from .figures import ratio_text
from .host import Host
from .processes import BUILD, Failure, Server, cores

row = bed.Rows()

MANY = 2  # loops of the server that is compared with one, and of the load
SHAPES = ((16, 1), (16, 16))  # connections, requests under way on each


class Loops(Host):
    def echo_on(self, count, transport):
        """conn-perf's echo server on so many loops; every TLS handshake is a full one."""
        name = f"loops{count}"
        option, url = self.served(name, transport)
        url += "&tickets=0&resumption=no" if transport == "tls" else ""
        return self.keep(f"{name} {transport}", lambda: Server(
            [BUILD / "conn-perf", "server", "--echo", "--loops", count, option, url], r"listening on", core=None))

    def turn(self, count, transport, *options):
        """One measurement: rate, latency, and what both sides cost."""
        server, url = self.echo_on(count, transport), self.ca(self.url(f"loops{count}", transport))
        before = server.cpu_ns()
        result = self.conn_perf(url, "--echo", "--loops", MANY, "--warmup", 0, "--seconds", 0.3 if self.quick else 2,
                                *options, core=None)[0]
        served = (server.cpu_ns() - before) / result["requests"] / 1000
        loaded = result["cpu_s_per_million"]["client"]
        return {"rps": result["requests_per_s"], "p50_us": result["latency_us"]["p50"],
                "p99_us": result["latency_us"]["p99"], "cpu_us": served, "client_cpu_us": loaded,
                "load_percent": 100 * loaded / (served + loaded),
                "busy": (served + loaded) * result["requests_per_s"] / 1e6}

    def compare(self, name, transport, *options):
        if len(cores()) < 2:
            raise Failure("this machine has one core to use")
        whos = {"2 loops": MANY, "1 loop": 1}
        self.turns(name, [(who, lambda count=count: self.turn(count, transport, *options))
                          for who, count in whos.items()])
        ratios = [f"{what} {ratio_text(self.figures.ratio(name, *whos, metric))}"
                  for what, metric in (("rate", "rps"), ("server's CPU", "cpu_us"))]
        print(f"{name:34} 2 loops to 1: {'  '.join(ratios)}", flush=True)


def echoes(loops, transport):
    for connections, depth in SHAPES:
        loops.compare(f"loops {transport} c={connections} d={depth}", transport, "--connections", connections,
                      "--depths", depth)


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
    """Full handshakes, TLS 1.3 and P-256; one request on each connection."""
    loops.compare("loops tls new connections", "tls", "--mode", "connect", "--connections", 16)


def main(out, rounds=3, quick=False, only=None):
    bed.main("loops", row, Loops, out, rounds, quick, only)
