# SPDX-License-Identifier: BSD-3-Clause
"""activated.py NOTIFY SOCKET-PATH|PORT COMMAND...: starts it like systemd, with a listening socket
and a socket for notifications. Prints the notifications, one per line, until the command has
ended, and then "status N". SIGTERM is passed on."""

import os
import signal
import socket
import sys

notify, where, command = sys.argv[1], sys.argv[2], sys.argv[3:]
notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notices.bind(notify)
if where.isdigit():
    listener = socket.socket()
    listener.bind(("127.0.0.1", int(where)))
    print("port", listener.getsockname()[1], flush=True)
else:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(where)
listener.listen()
child = os.fork()
if child == 0:
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.execve(command[0], command, {**os.environ, "LISTEN_FDS": "1", "NOTIFY_SOCKET": notify,
                                    "LISTEN_PID": str(os.getpid())})
listener.close()
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
signal.signal(signal.SIGHUP, lambda *_: os.kill(child, signal.SIGHUP))
notices.settimeout(0.2)
ended = 0
while not ended:
    ended, status = os.waitpid(child, os.WNOHANG)
    try:
        while True:
            for line in notices.recv(4096).decode().splitlines():
                print(line, flush=True)
    except TimeoutError:
        pass
print("status", os.waitstatus_to_exitcode(status), flush=True)
