# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of user space that a message costs a server: `make bench-messages`.

Each server runs under callgrind. A cost is the difference between a long and a short load, divided
by the difference of their numbers of messages, so that set-up cancels out. Over rdma this runs in
the microVM; on a card, what is counted here is nearly all that is left of a message.
"""

import os

from . import bed, python_echo
from .callgrind import CountedServer
from .figures import by_row
from .processes import BUILD, Failure, run

host, guest = bed.Rows(), bed.Rows()

# Connections, messages under way on each, bytes.
SHAPES = ((1, 1, 64), (16, 1, 64), (64, 1, 64), (16, 16, 64), (16, 1, 1024), (16, 1, 16384))
METRICS = ("instructions", "references", "d1_misses", "ll_misses")
MEMORY = {"references": "data references", "d1_misses": "D1 misses", "ll_misses": "LL misses"}
LOOPS = {"LibevLoop": "libev", "EpollLoop": "epoll"}
# Handshakes take long under callgrind.
PATIENT = "handshake-timeout=10m"
# The aims: a factor of the bare server's cost, or numbers for the shapes.
FACTORS = {"tcp echo": 2.0, "unix echo": 2.0, "tls echo": 1.1}
NUMBERS = {"rdma echo": {(1, 1, 64): 2000, (16, 1, 64): 950, (64, 1, 64): 850, (16, 16, 64): 150},
           "rdma GET": {(1, 1, 64): 2900, (16, 1, 64): 1900, (64, 1, 64): 1800, (16, 16, 64): 700}}


def shape_text(shape):
    connections, depth, size = shape
    return f"{connections}x{depth} {f'{size} B' if size < 1024 else f'{size >> 10} KiB'}"


class Messages(bed.Bed):
    functions = 0  # print functions with at least so many instructions

    def __init__(self, figures, rounds, quick):
        super().__init__(figures, rounds, quick)
        self.address = os.environ.get("AECONN_RDMA_ADDRESS", "127.0.0.1")
        self.certificate(self.address)
        self.port = bed.free_ports(1)[0]  # of the server that runs at the time

    def url(self, transport):
        if transport == "unix":
            return f"unix://{self.folder}/server.sock"
        return f"{transport}://{self.address}:{self.port}"

    def listen(self, transport):
        tls = f"?cert={self.folder}/cert.pem&key={self.folder}/key.pem&{PATIENT}"
        return self.url(transport) + (tls if "tls" in transport else "")

    def load(self, transport, shape, *options):
        """request-load, for this number of requests."""
        connections, depth, size = shape
        tls = f"?ca={self.folder}/cert.pem&connect-timeout=10m&{PATIENT}"
        url = self.url(transport) + (tls if "tls" in transport else "")
        return lambda n: run([BUILD / "bench/request-load", url, "-c", connections, "-d", depth, "-n", n,
                              "--value-size", size, *options], timeout=300)

    def echo(self, transport, shape):
        return self.load(transport, shape, "--protocol", "echo", "--command", "value")

    def bare_echo(self, _, shape):
        """The bare client over verbs, which is the same for all servers."""
        connections, depth, size = shape
        return lambda n: run([BUILD / "bench/verbs-echo", "client", f"{self.address}:{self.port}", "--requests", n,
                              "--size", size, "--connections", connections, "--depth", depth], timeout=300)

    def get(self, transport, shape):
        return self.load(transport, shape, "--prepare", "SET key value", "--command", "GET key")

    def set(self, transport, shape):
        return self.load(transport, shape, "--command", "SET key value")

    def show(self, row, who):
        cost = {metric: self.figures.median(row, who, metric) for metric in METRICS}
        print(f"{row:22} {who:16} {cost['instructions']:9.1f} instructions" +
              "".join(f"  {round(cost[metric], 1) + 0.0:.1f} {text}" for metric, text in MEMORY.items()), flush=True)

    def measure(self, row, who, argv, transport, loads, shapes=SHAPES, env=None):
        """The costs of one server for {what: load}, in all shapes."""
        for shape in shapes[:1] if self.quick else shapes:
            for what, load in loads.items():
                name = f"{row} {what} {shape_text(shape)}"
                try:
                    server = self.keep(who, lambda: CountedServer(argv, r"listening on|eady to accept|^[a-z]+://", env))
                    if "rdma" in transport:
                        # Under callgrind the server is slower than the client. One message at a time
                        # is only measured if the server, as on a card, sleeps before the next one.
                        policy = os.SCHED_FIFO if shape[:2] == (1, 1) else os.SCHED_OTHER
                        os.sched_setscheduler(server.pid, policy, os.sched_param(int(policy == os.SCHED_FIFO)))
                    self._measure(name, who, server, load(transport, shape), shape)
                except Failure as failure:
                    self.missing(f"{name} {who}", failure)
        self.stop(who)

    def _measure(self, row, who, server, load, shape):
        few, many = (4000, 20000) if shape[1] > 1 else (2000, 6000)
        if "rdma" in row:  # there the clock counts instructions, and half as many suffice
            few, many = few // 2, many // 2
        profiles = []
        for number in (few, few, many):  # the first one warms the server
            load(number)
            profiles.append(server.take())
        cost = profiles[2].each(profiles[1], many - few)
        self.figures.add(row, who, 0, **dict(zip(METRICS, (
            cost.events["Ir"], cost.references(), cost.misses("D1"), cost.misses("LL")))))
        self.show(row, who)
        if self.functions:
            print("".join(f"    {number:9.1f}  {room}\n" for room, number in cost.rooms().items() if abs(number) >= 0.5))
            print("".join(f"    {number:9.1f}  {room:22} {name}\n" for number, room, name in cost.list(self.functions)),
                  flush=True)


def echoes(messages, transport, bare, shapes=SHAPES, load=None):
    loads = {"echo": load or messages.echo}
    if bare:
        messages.measure(transport, "bare", bare, transport, loads, shapes)
    for who, loop in LOOPS.items():
        messages.measure(transport, who, [BUILD / "conn-perf", "server", "--echo", "--event-loop", loop,
                                          "--listen", messages.listen(transport)], transport, loads, shapes)


def values(messages, transport, shapes):
    for who, loop in LOOPS.items():
        messages.measure(transport, who, [BUILD / "kv-server", "--event-loop", loop,
                                          "--listen", messages.listen(transport)], transport,
                         {"GET": messages.get, "SET": messages.set}, shapes)


# ---- on this machine ------------------------------------------------------------------------------
@host
def tcp_echo(messages):
    echoes(messages, "tcp", [BUILD / "bench/epoll-echo", messages.url("tcp")])


@host
def tcp_above(messages):
    """Built on the connections: coroutines, the C binding, handlers of a program for comparison."""
    for who, argv in (("handlers", ["co-echo", "--handlers"]), ("coroutines", ["co-echo"]), ("C", ["c-echo"])):
        messages.measure("tcp", who, [BUILD / "bench" / argv[0], *argv[1:], messages.url("tcp")], "tcp",
                         {"echo": messages.echo}, SHAPES[:4])


@host
def tcp_python(messages):
    """Echo servers with asyncio's streams."""
    for who in python_echo.available(messages):
        messages.measure("python", who, python_echo.argv(who, messages.url("tcp")), "tcp", {"echo": messages.echo},
                         [(1, 1, 64), (64, 1, 64), (1, 1, 65536)], python_echo.environment())


