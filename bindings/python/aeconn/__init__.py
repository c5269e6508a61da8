# SPDX-License-Identifier: BSD-3-Clause
"""Connections over tcp, unix, tls, rdma and tls+rdma, implemented by libaeconn-c.

    import aeconn
    with aeconn.connect("rdma://10.0.0.1:6379", timeout=5) as connection:
        connection.sendall(b"PING\\r\\n")
        print(connection.recv(100))

    import redis
    client = redis.Redis(connection_pool=aeconn.pool("tls+rdma://10.0.0.1:6380?ca=ca.pem"))

    reader, writer = await aeconn.open_connection("rdma://10.0.0.1:6379")

The URL selects the transport and its options. aeconn.aio contains the support for asyncio,
aeconn.redis_py that for redis-py.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ._native import fallbacks, lib, set_up_error, to_c
from ._socket import Socket
from .aio import LoopGroup, Server, Stop, next_request, open_connection, redial, start_server

if TYPE_CHECKING:
    import redis

__all__ = [
    "LoopGroup",
    "Server",
    "Socket",
    "Stop",
    "adopt",
    "configure",
    "connect",
    "fallbacks",
    "has_transport",
    "next_request",
    "open_connection",
    "pool",
    "prepare_client",
    "redial",
    "reload_tls",
    "start_server",
    "version",
]

version: str = lib.version().decode()


def connect(url: str, timeout: float | None = None) -> Socket:
    """Returns a blocking connection. Raises OSError with a message; TimeoutError after `timeout`
    seconds or, if that is None, after the time of the option connect-timeout."""
    return Socket(url, timeout)


def adopt(connected: socket.socket) -> Socket:
    """Takes over a connected TCP, Unix or vsock socket; `connected` has no descriptor then."""
    return Socket.adopt(connected)


def configure(scheme: str, **options: str) -> None:
    """Sets defaults for every URL of a transport, replacing those set before."""
    text = "&".join(
        f"{key.replace('_', '-')}={quote(to_c(str(value)), safe='')}"
        for key, value in options.items()
    )
    if lib.configure(to_c(scheme), to_c(text)) != 0:
        raise set_up_error()


def prepare_client(url: str) -> None:
    """Checks the URL of a client, and reads the files that connections to it need, without a
    connection: tls without option ca reads those of the system, for tens of milliseconds. Call it
    before an event loop runs that must not wait for that."""
    if lib.prepare_client_url(to_c(url)) != 0:
        raise set_up_error()


def reload_tls() -> None:
    """Reads again the files of all TLS transports, also those that URLs of servers name. The
    options stay, and new connections use the new files. Raises OSError if a transport cannot use
    them, which then keeps what it has."""
    if lib.reload_tls() != 0:
        raise set_up_error()


def has_transport(scheme: str) -> bool:
    return bool(lib.has_transport(to_c(scheme)))


def pool(url: str, **settings: Any) -> redis.ConnectionPool:
    """For redis.Redis(connection_pool=...): `settings` as for redis.ConnectionPool."""
    from . import redis_py

    return redis_py.pool(url, **settings)
