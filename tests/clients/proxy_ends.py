# SPDX-License-Identifier: BSD-3-Clause
"""proxy_ends.py NEAR SERVER MEGABYTES PID...: a client at NEAR, a server at SERVER, proxies between

The client writes until it blocks, and only then the server reads. Then the client half-closes, and
the server answers with a checksum of what it received. Prints "the same" or the difference, then
the largest growth of each PID's memory in MiB.
"""

import hashlib
import os
import select
import socket
import sys
import threading

near, server_path, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
pids = sys.argv[4:]


def memory(pid, line):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(text.split()[1]) for text in status if text.startswith(line))


def serve(listener, may_read):
    peer, _ = listener.accept()
    may_read.wait()
    summed = hashlib.sha256()
    while data := peer.recv(1 << 20):
        summed.update(data)
    peer.sendall(summed.hexdigest().encode())
    peer.close()


before = [memory(pid, "VmHWM") for pid in pids]
with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
    listener.bind(server_path)
    listener.listen()
    may_read = threading.Event()
    thread = threading.Thread(target=serve, args=(listener, may_read), daemon=True)
    thread.start()
    client.settimeout(120)
    client.connect(near)
    client.setblocking(False)
    block, sent, summed = os.urandom(1 << 16), 0, hashlib.sha256()
    while sent < size:
        # A client that never blocks has an unlimited buffer in front of it.
        if not select.select([], [client], [], 0 if may_read.is_set() else 1)[1]:
            may_read.set()
            select.select([], [client], [], 120)
        count = client.send(block[:size - sent])
        summed.update(block[:count])
        sent += count
    print("the writer had to wait" if may_read.is_set() else "the writer never had to wait")
    may_read.set()
    client.setblocking(True)
    client.settimeout(120)
    client.shutdown(socket.SHUT_WR)
    answer = b""
    while data := client.recv(1000):
        answer += data
    print("the same" if answer.decode() == summed.hexdigest() else f"not the same: {answer}")
    thread.join(60)
print(*[(memory(pid, "VmHWM") - b) // 1024 for pid, b in zip(pids, before)])
