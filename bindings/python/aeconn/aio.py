# SPDX-License-Identifier: BSD-3-Clause
"""Connections, servers and streams for asyncio: each asyncio loop that uses them has a loop of the
library attached.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import errno
import operator
import os
import random
import threading
from collections.abc import AsyncIterator, Callable

from . import _native
from ._loop import Attached
from ._native import NOTE, READABLE, WRITABLE, lib
from ._server import ListeningSocket, Server
from ._stop import Left, Stop, next_request
from ._transport import Connected, StreamProtocol, Transport, TransportSocket

async def create_connection(
    factory: Callable[[], asyncio.BaseProtocol], url: str
) -> tuple[Transport, asyncio.BaseProtocol]:
    """Like loop.create_connection(). Raises OSError with a message."""
    loop = asyncio.get_running_loop()
    attached = Attached.to(loop)
    connected: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not connected.done():
            connected.set_result(None)

    address = _native.to_c(url)
    number = attached.called.keep(settle)  # keeps the waiting task alive, too
    try:
        conn = lib.connect(attached.native, address, NOTE, number)
        if not conn:
            raise _native.set_up_error()
        try:
            await connected
            if lib.get_state(conn) == _native.FAILED:
                raise _native.connect_error(conn)
        except BaseException:
            lib.close(conn)
            raise
    finally:
        attached.let_go(number)
    transport = Transport(loop, attached, conn, contextvars.copy_context())
    try:
        protocol = factory()
        transport._start(protocol)
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


async def open_connection(
    url: str, limit: int = 2**16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Like asyncio.open_connection()."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = StreamProtocol(reader, None, loop)
    transport, _ = await create_connection(lambda: protocol, url)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


# Errors that each attempt would meet: the URL or a file is invalid, the build lacks the transport.
_LASTING = (errno.EINVAL, errno.EPROTONOSUPPORT)


async def redial(
    url: str,
    *,
    first_pause: float = 0.05,
    most_pause: float = 0.5,
    attempt: float = 1.0,
    stable: float = 5.0,
    limit: int = 2**16,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections to one server, for a client that must survive restarts of the server:

        async for reader, writer in aeconn.redial("tls://db:6380"):
            try:
                ...
            except (OSError, asyncio.IncompleteReadError):
                continue

    The next connection is made when the loop body continues. Failed attempts are followed by a
    growing pause, which is reset by a connection that lasted for `stable` seconds. `attempt` limits
    each attempt if the URL has no connect-timeout. Raises OSError if the URL is invalid, if the
    library was built without its transport, and if a file that it names is invalid or cannot be
    read; but not if an RDMA device is missing: it may come."""
    for value in first_pause, most_pause, attempt, stable:
        _native.seconds(value)
    timed = _native.with_limit(url, attempt)
    loop = asyncio.get_running_loop()
    pause = first_pause
    while True:
        try:
            reader, writer = await open_connection(timed, limit)
        except OSError as error:
            if error.errno in _LASTING or _native.is_of_file(url, error):
                raise _native.without(url, timed, error) from None
        else:
            began = loop.time()
            try:
                yield reader, writer
            finally:
                writer.close()
            if loop.time() - began >= stable:
                pause = first_pause
        await asyncio.sleep(pause * random.uniform(0.5, 1))
        pause = min(pause * 2, most_pause)


async def create_server(
    factory: Callable[[], asyncio.BaseProtocol], url: str, *, start_serving: bool = True
) -> Server:
    """Like loop.create_server(); Server.urls contains the chosen port."""
    return Server(factory, url, start_serving)


async def start_server(
    connected: Connected, url: str, limit: int = 2**16, *, start_serving: bool = True
) -> Server:
    """Like asyncio.start_server(); Server.urls contains the chosen port."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return StreamProtocol(reader, connected, loop)

    return Server(factory, url, start_serving)


class LoopGroup:
    """One port, several asyncio loops, each on a thread of its own. The kernel distributes new
    connections (SO_REUSEPORT), so the transport must be tcp or tls.

        with aeconn.LoopGroup(handle, "tcp://*:7000", loops=4) as group:
            ...
    """

    def __init__(self, connected: Connected, url: str, loops: int = 0) -> None:
        self._ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._threads: list[threading.Thread] = []
        self._graceful = self._ended = False
        self._limit: float | None = None
        self._left: list[Left] = []
        self.urls: list[str] = []
        count = operator.index(loops) or len(os.sched_getaffinity(0))
        if count < 0:
            raise ValueError("a group needs at least one loop")
        try:
            for index in range(count):
                self._begin(connected, url, index)
        except BaseException:
            self.close()
            raise

    def _begin(self, connected: Connected, url: str, index: int) -> None:
        began: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
        at = _native.with_option(self.urls[0] if self.urls else url, "reuseport", "yes")
        if "?" in url and self.urls:
            at = _native.with_option(f"{self.urls[0]}?{url.partition('?')[2]}", "reuseport", "yes")

        async def serve() -> None:
            end = asyncio.Event()
            server = await start_server(connected, at)
            self._ends.append((asyncio.get_running_loop(), end))
            if self._ended:  # close() was called, after a signal, and may not have seen this loop
                end.set()
            began.set_result(server.urls)
            try:
                await end.wait()
                if self._graceful:
                    with Stop(self._limit, signals=()) as stop:
                        stop.request()
                        await stop.wait()
                        self._left.append(stop.left)
            finally:  # also if a handler raised SystemExit: the other loops get the clients then
                server.close()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:
                if began.done():
                    raise
                began.set_exception(error)

        thread = threading.Thread(target=run, name=f"aeconn-loop-{index}", daemon=True)
        self._threads.append(thread)
        thread.start()
        urls = began.result()
        self.urls = self.urls or [each.partition("?")[0] for each in urls]

    def stop(self, limit: float | None = 10.0) -> Left:
        """As close(), but ends each loop by a Stop, all of them at once, when its sessions have
        answered what is under way. Returns what was aborted, which is all that is left when `limit`
        seconds are over."""
        _native.seconds(limit)
        self._limit, self._graceful = limit, True
        self.close()
        return Left(
            sum(each.connections for each in self._left), sum(each.bytes for each in self._left)
        )

    def close(self) -> None:
        """Ends the loops and everything on them. Must not be called on one of their threads."""
        if threading.current_thread() in self._threads:
            raise RuntimeError("a group cannot end on one of its own threads")
        if Attached.ended:  # its threads have been stopped for good
            return
        self._ended = True
        for loop, end in self._ends:
            with contextlib.suppress(RuntimeError):  # a handler has ended the loop
                loop.call_soon_threadsafe(end.set)
        for thread in self._threads:
            if thread.ident is not None:  # else it could not be started
                thread.join()
        self._ends.clear()

    def __enter__(self) -> LoopGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def metrics() -> str:
    """The counters of all transports on the running loop, in the text format of Prometheus."""
    attached = Attached.to(asyncio.get_running_loop())
    with attached.gate:
        return _native.metrics(attached.native)


__all__ = [
    "Left",
    "LoopGroup",
    "READABLE",
    "WRITABLE",
    "ListeningSocket",
    "Server",
    "Stop",
    "Transport",
    "TransportSocket",
    "create_connection",
    "create_server",
    "metrics",
    "next_request",
    "open_connection",
    "redial",
    "start_server",
]
