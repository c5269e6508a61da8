# SPDX-License-Identifier: BSD-3-Clause
"""steady.py serve: an echo server for one client; prints "listening on tcp://127.0.0.1:PORT"
steady.py ask PORT FILE: a client that sends a stream of known bytes and checks what comes back

FILE always has the number of bytes that came back. After SIGTERM the client half-closes, reads what
is left and prints "N bytes, the same, longest pause M ms", or what was wrong.
"""

import os
import select
import signal
import socket
import sys
import time

# Its length is no power of two: a piece that is lost or doubled is noticed.
PATTERN = bytes(os.urandom(100003)) * 2
LENGTH = len(PATTERN) // 2
MOST_OUTSTANDING = 256 << 10


def piece(position, size):
    start = position % LENGTH
    return PATTERN[start:start + min(size, LENGTH)]


def serve():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on tcp://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        peer, _ = listener.accept()
        with peer:
            while data := peer.recv(1 << 16):
                peer.sendall(data)


def ask(port, path):
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    sent = received = 0
    longest, last = 0.0, time.monotonic()
    half_closed = False
    progress = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setblocking(False)
        while True:
            if ending and not half_closed:
                half_closed = True
                peer.shutdown(socket.SHUT_WR)
            may_send = not half_closed and sent - received < MOST_OUTSTANDING
            readable, writable, _ = select.select([peer], [peer] if may_send else [], [], 0.1)
            if readable:
                data = peer.recv(1 << 16)
                if not data:
                    break
                if data != piece(received, len(data)):
                    sys.exit(f"other bytes after {received}")
                received += len(data)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                os.pwrite(progress, f"{received:020}".encode(), 0)
            if writable:
                sent += peer.send(piece(sent, 1 << 14))
    same = "the same" if received == sent else f"not the {sent} that were sent"
    print(f"{received} bytes, {same}, longest pause {longest * 1000:.0f} ms")


try:
    if sys.argv[1] == "serve":
        serve()
    else:
        ask(int(sys.argv[2]), sys.argv[3])
except OSError as error:
    sys.exit(f"error: {error.strerror}")
