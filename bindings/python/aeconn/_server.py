# SPDX-License-Identifier: BSD-3-Clause
"""Servers for asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
import sys
import urllib.parse
import weakref
from collections.abc import Callable

from . import _native
from ._loop import Attached
from ._native import Address, ConnFn, lib
from ._transport import Transport

_BEHIND = 2**62  # index for list.insert(): the end of any list


class ListeningSocket:
    """What a server's `sockets` say: the kind and the address of one of its URLs."""

    type, proto = socket.SOCK_STREAM, 0

    def __init__(self, server: Server, url: str) -> None:
        self._server = weakref.ref(server)
        scheme, _, place = url.partition("?")[0].partition(":")
        place = place.removeprefix("//")
        self._name: Address
        if scheme.split("+")[-1] in ("unix", "shm"):
            self.family = socket.AF_UNIX
            path = os.fsdecode(urllib.parse.unquote_to_bytes(place))
            self._name = b"\0" + os.fsencode(path[1:]) if path.startswith("@") else path
        else:
            host, _, port = place.rpartition(":")
            self.family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            self._name = (host.strip("[]").replace("*", "0.0.0.0"), int(port))

    def __repr__(self) -> str:
        return f"<aeconn.aio.ListeningSocket {self.family!r} {self._name!r}>"

    def getsockname(self) -> Address:
        server = self._server()
        if server is None or not server._listener:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._name


class Server(asyncio.AbstractServer):
    """A listener; it accepts connections until closed."""

    __getstate__ = _native.not_copied

    def __init__(
        self, factory: Callable[[], asyncio.BaseProtocol], url: str, start_serving: bool = True
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._attached = Attached.to(self._loop)
        self._factory = factory
        self._context = contextvars.copy_context()
        self._waiters: list[asyncio.Future[None]] | None = []  # None: it has ended
        self._serving_for_ever: asyncio.Future[None] | None = None
        self._transports: weakref.WeakSet[Transport] = weakref.WeakSet()
        self._accepted: list[int] = []  # C inserts into this list
        self._accept_fn = ConnFn(self._accepted.insert)
        self._listener = lib.listen(
            self._attached.native, _native.to_c(url), self._accept_fn, _BEHIND
        )
        if not self._listener:
            raise _native.set_up_error()
        self._serving = start_serving
        if not start_serving:
            lib.listener_pause(self._listener)
        self.urls: list[str] = []
        while (each := lib.listener_url(self._listener, len(self.urls))) is not None:
            self.urls.append(_native.from_c(each))
        self._sockets = tuple(ListeningSocket(self, each) for each in self.urls)
        self._attached.called.servers.add(self)
        stop = self._attached.called.stop
        if stop is not None and stop.phase != "serving":
            self.close()

    def __repr__(self) -> str:
        return f"<aeconn.aio.Server {', '.join(self.urls)}>"

    @_native.keeps_errno
    def __del__(self) -> None:  # for a server whose loop was closed first
        listener = getattr(self, "_listener", None)
        if listener and self._attached.process == os.getpid():
            lib.listener_free(listener)
            for conn in self._accepted:
                lib.close(conn)

    def _accept(self) -> None:
        """Sets up the connections that C has accepted."""
        while self._accepted:
            self._on_accepted(self._accepted.pop(0))

    def _on_accepted(self, conn: int) -> None:
        context = self._context.copy()  # one context per connection, as with asyncio's server
        transport = Transport(self._loop, self._attached, conn, context, self._on_ended)
        self._transports.add(transport)
        transport._guarded(
            "the connection could not be set up",
            lambda: transport._start(context.run(self._factory)),
        )

    def _on_ended(self, transport: Transport) -> None:
        self._transports.discard(transport)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        waits = sys.version_info >= (3, 12) and self._transports
        if self._listener or waits or self._waiters is None:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None

    @property
    def sockets(self) -> tuple[ListeningSocket, ...]:
        """One for each URL; none after close()."""
        return self._sockets if self._listener else ()

    def close(self) -> None:
        """Connections that were already accepted stay open. In a child after fork() it has no
        effect."""
        if self._attached.process != os.getpid():
            return
        self._attached.check(self._loop)
        listener, self._listener = self._listener, None
        if listener:
            self._serving = False
            lib.listener_free(listener)
            for conn in self._accepted:
                lib.close(conn)
            self._accepted.clear()
            self._attached.called.servers.discard(self)
            if self._serving_for_ever is not None:
                self._serving_for_ever.cancel()
            self._end_if_unused()

    def close_clients(self) -> None:
        """Closes all accepted connections; what was written to them is still delivered."""
        self._attached.check(self._loop)
        for transport in tuple(self._transports):
            transport.close()

    def abort_clients(self) -> None:
        """Ends all accepted connections at once, without what was not yet sent."""
        self._attached.check(self._loop)
        for transport in tuple(self._transports):
            transport.abort()

    async def wait_closed(self) -> None:
        """Waits until the server is closed and, as asyncio does from Python 3.12 on, all accepted
        connections have ended."""
        self._attached.check(self._loop)
        if self._waiters is not None:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        self._attached.check(self._loop)
        return self._serving

    async def start_serving(self) -> None:
        self._attached.check(self._loop)
        if self._listener and not self._serving:
            self._serving = True
            lib.listener_resume(self._listener)

    async def serve_forever(self) -> None:
        self._attached.check(self._loop)
        if self._serving_for_ever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if not self._listener:
            raise RuntimeError(f"server {self!r} is closed")
        await self.start_serving()
        self._serving_for_ever = self._loop.create_future()
        try:
            await self._serving_for_ever
        except asyncio.CancelledError:
            try:
                self.close()
                await self.wait_closed()
            finally:
                raise
        finally:
            self._serving_for_ever = None

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()
