# SPDX-License-Identifier: BSD-3-Clause
"""Common behaviour of the programs: arguments, standard streams, and texts chosen by peers.

BUILD WORK: the folder with the programs, and one for sockets and files.
"""

import os
import re
import socket
import subprocess
import sys
import threading

BUILD, WORK = sys.argv[1:3]
LIMIT = 60 * int(os.environ.get("AECONN_SLOWER", "1"))
results = {"passed": 0, "failed": 0}
running = []


def check(name, good, got=""):
    results["passed" if good else "failed"] += 1
    print(f"ok {name}" if good else f"FAIL {name}: {str(got)[:400]}", flush=True)


def program(name):
    return os.path.join(BUILD, name)


def run(name, *arguments, **more):
    """Status, standard output and error of a program that ends by itself."""
    more.setdefault("stdin", subprocess.DEVNULL)
    if "input" in more:
        del more["stdin"]
    done = subprocess.run([program(name), *arguments], timeout=LIMIT,
                          stdout=more.pop("stdout", subprocess.PIPE),
                          stderr=more.pop("stderr", subprocess.PIPE), **more)
    return done.returncode, done.stdout or b"", done.stderr or b""


class Server:
    """A server program of this project, with its URL."""

    def __init__(self, name, *arguments, listening=1):
        self.log = open(os.path.join(WORK, f"server{len(running)}.log"), "w+b")
        self.process = subprocess.Popen([program(name), *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log)
        running.append(self.process)
        self.urls = [self.process.stdout.readline().decode().split()[-1]
                     for _ in range(listening)]
        self.url = self.urls[0]

    def text(self):
        with open(self.log.name, "rb") as file:
            return file.read()

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT)


