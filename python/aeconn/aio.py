# SPDX-License-Identifier: BSD-3-Clause
"""asyncio over any transport, by the one descriptor of a loop of the library."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from . import _native
from ._native import NO_HANDLER, READABLE, WRITABLE, ConnFn, lib

_READ_SIZE = 256 * 1024
_Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


class _Called(set[object]):
    """What C may call: it has no references of its own to Python's objects."""


def _dispatch(native: int, called: _Called) -> None:
    lib.dispatch(native)


def _free(native: int, process: int) -> None:
    if os.getpid() == process:  # in a child of fork() its connections are the parent's
        lib.loop_free(native)


class _Attached:
    """A loop of the library below an asyncio loop, as long as that lives."""

    _all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Attached] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = lib.loop_new()
        if not self.native:
            raise _native.set_up_error()
        self.buffer = ctypes.create_string_buffer(_READ_SIZE)
        self.process = os.getpid()
        # Kept by the asyncio loop until it is closed, as its own transports are; not by self, which
        # would keep the loop.
        called = _Called()
        self._called = weakref.ref(called)
        loop.add_reader(lib.descriptor(self.native), _dispatch, self.native, called)
        weakref.finalize(self, _free, self.native, self.process)

    def keep(self, one: object) -> None:
        called = self._called()
        if called is not None:
            called.add(one)

    def let_go(self, one: object) -> None:
        called = self._called()
        if called is not None:
            called.discard(one)

    @classmethod
    def to(cls, loop: asyncio.AbstractEventLoop) -> _Attached:
        attached = cls._all.get(loop)
        if attached is None:
            attached = cls._all[loop] = cls(loop)
        return attached


