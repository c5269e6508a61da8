# SPDX-License-Identifier: BSD-3-Clause
"""For memcached.py: cases, servers of memcached, and a client that speaks its text protocol."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bindings", "python"))
import aeconn  # noqa: E402

PROGRAM, WORK, *LISTEN = sys.argv[1:]
KEYS = f"cert={WORK}/cert&key={WORK}/key"
SLOWER = int(os.environ.get("AECONN_SLOWER", "1")) * (6 if "rdma" in "".join(LISTEN) else 1)
TOO_MANY = b"ERROR Too many open connections\r\n"
passed = failed = names = 0


def ok(name, condition, why=""):
    global passed, failed
    if condition:
        passed += 1
        print("ok", name, flush=True)
    else:
        failed += 1
        print(f"FAIL {name}: {str(why)[:600]}", flush=True)


@contextlib.contextmanager
def case(name):
    """A failed assertion or an exception in it is a failure of this case."""
    try:
        yield
        ok(name, True)
    except Exception as error:  # noqa: BLE001
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        ok(name, False, f"lines {lines}: {error!r}")


def until(condition, seconds=20):
    end = time.monotonic() + seconds * SLOWER
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{condition} does not come true")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fresh(url):
    """Replaces `*`: by a port after an address, else by a part of a name."""
    global names
    names += 1
    path = "unix" in url or "shm" in url
    return url.replace("*", f"{names}.sock" if path else str(free_port()))


def to_connect(url):
    """The URL for a client: it trusts the certificate, or the path."""
    place = url.partition("?")[0]
    if not url.startswith("tls"):
        return place
    return f"{place}?verify=no" if "unix" in url or "shm" in url else f"{place}?ca={WORK}/cert"


class Client:
    def __init__(self, url, timeout=20):
        self.socket = aeconn.connect(to_connect(url), timeout * SLOWER)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def line(self):
        return self.file.readline().decode().rstrip("\r\n")

    def ask(self, text):
        self.send(text + "\r\n")
        return self.line()

    def put(self, key, value):
        self.send(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value))
        assert self.line() == "STORED"

    def value(self):
        head = self.line()
        assert head.startswith("VALUE "), head
        value = self.file.read(int(head.split()[3]) + 2)[:-2]
        assert self.line() == "END"
        return value

    def get(self, key):
        self.send(f"get {key}\r\n")
        return self.value()

    def table(self, command="stats"):
        self.send(command + "\r\n")
        rows = []
        self.told = 5
        while (line := self.line()) != "END":
            assert line.startswith("STAT "), line
            rows.append(tuple(line.split(" ", 2)[1:]))
            self.told += len(line) + 2
        return rows

    def stat(self, name, command="stats"):
        return dict(self.table(command))[name]

    def at_end(self):
        """What comes until the end of the stream, which must not be a cut."""
        return self.file.read()

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def arguments(urls, *options):
    words = [PROGRAM, "-p", "0", "-U", "0", "-t", "2"]
    if os.getuid() == 0:
        words += ["-u", "root"]
    for url in urls:
        words += ["-o", "aeconn=" + url]
    return [*words, *options]


class Server:
    def __init__(self, urls, *options):
        self.urls = [fresh(url) for url in urls]
        self.log = os.path.join(WORK, f"log{names}.{free_port()}")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(arguments(self.urls, *options), stderr=log, stdout=log)
        try:
            until(lambda: self.process.poll() is not None or self.up())
        except BaseException:
            self.process.kill()
            raise
        assert self.process.poll() is None, self.said()

    def up(self):
        try:
            Client(self.urls[-1]).close()
            return True
        except OSError:
            return False

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ended(self):
        try:
            return self.process.wait(30 * SLOWER)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "it does not end"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.ended()


def refuses(name, pattern, urls, *options):
    """One line on standard error, and status 1."""
    ran = subprocess.run(arguments(urls, *options), capture_output=True, text=True, timeout=60 * SLOWER)
    lines = ran.stderr.splitlines()
    good = ran.returncode == 1 and len(lines) == 1 and not ran.stdout and re.search(pattern, lines[0])
    ok(name, good, f"status {ran.returncode}, {ran.stdout}, {ran.stderr}")


def total():
    print(f"{passed} passed, {failed} failed")
    return failed != 0
