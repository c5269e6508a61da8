# SPDX-License-Identifier: BSD-3-Clause
"""Transports, servers and streams for asyncio: each asyncio loop that uses them has a loop of the
library attached.

C only records which connections have events. Protocols are called after it has returned, each in
the context of its transport, so their exceptions propagate as with asyncio's own transports.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import ctypes
import errno
import functools
import operator
import os
import random
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from . import _native, _tls
from ._native import AGAIN, NO_HANDLER, READABLE, WRITABLE, ConnFn, lib

_READ_SIZE = 256 * 1024
_BEHIND = 2**62  # index for list.insert(): the end of any list
_Loop = Callable[[], asyncio.AbstractEventLoop | None]  # a weak reference
_Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


_FACTS: dict[str, Callable[[int], Any]] = {
    "peername": lambda conn: _native.address(lib.peer, conn),
    "sockname": lambda conn: _native.address(lib.local, conn),
    "transport": lambda conn: _native.from_c(lib.transport(conn)),
    "path": _native.path,
    "peer_user": lambda conn: _native.text_of(lib.peer_user, conn),
    "peer_credentials": _native.peer_credentials,
    "peer_certificate": lambda conn: _native.text_of(lib.peer_certificate, conn),
}


class _Called:
    """Callbacks from C and the events they record. The asyncio loop references it until closed,
    like its own transports: C holds no references to Python objects."""

    def __init__(self) -> None:
        # Connections by event; C sets keys of these dictionaries.
        self.settled: dict[int | None, int] = {}
        self.readable: dict[int | None, int] = {}
        self.writable: dict[int | None, int] = {}
        self.on_settled = ConnFn(self.settled.__setitem__)
        self.on_readable = ConnFn(self.readable.__setitem__)
        self.on_writable = ConnFn(self.writable.__setitem__)
        self.kept: dict[int, Any] = {}  # by number: transports, servers, futures
        self.servers: dict[int, Server] = {}
        self.numbers = 0

    def keep(self, one: object) -> int:
        self.numbers += 1
        self.kept[self.numbers] = one
        return self.numbers

    def let_go(self, number: int) -> None:
        self.kept.pop(number, None)
        self.servers.pop(number, None)
        for happened in (self.settled, self.readable, self.writable):
            happened.pop(number, None)

    def take(self) -> Callable[[], None] | None:
        """Removes one recorded event and returns the call that handles it."""
        for happened in (self.settled, self.readable, self.writable):
            while happened:
                number, _ = happened.popitem()
                one = self.kept.get(number or 0)
                if one is None:
                    continue
                step: Callable[[], None]
                if happened is self.settled:
                    step = functools.partial(_settle, one)
                else:
                    step = one._on_readable if happened is self.readable else one._on_writable
                return step
        for server in self.servers.values():
            if server._accepted:
                return functools.partial(server._on_accepted, server._accepted.pop(0))
        return None


def _settle(connected: asyncio.Future[None]) -> None:
    if not connected.done():
        connected.set_result(None)


def _dispatch(loop: _Loop, native: int, called: _Called, gate: threading.RLock) -> None:
    with gate:
        lib.dispatch(native)
    _work(loop, called)


def _work(loop: _Loop, called: _Called) -> None:
    try:
        while step := called.take():
            step()
    except BaseException:  # it leaves the loop; the rest follows in the next iteration
        running = loop()
        if running is not None and not running.is_closed():
            running.call_soon(_work, loop, called)
        raise


def _free(native: int, process: int) -> None:
    if os.getpid() == process:  # in a child after fork(), its connections belong to the parent
        lib.loop_free(native)


class _Attached:
    """A loop of the library, attached to an asyncio loop for that loop's lifetime."""

    ended = False  # the interpreter is about to exit
    _all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Attached] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = lib.loop_new()
        if not self.native:
            raise _native.set_up_error()
        self.buffer = bytearray(_READ_SIZE)
        self.address = ctypes.addressof((ctypes.c_char * _READ_SIZE).from_buffer(self.buffer))
        self.process = os.getpid()
        self._thread = threading.current_thread()
        self.gate = threading.RLock()  # held while C may call Python; acquired for good at exit
        # self must not reference it: that would keep the loop alive.
        called = _Called()
        self._called = weakref.ref(called)
        loop.add_reader(
            lib.descriptor(self.native),
            _dispatch,
            weakref.ref(loop),
            self.native,
            called,
            self.gate,
        )
        self._freed = weakref.finalize(self, _free, self.native, self.process)
        self._freed.atexit = False  # done by end()

    @property
    def called(self) -> _Called:
        called = self._called()
        if called is None:
            raise RuntimeError("Event loop is closed")
        return called

    def let_go(self, number: int) -> None:
        called = self._called()
        if called is not None:
            called.let_go(number)

    @classmethod
    def to(cls, loop: asyncio.AbstractEventLoop) -> _Attached:
        attached = cls._all.get(loop)
        if attached is None or attached.process != os.getpid():
            attached = cls._all[loop] = cls(loop)
        return attached

    def facts(self, conn: int) -> dict[str, str]:
        with self.gate:
            return _native.facts(lambda take, told: lib.info(conn, take, told))

    @classmethod
    def end(cls) -> None:
        """Called before the interpreter exits. It stops remaining (daemon) threads when they return
        to Python code; this ensures that they stop outside of C, with their loops still intact."""
        cls.ended = True
        for reference in cls._all.keyrefs():
            loop = reference()
            attached = cls._all.get(loop) if loop is not None else None
            if loop is None or attached is None or attached.process != os.getpid():
                continue
            thread = attached._thread
            ours = thread is threading.current_thread() or not thread.is_alive()
            if ours and not loop.is_running():
                attached._freed()
            else:
                attached.gate.acquire()


