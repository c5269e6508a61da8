# SPDX-License-Identifier: BSD-3-Clause
"""Hundreds of clients that exceed a kv-server's limits, with a well-behaved one among them.

kv_hostile.py slow URL PID [CA]     readers that never read, and writers of half requests; prints
                                    the server's peak memory
kv_hostile.py crowd URL COUNT       COUNT connections at once; prints how many got an answer
kv_hostile.py fill URL              stores values until the server reports that it has no memory
"""
import socket
import ssl
import sys
import time
from urllib.parse import urlsplit

MANY = 300


def connect(url, ca=None):
    parts = urlsplit(url)
    if parts.scheme == "unix":
        link = socket.socket(socket.AF_UNIX)
        target = parts.path
    else:
        link = socket.socket()
        target = (parts.hostname, parts.port)
    # Small buffers, so that a test need not fill megabytes of kernel memory.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    link.connect(target)  # waits while the backlog is full
    link.settimeout(30)
    if parts.scheme == "tls":
        context = ssl.create_default_context(cafile=ca)
        link = context.wrap_socket(link, server_hostname="127.0.0.1")
    return link


def request(*words):
    out = b"*%d\r\n" % len(words)
    for word in words:
        word = word if isinstance(word, bytes) else word.encode()
        out += b"$%d\r\n%s\r\n" % (len(word), word)
    return out


def line(link):
    text = b""
    while not text.endswith(b"\r\n"):
        piece = link.recv(1)
        if not piece:
            return text
        text += piece
    return text


def call(link, *words):
    link.sendall(request(*words))
    return line(link)


def info(link, section="everything"):
    size = int(call(link, "INFO", section)[1:])
    text = b""
    while len(text) < size + 2:
        text += link.recv(size + 2 - len(text))
    return dict(row.split(":", 1) for row in text.decode().split("\r\n") if ":" in row)


def memory(pid, what):
    with open(f"/proc/{pid}/status") as status:
        for row in status:
            if row.startswith(what + ":"):
                return int(row.split()[1]) << 10
    return 0


def slow(url, pid, ca=None):
    honest = connect(url, ca)
    assert call(honest, "FLUSHALL") == b"+OK\r\n"
    assert call(honest, "SET", "big", b"x" * 8000) == b"+OK\r\n"
    before = info(honest)
    begun = memory(pid, "VmRSS")
    with open(f"/proc/{pid}/clear_refs", "w") as reset:  # resets VmHWM
        reset.write("5")
    readers = [connect(url, ca) for _ in range(MANY)]
    writers = [connect(url, ca) for _ in range(MANY)]
    wishes = request("GET", "big") * 20
    halves = [b"*1000000\r\n$3\r\nSET\r\n", b"*2\r\n$3\r\nGET\r\n$500000000\r\n", b"SET key ", b"*"]
    for index, link in enumerate(writers):
        link.sendall(halves[index % len(halves)])
    for link in readers:
        link.setblocking(False)
    alive, rounds, deadline = set(readers), 0, time.monotonic() + 90
    while alive and time.monotonic() < deadline:
        for link in list(alive):
            try:
                link.send(wishes)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
            except OSError:
                alive.discard(link)  # the server has closed it
        for index, link in enumerate(writers):
            if index % 4 == 1 and rounds % 10 == 0:
                link.sendall(b"x")
        for _ in range(5):
            rounds += 1
            answer = call(honest, "INCR", "n")
            assert answer == b":%d\r\n" % rounds, answer
    for _ in range(100):
        rounds += 1
        assert call(honest, "INCR", "n") == b":%d\r\n" % rounds
    after = info(honest)
    closed = sum(
        int(after[name]) - int(before[name])
        for name in ("client_output_buffer_limit_disconnections", "evicted_clients")
    )
    grown = memory(pid, "VmHWM") - begun
    print(
        f"closed={closed} left={len(alive)} rounds={rounds} "
        f"clients={after['connected_clients']} peak={grown >> 10}KiB"
    )


def crowd(url, count):
    links = [connect(url) for _ in range(int(count))]
    answers = 0
    for link in links:
        try:
            answers += call(link, "PING") == b"+PONG\r\n"
        except OSError:
            pass
    print(f"answered={answers}")
    print(f"refused={info(links[0], 'Transport_tcp')['refused']}")


def fill(url):
    link = connect(url)
    stored = 0
    while (answer := call(link, "SET", f"k{stored}", b"x" * (8 << 20))) == b"+OK\r\n":
        stored += 1
        assert stored < 1000
    print(answer.decode().strip())
    other = connect(url)
    print(call(other, "PING").decode().strip(), call(other, "STRLEN", "k0").decode().strip())
    for index in range(stored):
        call(other, "DEL", f"k{index}")
    print(call(other, "SET", "again", b"x" * (8 << 20)).decode().strip())


if __name__ == "__main__":
    {"slow": slow, "crowd": crowd, "fill": fill}[sys.argv[1]](*sys.argv[2:])
