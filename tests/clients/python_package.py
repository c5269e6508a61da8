# SPDX-License-Identifier: BSD-3-Clause
"""Only for type checkers: each method that aeconn.Socket shares with a socket.socket is assigned to
a variable of the type of the socket's method, so typed callers of one can use the other. asyncio's
classes are base classes of ours, and checkers compare their methods anyway."""

import socket
import ssl

import aeconn


def same(ours: aeconn.Socket, theirs: socket.socket) -> None:
    recv, recv = theirs.recv, ours.recv
    recv_into, recv_into = theirs.recv_into, ours.recv_into
    recvfrom, recvfrom = theirs.recvfrom, ours.recvfrom
    recvfrom_into, recvfrom_into = theirs.recvfrom_into, ours.recvfrom_into
    recvmsg, recvmsg = theirs.recvmsg, ours.recvmsg
    recvmsg_into, recvmsg_into = theirs.recvmsg_into, ours.recvmsg_into
    send, send = theirs.send, ours.send
    sendall, sendall = theirs.sendall, ours.sendall
    sendfile, sendfile = theirs.sendfile, ours.sendfile
    makefile, makefile = theirs.makefile, ours.makefile
    shutdown, shutdown = theirs.shutdown, ours.shutdown
    close, close = theirs.close, ours.close
    settimeout, settimeout = theirs.settimeout, ours.settimeout
    gettimeout, gettimeout = theirs.gettimeout, ours.gettimeout
    timeout, timeout = theirs.timeout, ours.timeout
    setblocking, setblocking = theirs.setblocking, ours.setblocking
    getblocking, getblocking = theirs.getblocking, ours.getblocking
    setsockopt, setsockopt = theirs.setsockopt, ours.setsockopt
    getsockopt, getsockopt = theirs.getsockopt, ours.getsockopt
    fileno, fileno = theirs.fileno, ours.fileno
    getpeername, getpeername = theirs.getpeername, ours.getpeername
    getsockname, getsockname = theirs.getsockname, ours.getsockname
    leave, leave = theirs.__exit__, ours.__exit__


def secured(ours: aeconn.Socket, theirs: ssl.SSLSocket) -> None:
    version, version = theirs.version, ours.version
    cipher, cipher = theirs.cipher, ours.cipher
    alpn, alpn = theirs.selected_alpn_protocol, ours.selected_alpn_protocol
    compression, compression = theirs.compression, ours.compression
    certificate: bytes | None = ours.getpeercert(True)
    parts: dict[str, object] | None = ours.getpeercert()
    print(certificate, parts)


def results(ours: aeconn.Socket) -> None:
    with ours as same_type, ours.makefile("rb") as file:
        line: bytes = file.readline()
        text: str = same_type.makefile().readline()
        option: int = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        left: float | None = ours.timeout
    print(line, text, option, left)