atexit.register(_Attached.end)


def _on_thread(loop: asyncio.AbstractEventLoop) -> bool:
    return asyncio._get_running_loop() is loop or not loop.is_running()


def _check_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Other threads must not call C, and the recorded events would change meanwhile."""
    if not _on_thread(loop):
        raise RuntimeError("this belongs to its loop's thread: call_soon_threadsafe()")


class Transport(asyncio.Transport):
    """The asyncio transport that protocols write to. It owns the connection from its creation."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attached: _Attached,
        conn: int,
        context: contextvars.Context,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._attached = attached
        self._context = context
        self._conn: int | None = conn
        self._facts: dict[str, Any] = {}  # kept for use after the connection is gone
        self._protocol: Any = None
        self._unsent = bytearray()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._protocol_paused = self._eof_due = self._closing = False
        self._paused = self._reading = self._started = self._input_ended = False
        self._writes_in_vain = 0
        called = attached.called
        self._readable_fn, self._writable_fn = called.on_readable, called.on_writable
        self._number = called.keep(self)

    def __del__(self) -> None:
        if self._conn is not None and self._attached.process == os.getpid():
            warnings.warn(f"unclosed transport {id(self):#x}", ResourceWarning, source=self)
            lib.close(self._conn)

    def __repr__(self) -> str:
        state = "closed" if self._conn is None else "closing" if self._closing else "open"
        path = self._fact("path") if _on_thread(self._loop) else "of another thread"
        return f"<aeconn.aio.Transport {state} {path}>"

    def _start(self, protocol: asyncio.BaseProtocol) -> None:
        self._set_protocol(protocol)
        self._context.run(protocol.connection_made, self)
        self._started = True
        self._watch()

    def _check_thread(self) -> None:
        _check_thread(self._loop)

    # --- reading ---------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        self._check_thread()
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        self._check_thread()
        if self.is_reading():
            self._paused = True
            self._watch()

    def resume_reading(self) -> None:
        self._check_thread()
        if not self._closing and self._paused:
            self._paused = False
            self._watch()

    def _watch(self) -> None:
        wanted = self._started and self.is_reading() and not self._input_ended
        if self._conn is None or wanted == self._reading:
            return
        self._reading = wanted
        handler = self._readable_fn if wanted else NO_HANDLER
        if lib.on_readable(self._conn, handler, self._number) != 0:
            self._end(_native.io_error(self._conn))

    def _on_readable(self) -> None:
        if self._conn is None or not self._reading:
            return
        if self._buffered:
            self._guarded("protocol.get_buffer() call failed.", self._read_into)
            return
        n = lib.read(self._conn, self._attached.address, _READ_SIZE)
        number = ctypes.get_errno()
        if n > 0:
            data = bytes(memoryview(self._attached.buffer)[:n])
            self._call("data_received", data)
        else:
            self._no_data(n, number)

    def _read_into(self) -> None:
        """Reading into a protocol that provides the buffer."""
        view = memoryview(self._context.run(self._protocol.get_buffer, -1))
        if not len(view):
            raise RuntimeError("get_buffer() returned an empty buffer")
        view = view.cast("B")
        address = ctypes.addressof((ctypes.c_char * 0).from_buffer(view))
        n = lib.read(self._conn, address, len(view))
        number = ctypes.get_errno()
        view.release()
        if n > 0:
            self._call("buffer_updated", n)
        else:
            self._no_data(n, number)

    def _no_data(self, n: int, number: int) -> None:
        if n == 0:
            self._input_ended = True
            self._watch()
            self._guarded("protocol.eof_received() call failed.", self._eof)
        elif number not in AGAIN:
            self._end(_native.io_error(self._conn, number))

    def _eof(self) -> None:
        keep_open = self._context.run(self._protocol.eof_received)
        if not keep_open:
            self.close()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        self._check_thread()
        if self._eof_due:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._conn is None or self._closing:
            self._writes_in_vain += 1
            if self._writes_in_vain == 5:
                self._loop.call_exception_handler(
                    {"message": "write() to a transport that is closed", "transport": self}
                )
            return
        was_empty = not self._unsent
        self._unsent += data
        if was_empty:
            self._send()
        self._pause_if_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._check_thread()
        self.write(b"".join(list_of_data))

    def _on_writable(self) -> None:
        self._guarded("Fatal write error on aeconn transport", self._send)

    def _send(self) -> None:
        if self._conn is None:
            return
        if self._unsent:
            size = len(self._unsent)
            buffer = (ctypes.c_char * size).from_buffer(self._unsent)
            n = lib.write(self._conn, ctypes.addressof(buffer), size)
            number = ctypes.get_errno()
            del buffer  # an exported bytearray could not shrink
            if n < 0 and number not in AGAIN:
                return self._end(_native.io_error(self._conn, number))
            if n > 0:
                del self._unsent[:n]
                lib.flush(self._conn)
        if self._unsent:
            lib.on_writable(self._conn, self._writable_fn, self._number)
        else:
            lib.on_writable(self._conn, NO_HANDLER, None)
            if self._eof_due:
                self._shut_down()
            if self._closing:
                return self._end(None)
        if self._protocol_paused and len(self._unsent) <= self._low:
            self._protocol_paused = False
            self._tell("resume_writing")

    def _pause_if_full(self) -> None:
        if len(self._unsent) > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._tell("pause_writing")

    def can_write_eof(self) -> bool:
        self._check_thread()
        scheme = self._fact("transport", "")
        return "rdma" not in scheme.split("|")  # in a list, all schemes or none have it

    def write_eof(self) -> None:
        self._check_thread()
        if not self.can_write_eof():
            raise NotImplementedError("rdma has no half-close")
        if self._closing or self._eof_due:
            return
        self._eof_due = True
        if not self._unsent:
            self._shut_down()

    def _shut_down(self) -> None:
        if self._conn is not None and lib.shutdown(self._conn, WRITABLE) != 0:
            self._end(_native.io_error(self._conn))

    def get_write_buffer_size(self) -> int:
        self._check_thread()
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        self._check_thread()
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._check_thread()
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_if_full()

    # --- the end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Allowed on any thread: the garbage collector, which runs on any thread, may finalize a
        StreamWriter, which calls this."""
        return self._closing

    def close(self) -> None:
        """Data already written is still delivered."""
        self._check_thread()
        if self._closing:
            return
        self._closing = True
        self._watch()
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        """Resets the stream: the peer sees an error instead of a clean end."""
        self._check_thread()
        self._end(None, lib.abort)

    def _end(
        self, why: BaseException | None, how: Callable[[int], None] = lib.close
    ) -> None:
        conn = self._conn
        if conn is None:
            return
        self._facts = self._all_facts(conn)
        self._conn = None
        self._closing, self._reading = True, False
        self._unsent.clear()
        how(conn)
        self._attached.let_go(self._number)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, why, context=self._context)

    def _call(self, method: str, *arguments: Any) -> None:
        """Calls a method of the protocol in the transport's context."""
        self._guarded(
            f"protocol.{method}() call failed.",
            self._context.run,
            getattr(self._protocol, method),
            *arguments,
        )

    def _guarded(self, message: str, step: Callable[..., object], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception as error:  # SystemExit and KeyboardInterrupt propagate out of the loop
            self._tell_handler(f"Fatal error: {message}", error)
            self._end(error)

    def _tell(self, method: str) -> None:
        """Calls a flow control method of the protocol; its exceptions do not end the connection."""
        try:
            self._context.run(getattr(self._protocol, method))
        except Exception as error:
            self._tell_handler(f"protocol.{method}() failed", error)

    def _tell_handler(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    # --- facts -----------------------------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        self._check_thread()
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._check_thread()
        self._set_protocol(protocol)

    def _set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The names in _FACTS, and those of Socket.info(); "cipher" as Socket.cipher()."""
        self._check_thread()
        return self._fact(name, default)

    def _fact(self, name: str, default: Any = None) -> Any:
        conn = self._conn
        if conn is not None and name in _FACTS:
            return _FACTS[name](conn)
        facts = self._facts if conn is None else self._attached.facts(conn)
        if name == "cipher" and name in facts:
            return _tls.cipher(facts)  # asyncio's form
        return facts.get(name, default)

    def _all_facts(self, conn: int) -> dict[str, Any]:
        facts: dict[str, Any] = self._attached.facts(conn)
        return facts | {name: fact(conn) for name, fact in _FACTS.items()}


async def create_connection(
    factory: Callable[[], asyncio.BaseProtocol], url: str
) -> tuple[Transport, asyncio.BaseProtocol]:
    """Like loop.create_connection(). Raises OSError with a message."""
    loop = asyncio.get_running_loop()
    attached = _Attached.to(loop)
    called = attached.called
    connected: asyncio.Future[None] = loop.create_future()
    address = _native.to_c(url)
    number = called.keep(connected)  # keeps the waiting task alive, too
    try:
        conn = lib.connect(attached.native, address, called.on_settled, number)
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
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, url)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


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
    each attempt if the URL has no connect-timeout. Raises OSError if the URL, or a file that it
    names, is invalid."""
    for value in first_pause, most_pause, attempt, stable:
        _native.seconds(value)
    timed = _native.with_option(url, "connect-timeout", f"{max(int(attempt * 1000), 1)}ms")
    loop = asyncio.get_running_loop()
    pause = first_pause
    while True:
        began = loop.time()
        try:
            reader, writer = await open_connection(timed, limit)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise
        else:
            try:
                yield reader, writer
            finally:
                writer.close()
            if loop.time() - began >= stable:
                pause = first_pause
        await asyncio.sleep(pause * random.uniform(0.5, 1))
        pause = min(pause * 2, most_pause)


class Server(asyncio.AbstractServer):
    """A listener; it accepts connections until closed."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], url: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._attached = _Attached.to(self._loop)
        self._factory = factory
        self._context = contextvars.copy_context()
        self._closed = self._loop.create_future()
        self._accepted: list[int] = []  # C inserts into this list
        self._accept_fn = ConnFn(self._accepted.insert)
        self._listener = lib.listen(
            self._attached.native, _native.to_c(url), self._accept_fn, _BEHIND
        )
        if not self._listener:
            raise _native.set_up_error()
        self.urls: list[str] = []
        while (each := lib.listener_url(self._listener, len(self.urls))) is not None:
            self.urls.append(_native.from_c(each))
        self._number = self._attached.called.keep(self)
        self._attached.called.servers[self._number] = self

    def __del__(self) -> None:  # for a server whose loop was closed first
        listener = getattr(self, "_listener", None)
        if listener and self._attached.process == os.getpid():
            lib.listener_free(listener)
            for conn in self._accepted:
                lib.close(conn)

    def _on_accepted(self, conn: int) -> None:
        context = self._context.copy()  # one context per connection, as with asyncio's server
        transport = Transport(self._loop, self._attached, conn, context)
        transport._guarded(
            "the connection could not be set up",
            lambda: transport._start(context.run(self._factory)),
        )

    def close(self) -> None:
        """Connections that were already accepted stay open."""
        _check_thread(self._loop)
        listener, self._listener = self._listener, None
        if listener:
            lib.listener_free(listener)
            for conn in self._accepted:
                lib.close(conn)
            self._accepted.clear()
            self._attached.let_go(self._number)
            if not self._closed.done():
                self._closed.set_result(None)

    async def wait_closed(self) -> None:
        _check_thread(self._loop)
        await asyncio.shield(self._closed)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        _check_thread(self._loop)
        return bool(self._listener)

    async def start_serving(self) -> None:
        """Does nothing: the server is already serving."""
        _check_thread(self._loop)

    async def serve_forever(self) -> None:
        _check_thread(self._loop)
        if not self._listener:
            raise RuntimeError(f"server {self!r} is closed")
        try:
            await self.wait_closed()
        finally:
            self.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()


async def create_server(factory: Callable[[], asyncio.BaseProtocol], url: str) -> Server:
    return Server(factory, url)


async def start_server(connected: _Connected, url: str, limit: int = 2**16) -> Server:
    """Like asyncio.start_server(); Server.urls contains the chosen port."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, connected, loop=loop)

    return Server(factory, url)


class LoopGroup:
    """One port, several asyncio loops, each on a thread of its own. The kernel distributes new
    connections (SO_REUSEPORT), so the transport must be tcp or tls.

        with aeconn.LoopGroup(handle, "tcp://*:7000", loops=4) as group:
            ...
    """

    def __init__(self, connected: _Connected, url: str, loops: int = 0) -> None:
        self._ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._threads: list[threading.Thread] = []
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

    def _begin(self, connected: _Connected, url: str, index: int) -> None:
        began: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
        at = _native.with_option(self.urls[0] if self.urls else url, "reuseport", "yes")
        if "?" in url and self.urls:
            at = _native.with_option(f"{self.urls[0]}?{url.partition('?')[2]}", "reuseport", "yes")

        async def serve() -> None:
            end = asyncio.Event()
            server = await start_server(connected, at)
            self._ends.append((asyncio.get_running_loop(), end))
            began.set_result(server.urls)
            await end.wait()
            server.close()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:
                if began.done():
                    raise
                began.set_exception(error)

        thread = threading.Thread(target=run, name=f"aeconn-loop-{index}", daemon=True)
        thread.start()
        self._threads.append(thread)
        urls = began.result()
        self.urls = self.urls or [each.partition("?")[0] for each in urls]

    def close(self) -> None:
        """Ends the loops and everything on them. Must not be called on one of their threads."""
        if threading.current_thread() in self._threads:
            raise RuntimeError("a group cannot end on one of its own threads")
        if _Attached.ended:  # its threads have been stopped for good
            return
        for loop, end in self._ends:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end.set)
        for thread in self._threads:
            thread.join()
        self._ends.clear()

    def __enter__(self) -> LoopGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def metrics() -> str:
    """The counters of all transports on the running loop, in the text format of Prometheus."""
    attached = _Attached.to(asyncio.get_running_loop())
    with attached.gate:
        return _native.metrics(attached.native)


__all__ = [
    "LoopGroup",
    "READABLE",
    "WRITABLE",
    "Server",
    "Transport",
    "create_connection",
    "create_server",
    "metrics",
    "open_connection",
    "redial",
    "start_server",
]
