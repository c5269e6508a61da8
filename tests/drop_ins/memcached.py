# SPDX-License-Identifier: BSD-3-Clause
"""memcached with aeconn's ports (docs/memcached.md): memcached.py PROGRAM FOLDER URL...

PROGRAM is what bindings/drop_ins/memcached/build made, FOLDER has `cert` and `key`, `other.cert` and
`other.key`, and room for sockets. Each URL is one to listen on; `*` in it is replaced by a free port
or name. The last line is the count.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from memcached_kit import (
    aeconn,
    Client,
    KEYS,
    LISTEN,
    Server,
    SLOWER,
    TOO_MANY,
    WORK,
    arguments,
    case,
    free_port,
    fresh,
    ok,
    refuses,
    total,
    until,
)


# --- a client over each transport ---------------------------------------------------------------


def transports(server):
    alone = str(len(server.urls))  # memcached counts a client less, and what listens
    for url in server.urls:
        scheme = url.partition(":")[0]
        with case(f"{scheme}: set, get, delete"), Client(url) as client:
            client.put("greeting", b"hello")
            assert client.get("greeting") == b"hello"
            assert client.ask("delete greeting") == "DELETED"
            assert client.ask("get greeting") == "END"
            assert client.ask("nonsense") == "ERROR"
        with case(f"{scheme}: 500 requests at once, and a value of 1,000,000 bytes"), Client(url) as client:
            large = os.urandom(1_000_000)
            client.put("large", large)
            client.send("get large\r\n" + "get nothing\r\n" * 500)
            assert client.value() == large
            assert [client.line() for _ in range(500)] == ["END"] * 500
        with case(f"{scheme}: who does not read stops himself only"), Client(url) as lazy:
            lazy.send("get large\r\n" * 50)
            with Client(url) as other:
                for _ in range(20):
                    assert other.ask("mn") == "MN"
            for _ in range(50):
                assert lazy.value() == large
        with case(f"{scheme}: watch and metadump, on threads that take the descriptor"), Client(url) as watcher:
            assert watcher.ask("watch fetchers connevents") == "OK"
            with Client(url) as other:
                other.put("seen", b"x")
                other.get("seen")
                found = ""
                while "type=item_get key=seen" not in found:
                    found += watcher.line() + "\n"
                assert "type=conn_new" in found
                other.send("lru_crawler metadump all\r\n")
                keys = list(iter(other.line, "END"))
                assert any(line.startswith("key=seen ") for line in keys)
                assert other.ask("mn") == "MN"
        with case(f"{scheme}: the server ends the stream after quit"), Client(url) as client:
            client.send("get nothing\r\nquit\r\n")
            assert client.at_end() == b"END\r\n"
        with case(f"{scheme}: 16 clients at once"):
            wrong = []

            def work(index):
                try:
                    with Client(url, 60) as client:
                        for turn in range(30):
                            value = b"%d:%d" % (index, turn) * (turn + 1)
                            client.put(f"key{index}", value)
                            assert client.get(f"key{index}") == value
                except Exception as error:  # noqa: BLE001
                    wrong.append(error)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong, wrong
        with case(f"{scheme}: nothing is left of clients that vanish"), Client(url) as client:
            until(lambda: client.stat("curr_connections") == alone)
            before = until(lambda: settled(server))
            gone = [Client(url) for _ in range(10)]
            for index, each in enumerate(gone):
                each.send("get large\r\nset half 0 0 100\r\n12345" if index % 2 else "get large\r\n")
            for each in gone:
                each.socket.abort()
            until(lambda: client.stat("curr_connections") == alone)
            until(lambda: server.descriptors() <= before)


def settled(server):
    before = server.descriptors()
    time.sleep(0.2)
    return before if server.descriptors() == before else None


def statistics(server):
    first = server.urls[0]
    with Client(first) as client:
        rows = [value for name, value in client.table("stats settings") if name == "aeconn"]
        with case("stats settings names each URL"):
            assert len(rows) == len(server.urls), rows
            for url, row in zip(server.urls, rows):
                assert row == url.partition("?")[0].replace("%2C", ","), (row, url)
        with case("stats aeconn has the counters of each transport"):
            counters = dict(client.table("stats aeconn"))
            for url in server.urls:
                scheme = url.partition(":")[0]
                assert int(counters[f'aeconn_connections_accepted_total{{scheme="{scheme}"}}']) > 0
        with case("stats conns has the real addresses"):
            rows = client.table("stats conns")
            peer = [value for name, value in rows if name.endswith(":addr")]
            local = [value for name, value in rows if name.endswith(":listen_addr")]
            host, port = re.fullmatch(r"\S+://\[?([^\]]*)\]?:(\d+).*", first).groups()
            assert f"tcp:{host}:{port}" in local, rows
            assert any(re.fullmatch(rf"tcp:{host}:\d+", each) for each in peer), rows


def all_workers(server):
    def switches():
        found = {}
        tasks = f"/proc/{server.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status", encoding="ascii") as status:
                text = status.read()
            if re.search(r"^Name:\tmc-(worker|aeconn-\d+)$", text, re.M):
                found[task] = int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", text, re.M)[1])
        return found

    for url in server.urls:
        with case(f"{url.partition(':')[0]}: each worker and each loop serves"), contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(url)) for _ in range(4)]
            before = switches()
            for _ in range(50):
                for client in clients:
                    assert client.ask("mn") == "MN"
            after = switches()
            assert len(after) == 4 and all(after[task] - before[task] >= 30 for task in after), (before, after)


# --- limits ---------------------------------------------------------------------------------------


def connection_limit():
    """As many clients over each transport as over memcached's own port, whatever descriptors each
    of them takes."""
    own = free_port()
    with Server(LISTEN, "-c", "40", "-p", str(own), "-l", "127.0.0.1") as server:
        counts = {}
        alone = len(LISTEN) + 1  # memcached counts a client less, and what listens
        for url in [f"tcp://127.0.0.1:{own}", *server.urls]:
            scheme = "own" if url.endswith(f":{own}") else url.partition(":")[0]
            with case(f"-c: {scheme}: the limit is told, and others go on"), contextlib.ExitStack() as stack:
                fits_again(server)  # those of the case before have ended
                with Client(server.urls[0]) as client:
                    until(lambda: client.stat("curr_connections") == str(alone))
                    rejected = int(client.stat("rejected_connections"))
                inside = []
                while len(inside) < 60:
                    client = stack.enter_context(Client(url))
                    sent = False
                    with contextlib.suppress(BrokenPipeError):  # rejected, and closed before this
                        client.send("mn\r\n")
                        sent = True
                    answer = client.file.readline()
                    if answer == TOO_MANY:
                        break
                    assert answer == b"MN\r\n", answer
                    inside.append(client)
                counts[scheme] = len(inside)
                if sent and scheme != "own":  # which cuts the stream, as it does not read
                    try:
                        assert client.at_end() == b""
                    except ConnectionResetError as error:  # it closed before the client could send
                        assert "closed before it took the last 4 bytes" in str(error), error
                assert int(inside[0].stat("rejected_connections")) > rejected
                over_own = socket.create_connection(("127.0.0.1", own), 20)
                assert over_own.makefile("rb").read() == TOO_MANY
                over_own.close()
                inside.pop().close()
                until(lambda: inside[0].stat("curr_connections") == str(alone + len(inside) - 1))
                with Client(url) as client:
                    assert client.ask("mn") == "MN"
        ok(f"-c: the same number for each: {counts}", len(set(counts.values())) == 1 and counts["own"] > 20, counts)


def burst():
    with case("-c: a burst does not exceed the limit"), Server(LISTEN[:1], "-c", "40") as server:
        answers = []

        def one():
            try:
                with Client(server.urls[0]) as client:
                    with contextlib.suppress(BrokenPipeError):
                        client.send("mn\r\n")
                    answers.append(client.file.readline())
                    until(lambda: len(answers) == 80)
            except OSError as error:
                answers.append(error)

        threads = [threading.Thread(target=one) for _ in range(80)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        inside = answers.count(b"MN\r\n")
        assert 20 <= inside <= 28 and all(a in (b"MN\r\n", TOO_MANY) for a in answers), (inside, answers)
        assert fits_again(server)


def fits_again(server):
    def one():
        with contextlib.suppress(OSError), Client(server.urls[0]) as client:
            return client.ask("mn") == "MN"

    return until(one)


def idle():
    with Server(LISTEN, "-o", "idle_timeout=1") as server, contextlib.ExitStack() as stack:
        clients = [(url.partition(":")[0], stack.enter_context(Client(url, 60))) for url in server.urls]
        for scheme, client in clients:
            with case(f"{scheme}: idle_timeout ends it"):
                assert client.at_end() == b""
        with Client(server.urls[0]) as client, case("idle_kicks counts them"):
            assert int(client.stat("idle_kicks")) >= len(clients)


# --- certificates -----------------------------------------------------------------------------------


def certificates():
    url = next((url for url in LISTEN if url.startswith("tls") and "unix" not in url and "shm" not in url), None)
    if url is None:
        return
    cert, key = f"{WORK}/second.cert", f"{WORK}/second.key"

    def copy(new):
        for name, to in (("cert", cert), ("key", key)):
            with open(f"{WORK}/{new}{name}", "rb") as source, open(to, "wb") as target:
                target.write(source.read())

    def shown(server):
        with aeconn.connect(server.urls[0].partition("?")[0] + "?verify=no", 20 * SLOWER) as client:
            return client.peer_certificate().strip()

    def text(name):
        with open(f"{WORK}/{name}", encoding="ascii") as file:
            return file.read().strip()

    copy("")
    with Server([url.replace(KEYS, f"cert={cert}&key={key}")], "-v") as server, case("SIGHUP reads the certificates again"):
        with aeconn.connect(server.urls[0].partition("?")[0] + "?verify=no", 20 * SLOWER) as before:
            assert shown(server) == text("cert")
            copy("other.")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: shown(server) == text("other.cert"))
            with open(key, "w", encoding="ascii") as file:
                file.write("nonsense")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "certificates are not read again: " in server.said())
            assert "second.key" in server.said()
            assert shown(server) == text("other.cert")
            before.sendall(b"mn\r\n")
            assert before.recv(10) == b"MN\r\n"


# --- the end ----------------------------------------------------------------------------------------


def ends():
    ways = [
        ("SIGTERM", lambda server, _: server.process.terminate()),
        ("SIGINT", lambda server, _: server.process.send_signal(signal.SIGINT)),
        ("SIGUSR1", lambda server, _: server.process.send_signal(signal.SIGUSR1)),
        ("shutdown", lambda _, client: client.send("shutdown\r\n")),
        ("shutdown graceful", lambda _, client: client.send("shutdown graceful\r\n")),
    ]
    for name, end in ways:
        with case(f"{name}: status 0, clients see the end of their streams"):
            with Server(LISTEN, "-A") as server, contextlib.ExitStack() as stack:
                clients = [stack.enter_context(Client(url)) for url in server.urls]
                for client in clients:
                    assert client.ask("mn") == "MN"
                end(server, clients[0])
                status = server.ended()
                assert status == 0, (status, server.said())
                for client in clients:
                    assert client.at_end() == b""
                for url in server.urls:
                    path = url.partition("://")[2].partition("?")[0]
                    assert not path.startswith("/") or not os.path.exists(path), path
    for name, sign in (("SIGTERM", signal.SIGTERM), ("SIGUSR1", signal.SIGUSR1)):
        with case(f"{name} under load: status 0"):
            for _ in range(3):
                load(sign)
    for url in LISTEN:
        if "rdma" in url:
            continue  # the emulated processors take too long
        with case(f"SIGUSR1: {url.partition(':')[0]}: what memcached has written arrives"), Server([url]) as server:
            written(server)


def written(server):
    """A client does not read until memcached has closed its descriptor."""
    with Client(server.urls[0], 60) as client, Client(server.urls[0]) as other:
        client.put("large", os.urandom(1_000_000))
        first = int(other.stat("bytes_written"))
        told = 0
        client.send("get large\r\n" * 50)

        def stable():
            nonlocal told, last
            told += other.told
            before, last = last, int(other.stat("bytes_written"))
            return last - before == other.told and last - first > 1_000_000

        last = first
        until(stable)
        server.process.send_signal(signal.SIGUSR1)
        assert other.at_end() == b""
        got = len(client.at_end())
        assert server.ended() == 0
        assert got >= last - first - told - 16, (got, last - first - told)


def load(sign):
    with Server(LISTEN) as server:
        stop = threading.Event()
        served = []

        def one(url):
            try:
                with Client(url) as client:
                    while not stop.is_set():
                        client.put("load", b"x" * 3000)
                        served.append(len(client.get("load")))
            except (OSError, AssertionError, ValueError, IndexError):
                pass  # the end, wherever it is

        def settings():
            try:
                with Client(server.urls[0]) as client:
                    while not stop.is_set():
                        for command in ("settings", "aeconn", "conns"):
                            client.table("stats " + command)
            except (OSError, AssertionError, ValueError, IndexError):
                pass

        threads = [threading.Thread(target=one, args=(url,)) for url in server.urls for _ in range(2)]
        threads.append(threading.Thread(target=settings))
        for thread in threads:
            thread.start()
        until(lambda: len(served) > 50)
        server.process.send_signal(sign)
        status = server.ended()
        stop.set()
        for thread in threads:
            thread.join()
        assert status == 0, (status, server.said())


# --- beginning -------------------------------------------------------------------------------------


def mistakes():
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    good = f"tcp://127.0.0.1:{free_port()}"
    refuses("no such transport", "no transport nonsense", ["nonsense://x"])
    refuses("no such option", "no option colour", ["tcp://127.0.0.1:1?colour=red"])
    refuses("a URL without a port", "tcp://127.0.0.1", ["tcp://127.0.0.1"])
    refuses("an empty URL", "a URL is missing", [""])
    refuses("-o aeconn without a URL", "a URL is missing", [], "-o", "aeconn")
    refuses("the port is in use", f"127.0.0.1:{port}: Address already in use", [f"tcp://127.0.0.1:{port}"])
    refuses("the second port is in use", f":{port}: Address already in use", [good, f"tcp://127.0.0.1:{port}"])
    refuses("the port is in use, with -d", f":{port}: Address already in use", [f"tcp://127.0.0.1:{port}"], "-d")
    with case("the port is in use, with -d where SIGCHLD is ignored"):
        ignores = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]
        ran = subprocess.run([*ignores, *arguments([f"tcp://127.0.0.1:{port}"], "-d")],
                             capture_output=True, text=True, timeout=60)
        assert ran.returncode == 1 and "Address already in use" in ran.stderr, ran
    refuses("tls without a certificate", "cert", [f"tls://127.0.0.1:{free_port()}"])
    refuses("a certificate that is not there", "/nowhere.*No such file",
            [f"tls://127.0.0.1:{free_port()}?cert=/nowhere"])
    refuses("with no_maxconns_fast", "does not work with -o no_maxconns_fast", [good], "-o", "no_maxconns_fast")
    if os.getuid() == 0:
        os.chmod(f"{WORK}/key", 0o600)
        os.chmod(WORK, 0o711)
        refuses("a key that memcached's user cannot read", "key.*Permission denied",
                [f"tls://127.0.0.1:{free_port()}?{KEYS}"], "-u", "nobody")
    taken.close()


def beginnings():
    with case("a comma in a URL is %2C"), Server([f"unix://{WORK}/a%2Cb.*"]) as server:
        assert os.path.exists(server.urls[0].replace("unix://", "").replace("%2C", ","))
        with Client(server.urls[0]) as client:
            assert client.ask("mn") == "MN"
    with case("several URLs in one -o"):
        first, second = fresh("tcp://127.0.0.1:*"), fresh("tcp://127.0.0.1:*")
        with Server([first], "-o", f"idle_timeout=600,aeconn={second}"):
            for url in (first, second):
                with Client(url) as client:
                    assert client.ask("mn") == "MN"
    with case("-d serves, and its limit on descriptors is enough"):
        url, pid = fresh("tcp://127.0.0.1:*"), f"{WORK}/pid"
        ran = subprocess.run(arguments([url], "-d", "-P", pid, "-c", "600"), capture_output=True, timeout=60)
        assert ran.returncode == 0 and not ran.stderr, ran
        number = int(until(lambda: os.path.exists(pid) and open(pid).read().strip()))  # noqa: SIM115
        try:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(Client(url)) for _ in range(500)]
                for client in clients:
                    assert client.ask("mn") == "MN"
        finally:
            os.kill(number, signal.SIGTERM)
        until(lambda: not os.path.exists(f"/proc/{number}"))
    with case("-Y: a user and a password, over aeconn"):
        with open(f"{WORK}/users", "w", encoding="ascii") as users:
            users.write("someone:secret\n")
        with Server(["tcp://127.0.0.1:*"], "-Y", f"{WORK}/users") as server, Client(server.urls[0]) as client:
            assert client.ask("get x") == "CLIENT_ERROR unauthenticated"
            client.put("auth", b"someone secret")
            assert client.ask("get x") == "END"


def main():
    with case("a server on all URLs"), Server(LISTEN) as server:
        transports(server)
        statistics(server)
        all_workers(server)
    connection_limit()
    if "rdma" not in "".join(LISTEN):
        burst()
    idle()
    certificates()
    ends()
    if "rdma" not in "".join(LISTEN):
        mistakes()
        beginnings()
    return total()


sys.exit(main())