class Peer:
    """A simple server: `serve` is called with each connection."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.open = []

        def accept():
            while True:
                try:
                    connection = self.listener.accept()[0]
                except OSError:
                    return
                self.open.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()


# ---- arguments ----------------------------------------------------------------------------------

WORDS = [b"[v]", b"[a,b]", b"[]", b"[", b"{}", b"%%", b"", b"a,b", b"@file", b"--", b"-u", b"--help",
         b'"q"', b"'q'", b"`x`", b"$HOME", b"\\n", b" a ", b"a\nb", b"\1", b"\1\1", b"\xff\xfe",
         bytes(range(1, 256))]


def arguments():
    server = Server("kv-server", "--listen", f"unix://{WORK}/arguments.sock")
    cli = ["-u", server.url]
    for word in WORDS:
        code, out, _ = run("kv-cli", *cli, "SET", word, word, "NX")
        check(f"kv-cli SET {word[:20]!r}", (code, out) == (0, b"OK\n"), out)
        check(f"kv-cli GET {word[:20]!r}", run("kv-cli", *cli, "GET", word)[1] == word + b"\n")
        check(f"kv-cli -- GET {word[:20]!r}",
              run("kv-cli", *cli, "--", "GET", word)[1] == word + b"\n")
        code, out, _ = run("kv-cli", *cli, "DEL", word)
        check(f"kv-cli DEL {word[:20]!r}", out == b"1\n", out)
    run("kv-cli", *cli, "MSET", "a", "1", "b", "2")
    check("kv-cli DEL '[a,b]' deletes neither", run("kv-cli", *cli, "DEL", "[a,b]")[1] == b"0\n")
    check("nor has it", run("kv-cli", *cli, "DBSIZE")[1] == b"2\n")
    check("a command in brackets", b"unknown command '[PING]'" in run("kv-cli", *cli, "[PING]")[1])
    server.stop()
    for password in (b"[x,y]", b"[]", b"a,b", b"{}", b"-p"):
        server = Server("kv-server", "--listen", f"unix://{WORK}/password.sock", b"--requirepass",
                        password)
        for form in ([b"-a", password], [b"--pass", password], [b"--pass=" + password],
                     [b"-a" + password]):
            code, out, error = run("kv-cli", "-u", server.url, *form, "PING")
            check(f"the password {password!r} as {form[0][:8]!r}", out == b"PONG\n", out + error)
        server.stop()
    for name, *line in (("kv-cli", "-u"), ("kv-server", "--listen"), ("kv-server", "--metrics"),
                        ("aeconn-proxy", "--connect"), ("aeconn-doctor",),
                        ("aeconn-doctor", "--serve"), ("aeconn-doctor", "--limits"),
                        ("conn-perf", "server", "--listen"), ("conn-perf", "client"),
                        ("conn-perf", "plot")):
        code, out, error = run(name, *line, "[a,b]")
        check(f"{name} {' '.join(line)} '[a,b]' names it", b"[a,b]" in error and code != 0, error)


# ---- standard streams ---------------------------------------------------------------------------

def full(server, perf):
    lines = [("kv-cli", "-u", server.url, "PING"), ("kv-cli", "-u", server.url, "--bench", "10"),
             ("kv-cli", "-u", server.url, "--redial", "PING"), ("kv-cli", "-u", server.url),
             ("kv-cli", "-u", server.url, "--pipe"), ("kv-cli", "-u", server.url, "-r", "-1", "PING"),
             ("kv-server", "--listen", "tcp://127.0.0.1:0"),
             ("kv-server", "--listen", "tcp://127.0.0.1:0", "--metrics", "tcp://127.0.0.1:0"),
             ("aeconn-proxy", "--listen", "tcp://127.0.0.1:0", "--connect", server.url),
             ("aeconn-doctor", "--limits", "tcp://127.0.0.1:1"),
             ("aeconn-doctor", "--json", "--limits", "tcp://127.0.0.1:1"),
             ("aeconn-doctor", "--serve", "tcp://127.0.0.1:0"), ("aeconn-doctor", server.url),
             ("aeconn-doctor", "--json", server.url),
             ("conn-perf", "server", "--listen", "tcp://127.0.0.1:0")]
    client = ("conn-perf", "client", perf.url, "--requests", "10", "--warmup", "0")
    lines += [client, client + ("--json", "-"), client + ("--csv", "-")]
    for name in ("kv-cli", "kv-server", "aeconn-proxy", "aeconn-doctor", "conn-perf"):
        lines += [(name, "--help"), (name, "--version"), (name, "--write-page", "man"),
                  (name, "--write-page", "bash")]
    for line in lines:
        with open("/dev/full", "wb") as device:
            code, _, error = run(*line, stdout=device, input=b"PING\r\n" if line[0] == "kv-cli" else b"")
        wanted = rb"^(kv-cli: connected: [^\n]*\n)?[a-z-]+: cannot write to standard output: No space left on device\n$"
        check(f"/dev/full: {' '.join(line[:1] + line[1:5])}", code == 1 and re.match(wanted, error),
              (code, error))


def reader_gone(server):
    """A pipe whose reader has left is an error of writing, and no signal: whoever makes a server log
    a line does not end it."""
    def pipe_without_reader():
        out_of, into = os.pipe()
        os.close(out_of)
        return into

    for line in (("kv-cli", "-u", server.url, "PING"), ("aeconn-doctor", server.url),
                 ("conn-perf", "--help"), ("kv-server", "--listen", "tcp://127.0.0.1:0")):
        into = pipe_without_reader()
        code, _, error = run(*line, stdout=into)
        os.close(into)
        check(f"a reader that left: {line[0]}", code == 1 and error ==
              line[0].encode() + b": cannot write to standard output: Broken pipe\n", (code, error))
    for line in (("kv-server", "--listen"), ("conn-perf", "server", "--listen"),
                 ("aeconn-proxy", "--connect", f"unix://{WORK}/nobody", "--listen")):
        into = pipe_without_reader()
        one = subprocess.Popen([program(line[0]), *line[1:], "tcp://127.0.0.1:0"], stderr=into,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        running.append(one)
        os.close(into)
        port = int(one.stdout.readline().decode().rsplit(":", 1)[1])
        for _ in range(3):
            try:
                with socket.create_connection(("127.0.0.1", port), LIMIT) as client:
                    client.sendall(b"*nonsense\r\n" + bytes(100))  # each of them logs a line
                    until_end(client)
            except ConnectionError:  # the proxy resets it
                pass
        one.terminate()
        check(f"{line[0]} without a reader of its log: it ends when told", one.wait(LIMIT) == 0,
              one.returncode)


def failing_input(server):
    folder = os.open("/", os.O_RDONLY)
    for more in ([], ["--pipe"]):
        code, _, error = run("kv-cli", "-u", server.url, *more, stdin=folder)
        check(f"kv-cli {more}: input that fails",
              code == 1 and b"kv-cli: cannot read standard input: Is a directory\n" == error,
              (code, error))
    os.close(folder)


def input_not_ready(server):
    """EAGAIN on standard input makes a program wait: the second half comes after the first
    was obeyed."""
    for more in ([], ["--pipe"]):
        out_of, into = os.pipe()
        os.set_blocking(out_of, False)
        shell = subprocess.Popen([program("kv-cli"), "-u", server.url, *more], stdin=out_of,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        running.append(shell)
        os.close(out_of)
        run("kv-cli", "-u", server.url, "SET", "n", "0")
        os.write(into, b"INCR n\r\n")
        while run("kv-cli", "-u", server.url, "GET", "n")[1] != b"1\n":
            pass
        os.write(into, b"INCR n")
        os.write(into, b"\r\nINCR n\r\nINCR n")
        os.close(into)
        out = shell.communicate(timeout=LIMIT)[0]
        check(f"kv-cli {more}: input that is not ready is no end",
              shell.returncode == 0 and run("kv-cli", "-u", server.url, "GET", "n")[1] == b"4\n",
              (shell.returncode, out))


def closed(line, descriptors):
    """Starts a program without some of its first three descriptors."""
    def close():
        for each in descriptors:
            os.close(each)
    process = subprocess.Popen([program(line[0]), *line[1:]], preexec_fn=close,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    running.append(process)
    return process


def closed_streams(server, perf):
    errors = lambda: re.search(rb"total_error_replies:(\d+)",
                               run("kv-cli", "-u", server.url, "INFO")[1]).group(1)
    before = errors()
    for missing in ((0, 1, 2), (0,), (1,), (2,), (1, 2)):
        value = "".join(map(str, missing))
        one = closed(("kv-cli", "-u", server.url, "--verbose", "SET", "closed", value), missing)
        check(f"kv-cli without {missing}: status", one.wait(LIMIT) == 0, one.returncode)
        got = run("kv-cli", "-u", server.url, "GET", "closed")[1]
        check(f"kv-cli without {missing}: it did it", got == value.encode() + b"\n", got)
    check("nothing of its own went into the connection", errors() == before)
    one = closed(("conn-perf", "client", perf.url, "--requests", "10", "--warmup", "0"), (0, 1, 2))
    check("conn-perf client without (0, 1, 2)", one.wait(LIMIT) == 0, one.returncode)
    one = closed(("aeconn-doctor", server.url), (0, 1, 2))
    check("aeconn-doctor without (0, 1, 2)", one.wait(LIMIT) in (0, 1), one.returncode)
    place = f"unix://{WORK}/closed.sock"
    for line in (("kv-server", "--listen", place), ("conn-perf", "server", "--listen", place),
                 ("aeconn-proxy", "--listen", place, "--connect", server.url),
                 ("aeconn-doctor", "--serve", place)):
        one = closed(line, (0, 1, 2))
        while one.poll() is None and not os.path.exists(f"{WORK}/closed.sock"):
            pass
        links = [os.readlink(f"/proc/{one.pid}/fd/{fd}") for fd in (0, 1, 2)]
        check(f"{line[0]} without (0, 1, 2): they are /dev/null", links == ["/dev/null"] * 3, links)
        one.terminate()
        check(f"{line[0]} without (0, 1, 2): it ends", one.wait(LIMIT) == 0, one.returncode)


def told_to_end_at_once(server):
    """A server that listens ends in order when SIGTERM comes, even before it has said so: here its
    standard output takes nothing until the signal was sent."""
    path = f"{WORK}/at_once.sock"
    place = f"unix://{path}"
    for line in (("kv-server", "--listen", place), ("conn-perf", "server", "--listen", place),
                 ("aeconn-proxy", "--listen", place, "--connect", server.url),
                 ("aeconn-doctor", "--serve", place)):
        out_of, into = os.pipe()
        os.set_blocking(into, False)
        try:
            while True:
                os.write(into, bytes(4096))
        except BlockingIOError:
            os.set_blocking(into, True)
        one = subprocess.Popen([program(line[0]), *line[1:]], stdin=subprocess.DEVNULL, stdout=into,
                               stderr=subprocess.DEVNULL)
        running.append(one)
        os.close(into)
        while one.poll() is None and not os.path.exists(path):
            pass
        one.terminate()
        while os.read(out_of, 1 << 16):
            pass
        os.close(out_of)
        check(f"{line[0]} told to end as soon as it listens: status", one.wait(LIMIT) == 0,
              one.returncode)
        check(f"{line[0]} told to end as soon as it listens: its socket is gone",
              not os.path.exists(path))


# ---- kv-cli --pipe -------------------------------------------------------------------------------

def pipe():
    server = Server("kv-server", "--listen", "tcp://127.0.0.1:0", "--requirepass", "secret")
    code, out, error = run("kv-cli", "-u", server.url, "--pipe", input=b"PING\r\n")
    check("--pipe without the password: status", code == 1, code)
    check("--pipe without the password: the error", b"NOAUTH " in out, out)
    check("--pipe without the password: why", b"asks for a password" in error, error)
    code, out, error = run("kv-cli", "-u", server.url, "--pipe", input=b"AUTH secret\r\nPING\r\n")
    check("--pipe with the password in its input", (code, error) == (0, b""), (code, out, error))
    code, out, error = run("kv-cli", "-u", server.url, "-a", "secret", "--pipe",
                           input=b"*1\r\n$4\r\nPING\r\nINCR a b\r\n\r\n*0\r\nPING")
    check("--pipe counts", out.endswith(b"errors: 1, replies: 3\n"), out)
    server.stop()

    code, out, error = run("kv-cli", "-u", Peer(lambda connection: connection.close()).url, "--pipe",
                           input=b"PING\r\n")
    check("--pipe to a server that leaves", code == 1 and b"kv-cli: " in error, (code, error))


# ---- kv-cli --bench ------------------------------------------------------------------------------

def bench():
    """Of a hundred round trips, one of which is slow, 99 are faster."""
    def answer(connection):
        for number, line in enumerate(connection.makefile("rb")):
            if number == 3 * 60:  # a request has three lines
                threading.Event().wait(1)
            if line == b"PING\r\n":
                connection.sendall(b"+PONG\r\n")

    _, out, error = run("kv-cli", "-u", Peer(answer).url, "--bench", "100")
    found = re.search(rb"mean ([0-9.]+), p50 ([0-9.]+), p99 ([0-9.]+)$", out.strip())
    check("--bench: p99 leaves out the slowest of a hundred",
          found and float(found[1]) > 9000 and float(found[3]) < 900000, out + error)


# ---- aeconn-doctor -------------------------------------------------------------------------------

def doctor():
    def leave(connection):
        connection.recv(100)
        connection.close()

    def speak(connection):
        connection.sendall(b"220 welcome\r\n")

    silent = Peer(lambda connection: None)
    code, out, _ = run("aeconn-doctor", "--timeout", "0.3", silent.url)
    dialled = b"\n".join(line for line in out.splitlines() if b"tcp: " in line or b"The first" in line)
    check("a silent server: the connection is established", b"tcp: connect" in dialled and
          b"the connection is established, but 127.0.0.1:" in dialled, out)
    check("a silent server: neither route nor firewall", code == 1 and
          not re.search(rb"firewall|route|ping", dialled) and b"does not answer" in dialled, out)
    code, out, error = run("aeconn-doctor", "--timeout", "nan", silent.url)
    check("--timeout nan", (code, out) == (2, b"") and b"--timeout" in error, (code, out, error))
    code, out, _ = run("aeconn-doctor", Peer(leave).url)
    check("a server that leaves", b"the connection was established, but 127.0.0.1:" in out and
          b"closed it" in out and b"ended the connection" in out, out)
    code, out, _ = run("aeconn-doctor", "--timeout", "0.3", Peer(speak).url)
    check("a server that is no Redis: it is established and says so",
          b"the connection is established" in out or b"something else answered" in out, out)


# ---- names of peers ------------------------------------------------------------------------------

EVIL = b"a\nid=99 addr=false fd=0\x1b[2J\r\xff\xc2\x9b"


def named_client(path, number):
    client = socket.socket(socket.AF_UNIX)
    name = WORK.encode() + b"/%d" % number + EVIL
    client.bind(name)
    client.connect(path)
    return client


def until_end(client):
    """The end may be a reset."""
    try:
        while client.recv(1000):
            pass
    except ConnectionError:
        pass


def clean_lines(text, begin):
    return all(line.startswith(begin) and all(32 <= byte < 127 for byte in line)
               for line in text.splitlines())


def names():
    server = Server("kv-server", "--listen", f"unix://{WORK}/names.sock", "--loglevel", "verbose")
    client = named_client(f"{WORK}/names.sock", 1)
    for command in (b"CLIENT LIST", b"CLIENT INFO"):
        client.sendall(command + b"\r\n")
        answer = client.recv(100000)
        while not answer.endswith(b"\r\n") or answer.count(b"\r\n") < 2:
            answer += client.recv(100000)
        text = answer.split(b"\r\n", 1)[1][:-2]
        check(f"{command.decode()}: one line, its own fields",
              text.count(b"\n") <= 1 and text.count(b" addr=") == 1 and
              clean_lines(text.strip(), b"id="), text)
    client.sendall(b"*1\r\nbad\r\n")
    until_end(client)
    check("kv-server's log", clean_lines(server.text(), b"kv-server: "), server.text())
    server.stop()

    proxy = Server("aeconn-proxy", "--listen", f"unix://{WORK}/named.sock", "--connect",
                   f"unix://{WORK}/nobody", "--verbose")
    client = named_client(f"{WORK}/named.sock", 2)
    until_end(client)
    proxy.stop()
    check("aeconn-proxy's log", clean_lines(proxy.text(), b"aeconn-proxy: "), proxy.text())

    perf = Server("conn-perf", "server", "--listen", f"unix://{WORK}/perf.sock")
    client = named_client(f"{WORK}/perf.sock", 3)
    client.sendall(bytes(range(256)))
    until_end(client)
    perf.stop()
    check("conn-perf's log", clean_lines(perf.text(), b"conn-perf: ") and b"connection" in perf.text(),
          perf.text())

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(WORK.encode() + b"/l" + EVIL)
    listener.listen()
    place = b"unix://" + WORK.encode() + b"/l" + EVIL
    _, out, error = run("aeconn-doctor", "--timeout", "0.3", place)
    check("aeconn-doctor's lines", clean_lines((out + error).replace(b"\n\n", b"\n"), b""), out + error)

    def answer(connection):
        for line in connection.makefile("rb"):
            if line.startswith((b"PING", b"ECHO")):
                connection.sendall(b"-ERR \x1b[2J\x07\x9b\xff evil\r\n")

    for more in ([], ["--pipe"]):
        _, out, error = run("kv-cli", "-u", Peer(answer).url, *more, input=b"PING\r\n")
        check(f"kv-cli {more}: the text of a server's error",
              clean_lines(out + error, b"") and b"evil" in out + error, out + error)


def main():
    try:
        server = Server("kv-server", "--listen", "tcp://127.0.0.1:0")
        perf = Server("conn-perf", "server", "--listen", "tcp://127.0.0.1:0")
        for part in (lambda: full(server, perf), lambda: reader_gone(server),
                     lambda: failing_input(server),
                     lambda: input_not_ready(server), lambda: closed_streams(server, perf),
                     lambda: told_to_end_at_once(server),
                     arguments, pipe, bench, doctor, names):
            part()
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    print("{passed} passed, {failed} failed".format(**results))
    return 0 if results["failed"] == 0 else 1


sys.exit(main())