@host
def unix_echo(messages):
    echoes(messages, "unix", [BUILD / "bench/epoll-echo", messages.url("unix")])


@host
def tls_echo(messages):
    echoes(messages, "tls", [BUILD / "bench/tls-echo", messages.url("tcp"), "--cert", messages.folder / "cert.pem",
                             "--key", messages.folder / "key.pem", "--read-ahead"])


@host
def tcp_values(messages):
    values(messages, "tcp", SHAPES[:4])


# ---- in the microVM -------------------------------------------------------------------------------
@guest
def rdma_echo(messages):
    echoes(messages, "rdma", [BUILD / "bench/verbs-echo", "server", f"{messages.address}:{messages.port}"],
           SHAPES[:4], messages.bare_echo)
    listen = messages.listen("rdma").replace("rdma:", "rdma|tcp:")
    messages.measure("rdma", "rdma|tcp, EpollLoop", [BUILD / "conn-perf", "server", "--echo", "--event-loop", "epoll",
                                                     "--listen", listen], "rdma", {"echo": messages.bare_echo}, SHAPES[:4])


@guest
def rdma_values(messages):
    values(messages, "rdma", SHAPES[:4])
    valkey = os.environ.get("VALKEY")
    if not valkey:
        return messages.missing("rdma GET Valkey", "VALKEY= names no build of Valkey")
    # valkey-server does not release the resources of closed connections: a new one for each shape.
    for shape in SHAPES[:4]:
        messages.measure("rdma", "Valkey", [f"{valkey}/valkey-server", "--port", 0, "--save", "", "--appendonly", "no",
                                            "--protected-mode", "no", "--rdma-port", messages.port,
                                            "--rdma-bind", messages.address], "rdma", {"GET": messages.get}, [shape])


@guest
def tls_rdma_echo(messages):
    echoes(messages, "tls+rdma", None, SHAPES[:4])


# ---- the tables -----------------------------------------------------------------------------------
def tables(figures):
    """Of what all servers of a transport cost, by shape, and of what memory they touch."""
    instructions = by_row(figures, "instructions")
    rows = {}  # {"tcp echo": {shape: {who: cost}}}
    for row, costs in instructions.items():
        what, connections, size, unit = row.rsplit(" ", 3)
        rows.setdefault(what, {})[f"{connections} {size} {unit}"] = costs
    for what, costs in rows.items():
        shapes = [shape for shape in (*SHAPES, (1, 1, 65536)) if shape_text(shape) in costs]
        echo = rows.get(what.rsplit(" ", 1)[0] + " echo", {})

        def line(name, cells):
            print(f"{name:26}" + "".join(f"{cell:>16}" for cell in cells))

        def bare(shape):
            return echo.get(shape_text(shape), {}).get("bare")

        print()
        line(what, map(shape_text, shapes))
        whos = list(dict.fromkeys(who for cells in costs.values() for who in cells))
        for who in whos:
            numbers = [(costs[shape_text(shape)].get(who), bare(shape)) for shape in shapes]
            line(who, ["-" if mine is None else f"{mine:,.0f}" + (f" ({mine / theirs:.2f})" if theirs else "")
                       for mine, theirs in numbers])
        factor, aims = FACTORS.get(what), NUMBERS.get(what, {})
        if factor or aims:
            line("aim", [f"{number:,.0f}" if number else "-" for number in
                         [bare(shape) and bare(shape) * factor if factor else aims.get(shape) for shape in shapes]])
        for metric, text in MEMORY.items():
            for who in whos:
                values_ = [figures.median(f"{what} {shape_text(shape)}", who, metric) for shape in shapes]
                line(f"  {text}, {who}", ["-" if value is None else f"{round(value, 1) + 0.0:,.1f}" for value in values_])


def main(suite, out, rounds, quick, only, functions):
    def make(*arguments):
        messages = Messages(*arguments)
        messages.functions = functions
        return messages
    bed.main(suite, host if suite == "messages" else guest, make, out, rounds, quick, only, at_end=tables)