class Transport(asyncio.Transport):
    """What protocols of asyncio write to. It has the connection from its first moment on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, attached: _Attached, conn: int | None = None
    ) -> None:
        super().__init__()
        self._loop = loop
        self._attached = attached
        self._conn = conn
        self._protocol: Any = None
        self._unsent = bytearray()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._paused_protocol = self._eof_due = self._closing = self._reading = False
        self._extra_names = {"peername": lib.peer, "sockname": lib.local}
        # These live as long as the connection does.
        self._on_readable = ConnFn(lambda *_: self._guarded(self._read))
        self._on_writable = ConnFn(lambda *_: self._guarded(self._send))
        attached.keep(self)

    def __del__(self) -> None:  # where its loop was closed first
        if self._conn is not None and self._attached.process == os.getpid():
            lib.close(self._conn)

    def _start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        if not self._closing:
            self.resume_reading()

    # --- reading ---------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading and self._conn is not None:
            self._reading = False
            lib.on_readable(self._conn, NO_HANDLER, None)

    def resume_reading(self) -> None:
        if not self._reading and self._conn is not None and not self._closing:
            self._reading = True
            if lib.on_readable(self._conn, self._on_readable, None) != 0:
                self._end(_native.io_error(self._conn))

    def _read(self) -> None:
        if self._conn is None or not self._reading:
            return
        buffer = self._attached.buffer
        n = lib.read(self._conn, buffer, _READ_SIZE)
        if n > 0:
            self._protocol.data_received(ctypes.string_at(buffer, n))
        elif n == 0:
            self.pause_reading()
            if not self._protocol.eof_received():
                self.close()
        elif ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            self._end(_native.io_error(self._conn))

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._closing or self._eof_due:
            if self._eof_due:
                raise RuntimeError("Cannot call write() after write_eof()")
            return
        was_empty = not self._unsent
        self._unsent += data
        if was_empty and self._unsent:
            self._send()
        if len(self._unsent) > self._high and not self._paused_protocol:
            self._paused_protocol = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        if self._conn is None:
            return
        if self._unsent:
            size = len(self._unsent)
            buffer = (ctypes.c_char * size).from_buffer(self._unsent)
            n = lib.write(self._conn, buffer, size)
            number = ctypes.get_errno()
            del buffer  # or the bytearray could not shrink
            if n < 0 and number not in (errno.EAGAIN, errno.EINTR):
                return self._end(_native.io_error(self._conn, number))
            del self._unsent[: max(n, 0)]
        if self._unsent:
            lib.on_writable(self._conn, self._on_writable, None)
        else:
            lib.on_writable(self._conn, NO_HANDLER, None)
            if self._eof_due:
                self._shut_down()
            if self._closing:
                return self._end(None)
        if self._paused_protocol and len(self._unsent) <= self._low:
            self._paused_protocol = False
            self._protocol.resume_writing()

    def can_write_eof(self) -> bool:
        if self._conn is None:
            return False
        return b"rdma" not in lib.transport(self._conn).split(b"|")  # of a list all have it, or none

    def write_eof(self) -> None:
        if not self.can_write_eof():
            raise NotImplementedError("rdma has no half-close")
        if not self._eof_due:
            self._eof_due = True
            if not self._unsent:
                self._shut_down()

    def _shut_down(self) -> None:
        if lib.shutdown(self._conn, WRITABLE) != 0:
            self._end(_native.io_error(self._conn))

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    # --- the end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """What was written is still delivered."""
        if self._closing:
            return
        self._closing = True
        self.pause_reading()
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        self._unsent.clear()
        self._end(None)

    def _end(self, why: OSError | None) -> None:
        conn, self._conn = self._conn, None
        if conn is None:
            return
        self._closing, self._reading = True, False
        lib.close(conn)
        self._attached.let_go(self)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, why)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # nothing of Python's can leave through C
            self._loop.call_exception_handler(
                {"message": "error in a protocol over aeconn", "exception": error}
            )
            self._end(None)

    # --- facts -----------------------------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """peername, sockname, transport, path; the rest as Socket.info() names it."""
        if self._conn is None:
            return default
        if name in self._extra_names:
            return _native.address(self._extra_names[name], self._conn)
        if name == "transport":
            return lib.transport(self._conn).decode()
        if name == "path":
            return _native.path(self._conn)
        conn = self._conn
        return _native.facts(lambda take: lib.info(conn, take, None)).get(name, default)


async def create_connection(
    factory: Callable[[], asyncio.BaseProtocol], url: str
) -> tuple[Transport, asyncio.BaseProtocol]:
    """As loop.create_connection(). Raises OSError with a sentence."""
    loop = asyncio.get_running_loop()
    attached = _Attached.to(loop)
    connected: asyncio.Future[None] = loop.create_future()

    def done(_: Any, its: int) -> None:
        if connected.done():
            return
        if lib.get_state(its) == _native.CONNECTED:
            connected.set_result(None)
        else:
            connected.set_exception(ConnectionError(lib.last_error(its).decode()))

    on_done = ConnFn(done)
    conn = lib.connect(attached.native, url.encode(), on_done, None)
    if not conn:
        raise _native.set_up_error()
    attached.keep(connected)  # and so who waits for it
    try:
        await connected
    except BaseException:
        lib.close(conn)
        raise
    finally:
        attached.let_go(connected)
    transport = Transport(loop, attached, conn)
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
    """As asyncio.open_connection()."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, url)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Server:
    """What listens, until it is closed."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], url: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._attached = _Attached.to(self._loop)
        self._factory = factory
        self._closed = self._loop.create_future()
        self._on_accepted = ConnFn(self._accepted)
        self._listener = lib.listen(self._attached.native, url.encode(), self._on_accepted, None)
        if not self._listener:
            raise _native.set_up_error()
        self.urls: list[str] = []
        while (each := lib.listener_url(self._listener, len(self.urls))) is not None:
            self.urls.append(each.decode())
        self._attached.keep(self)

    def __del__(self) -> None:  # where its loop was closed first
        listener = getattr(self, "_listener", None)
        if listener and self._attached.process == os.getpid():
            lib.listener_free(listener)

    def _accepted(self, _: Any, conn: int) -> None:
        transport = Transport(self._loop, self._attached, conn)
        transport._guarded(lambda: transport._start(self._factory()))

    def close(self) -> None:
        """Connections that it gave away live on."""
        listener, self._listener = self._listener, None
        if listener:
            lib.listener_free(listener)
            self._attached.let_go(self)
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def is_serving(self) -> bool:
        return self._listener is not None

    async def serve_forever(self) -> None:
        try:
            await self.wait_closed()
        finally:
            self.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()
        await self.wait_closed()


async def create_server(factory: Callable[[], asyncio.BaseProtocol], url: str) -> Server:
    return Server(factory, url)


async def start_server(connected: _Connected, url: str, limit: int = 2**16) -> Server:
    """As asyncio.start_server(); Server.urls has the port that was chosen."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, connected, loop=loop)

    return Server(factory, url)


__all__ = [
    "READABLE",
    "WRITABLE",
    "Server",
    "Transport",
    "create_connection",
    "create_server",
    "open_connection",
    "start_server",
]
