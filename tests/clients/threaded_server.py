# SPDX-License-Identifier: BSD-3-Clause
"""threaded_server.py PROGRAM FOLDER: examples/c/threaded_server.c with clients on many threads."""

import os
import pwd
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

PROGRAM, FOLDER = sys.argv[1:]
WORKERS, CLIENTS = 3, 64
PATIENCE = 60 * int(os.environ.get("AECONN_SLOWER", "1"))
cases = 0


def ok(name):
    global cases
    cases += 1
    print("ok", name)


class Server:
    def __init__(self, *urls, user="-"):
        self.process = subprocess.Popen([PROGRAM, user, *urls], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.urls = [self.process.stdout.readline().strip() for _ in urls]
        if not all(self.urls):
            raise AssertionError(self.process.stderr.read())

    def client(self, at=0):
        return Client(self.urls[at])

    def end(self, signum=None, status=0):
        if signum is not None:
            self.process.send_signal(signum)
        _, errors = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == status, (self.process.returncode, errors)
        assert not errors, errors


class Client:
    def __init__(self, url):
        scheme, rest = url.split(":", 1)
        rest = rest.split("?")[0]
        if scheme == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE)
            self.socket.connect(rest.replace("//", "", 1) if rest.startswith("//") else rest)
        else:
            host, port = rest.removeprefix("//").rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), PATIENCE)
        if scheme == "tls":
            context = ssl.create_default_context(cafile=FOLDER + "/cert.pem")
            context.check_hostname = False
            self.socket = context.wrap_socket(self.socket)
        self.file = self.socket.makefile("rb")
        greeting = self.line()
        if greeting == "too many clients":
            self.number = self.worker = None
        else:
            words = greeting.split()
            assert words[:2] == ["you", "are"], greeting
            self.number, self.worker = int(words[2]), int(words[-1])

    def say(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def line(self):
        return self.file.readline().decode().rstrip("\n")

    def echo(self, text="hello"):
        self.say(text)
        got = self.line()
        assert got == text, got

    def stats(self):
        self.say("stats")
        lines = []
        while not lines or lines[-1] != "end":
            lines.append(self.line())
            assert lines[-1], lines
        return lines

    def ended(self):
        try:
            return self.file.read() is not None
        except ConnectionResetError:
            return True

    def close(self):
        self.file.close()
        self.socket.close()


def together(count, body):
    """Runs body(i) on that many threads; raises the first failure."""
    failures = []

    def run(i):
        try:
            body(i)
        except BaseException as failure:  # noqa: told below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]


def twelve(server, at):
    """Clients, as many on each worker; those of the case before may still be ending, uneven."""
    clients = []

    def even():
        for each in clients:
            each.close()
        clients[:] = [server.client(at) for _ in range(12)]
        workers = [each.worker for each in clients]
        return all(workers.count(each) == 12 // WORKERS for each in range(WORKERS))

    until(even)
    return clients


def serves(server, at):
    clients = twelve(server, at)
    together(12, lambda i: [clients[i].echo(f"{i} {n}") for n in range(50)])

    def ask(i):
        for _ in range(20):
            lines = clients[i].stats()
            assert lines.count("worker") == WORKERS, lines
            opened = [int(each.split()[1]) for each in lines if each.startswith("open ")]
            assert len(opened) == WORKERS and sum(opened) >= 12, lines

    together(12, ask)
    # Each closes the next one, all at once.
    together(6, lambda i: clients[i].say(f"close {clients[i + 6].number}"))
    for each in clients[6:]:
        assert each.ended()
        each.close()
    for each in clients[:6]:
        each.echo("still here")
        each.close()
    watching = server.client(at)
    watching.say("watch")
    assert [watching.line() for _ in range(5)] == ["tick"] * 5
    watching.close()
    long = server.client(at)
    long.socket.sendall(b"x" * 10000)
    assert long.ended()
    long.close()


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_use(server, at):
    """How often a client, when it comes, is turned away."""
    probe = server.client(at)
    number = probe.number
    probe.close()
    return number is None


def limited(server, at):
    until(lambda: not in_use(server, at))
    clients = []
    while not clients or clients[-1].number is not None:
        clients.append(server.client(at))
    assert CLIENTS - 2 <= len(clients) - 1 <= CLIENTS, len(clients)
    assert len({each.number for each in clients}) == len(clients)
    assert clients[-1].ended()
    for each in clients:
        each.close()
    until(lambda: not in_use(server, at))


def drained(urls):
    """SIGTERM: clients between two requests end, the others once they are answered."""
    server = Server(*urls)
    idle, asking = ([server.client(at) for at in range(len(urls))] for _ in range(2))
    for each in asking:
        each.socket.sendall(b"ha")
    server.process.send_signal(signal.SIGTERM)
    for each in idle:
        assert each.ended()
    try:
        server.client()
        raise AssertionError("it still listens")
    except ConnectionError:
        pass
    for each in asking:
        each.socket.sendall(b"lf\nmore\n")
        assert each.line() == "half" and each.line() == "more" and each.ended()
    server.end()


def cut(urls):
    """A second signal ends those that are left, and the status says so."""
    server = Server(*urls)
    idle, asking = server.client(), [server.client(at) for at in range(len(urls))]
    for each in asking:
        each.socket.sendall(b"ha")
    server.process.send_signal(signal.SIGTERM)
    assert idle.ended()
    time.sleep(0.2)  # signals that are closer together are one
    server.end(signal.SIGTERM, status=1)
    for each in asking:
        assert each.ended()


def churn(server, at, over):
    """Clients that come, go, close others and ask, until the server has gone."""

    def body(i):
        for n in range(10**9):
            try:
                client = server.client(at)
                client.echo()
                client.say(f"close {(i * 7 + n) % CLIENTS}")
                client.say("stats")
                client.socket.recv(100)
                client.close()
            except (OSError, AssertionError, ValueError, IndexError):
                if over.is_set():
                    return

    return threading.Thread(target=together, args=(6, body))


def main():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", FOLDER + "/key.pem", "-out", FOLDER + "/cert.pem"], check=True,
                   capture_output=True)
    tls = f"tls://127.0.0.1:0?cert={FOLDER}/cert.pem&key={FOLDER}/key.pem"
    urls = ["tcp://127.0.0.1:0", f"unix://{FOLDER}/socket", tls]
    server = Server(*urls)
    for at, url in enumerate(urls):
        name = url.split(":")[0]
        serves(server, at)
        ok(f"{name}: workers, statistics on all of them, closing by number, a thread beside them")
        limited(server, at)
        ok(f"{name}: a limit of clients, by number")
    staying = [server.client(at) for at in range(3)]
    server.end(signal.SIGTERM)
    for each in staying:
        assert each.ended()
    ok("SIGTERM ends it, with clients there")
    drained(urls)
    ok("SIGTERM: requests under way are answered")
    cut(urls)
    ok("a second signal cuts them")

    for way in ("main() returns", "exit(3) on a worker", "SIGTERM"):
        for times in range(5):
            over = threading.Event()
            server = Server(*urls)
            traffic = [churn(server, at, over) for at in range(3)]
            for each in traffic:
                each.start()
            time.sleep(0.2)
            over.set()
            if way != "SIGTERM":
                word = "leave" if way == "main() returns" else "quit"
                while server.process.poll() is None:
                    try:
                        server.client().say(word)
                        server.process.wait(0.2)
                    except (OSError, AssertionError, ValueError, IndexError,
                            subprocess.TimeoutExpired):
                        pass
                server.end()
            else:
                server.end(signal.SIGTERM)
            for each in traffic:
                each.join()
        ok(f"{way} while all workers serve")

    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chmod(FOLDER, 0o755)
        os.chmod(FOLDER + "/key.pem", 0o600)
        server = Server(tls, user="nobody")
        status = open(f"/proc/{server.process.pid}/status", encoding="ascii").read()
        assert f"Uid:\t{nobody.pw_uid}\t{nobody.pw_uid}" in status, status
        server.client().echo()
        server.end(signal.SIGTERM)
        ok("keys of root alone are read before privileges go")
    print(f"{cases} passed, 0 failed")


main()
