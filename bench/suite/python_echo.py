# SPDX-License-Identifier: BSD-3-Clause
"""An echo server with asyncio's streams over tcp: this package's, asyncio's own, and uvloop's.

The server is the same program (bench/python/echo.py), and conn-perf is the load of all three. The
interpreter is /usr/bin/python3, for which the distribution packages uvloop.
"""

from . import bed
from .figures import ratio_text
from .processes import BUILD, Failure, Server, run

PYTHON = "/usr/bin/python3"
WHOS = ("aeconn", "asyncio", "uvloop")
SHAPES = {(64, 1): 10000, (64, 50): 40000, (65536, 1): 8000, (65536, 50): 16000}  # size, connections: requests


def argv(who, url):
    return [PYTHON, "-B", "bench/python/echo.py", who, url]


def environment():
    library = (BUILD / "libaeconn-c.so").resolve()
    return {"AECONN_LIBRARY": str(library), "PYTHONHASHSEED": "0"}


def available(host):
    """The servers that can run here; says why another cannot."""
    found = []
    for who in WHOS:
        if who == "uvloop":
            try:
                run([PYTHON, "-c", "import uvloop"])
            except Failure:
                host.missing("python uvloop", "it is not installed (package python3-uvloop)")
                continue
        found.append(who)
    return found


def rates(host):
    whos = available(host)
    for (size, connections), requests in SHAPES.items():
        requests = requests // 4 if host.quick else requests
        name = f"python streams tcp {'64 B' if size == 64 else '64 KiB'} c={connections}"

        def start(who):
            url = host.url(f"python-{who}", "tcp")
            return host.keep(f"python {who}", lambda: Server(argv(who, url), r"listening on", env=environment()))

        host.turns(name, [(who, host.echo(lambda who=who: start(who), host.url(f"python-{who}", "tcp"), connections, 1,
                                          requests, size, 1, "--no-verify")) for who in whos])
        print(f"{name:40} aeconn to " + ", ".join(
            f"{other}: rate {ratio_text(host.figures.ratio(name, 'aeconn', other, 'rps'))}, server's CPU "
            f"{ratio_text(host.figures.ratio(name, 'aeconn', other, 'cpu_us'))}" for other in whos[1:]), flush=True)
    for who in whos:
        host.stop(f"python {who}")
