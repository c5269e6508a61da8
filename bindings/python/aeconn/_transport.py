# SPDX-License-Identifier: BSD-3-Clause
"""The transport that asyncio's protocols and streams write to."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import errno
import os
import socket
import warnings
import weakref
from asyncio import _get_running_loop
from asyncio.log import logger
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from . import _native, _tls
from ._loop import READ_SIZE, Attached, on_thread
from ._native import AGAIN, NO_HANDLER, NOTE, WRITABLE, lib

# Type for the address of any Python buffer, as C expects it.
_Buffer = ctypes.c_char * 0
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], "Awaitable[None] | None"]
_KERNELS = (b"tcp", b"unix", b"vsock")  # written bytes leave at once
_FACTS: dict[str, Callable[[int], Any]] = {
    "peername": lambda conn: _native.address(lib.peer, conn),
    "sockname": lambda conn: _native.address(lib.local, conn),
    "transport": lambda conn: _native.from_c(lib.transport(conn)),
    "path": _native.path,
    "peer_user": lambda conn: _native.text_of(lib.peer_user, conn),
    "peer_credentials": _native.peer_credentials,
    "peer_certificate": lambda conn: _native.text_of(lib.peer_certificate, conn),
}


class StreamProtocol(asyncio.StreamReaderProtocol):
    """Passes bytes to a StreamReader, which copies them."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        connected: Connected | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(reader, connected, loop=loop)
        self._ours = weakref.ref(reader)

    def data_received(self, data: bytes) -> None:
        reader = self._ours()
        if reader is not None:
            reader.feed_data(data)


class TransportSocket:
    """The socket below a transport, with the functions that asyncio.trsock.TransportSocket has from
    Python 3.11 on. For options and names; the transport alone reads and writes."""

    type = socket.SOCK_STREAM
    __getstate__ = _native.not_copied

    def __init__(self, transport: Transport, conn: int) -> None:
        self._transport = weakref.ref(transport)
        with _native.kernel_socket(conn) as below:
            self.family, self.proto = below.family, below.proto

    def __repr__(self) -> str:
        return f"<aeconn.aio.TransportSocket fd={self.fileno()} {self.family!r}>"

    def _conn(self) -> int | None:
        transport = self._transport()
        return None if transport is None else transport._conn

    def fileno(self) -> int:
        conn = self._conn()
        return -1 if conn is None else int(lib.fd(conn))

    def _duplicate(self) -> socket.socket:
        conn = self._conn()
        if conn is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return _native.kernel_socket(conn)

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._duplicate() as below:
            return getattr(below, name)(*arguments)

    def dup(self) -> socket.socket:
        below = self._duplicate()
        below.settimeout(0)
        return below

    def get_inheritable(self) -> bool:
        return os.get_inheritable(self.fileno())

    def shutdown(self, how: int) -> None:
        self._call("shutdown", how)

    def getsockname(self) -> Any:
        return self._call("getsockname")

    def getpeername(self) -> Any:
        return self._call("getpeername")

    def getsockopt(self, *arguments: Any) -> Any:
        return self._call("getsockopt", *arguments)

    def setsockopt(self, *arguments: Any) -> None:
        self._call("setsockopt", *arguments)

    def gettimeout(self) -> float:
        return 0

    def settimeout(self, value: float) -> None:
        if value != 0:
            raise ValueError("settimeout(): only 0 timeout is allowed on transport sockets")

    def setblocking(self, flag: bool) -> None:
        if flag:
            raise ValueError("setblocking(): transport sockets cannot be blocking")


class Transport(asyncio.Transport):
    """The asyncio transport that protocols write to. It owns the connection from its creation. The
    loop references it while it reads, and while data is left to be sent."""

    __getstate__ = _native.not_copied

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attached: Attached,
        conn: int,
        context: contextvars.Context,
        ended: Callable[[Transport], object] | None = None,
    ) -> None:
        """`ended` is called once the protocol knows that the connection is lost."""
        super().__init__()
        self._loop = loop
        self._attached = attached
        self._context = context
        self._conn: int | None = conn
        self._run = context.run
        self._keeps = lib.transport(conn) not in _KERNELS  # written bytes, until they are flushed
        self._socket: TransportSocket | None = None
        self._facts: dict[str, Any] = {}  # kept for use after the connection is gone
        self._protocol: Any = None
        self._unsent = bytearray()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._protocol_paused = self._eof_due = self._closing = False
        self._paused = self._reading = self._started = self._input_ended = False
        self._writes_in_vain = 0
        self._ended = ended
        self._number = attached.called.reserve(2)  # of what reads, and of what writes

    @_native.keeps_errno
    def __del__(self) -> None:
        if self._conn is None or self._attached.process != os.getpid():
            return
        warnings.warn(f"unclosed transport {id(self):#x}", ResourceWarning, source=self)
        if on_thread(self._loop):
            self._discard()
        else:  # of whatever thread the garbage collector runs on
            self._loop.call_soon_threadsafe(self._discard)

    def _discard(self) -> None:
        conn, self._conn, self._closing = self._conn, None, True
        lib.close(conn)
        if self._ended is not None and not self._loop.is_closed():
            self._ended(self)

    def __repr__(self) -> str:
        state = "closed" if self._conn is None else "closing" if self._closing else "open"
        path = self._fact("path") if on_thread(self._loop) else "of another thread"
        return f"<aeconn.aio.Transport {state} {path}>"

    def _start(self, protocol: asyncio.BaseProtocol) -> None:
        self._set_protocol(protocol)
        self._run(protocol.connection_made, self)
        self._started = True
        self._watch()

    def _check_thread(self) -> None:
        self._attached.check(self._loop)

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
        if wanted:
            self._attached.called.steps[self._number] = self._on_readable
        else:
            self._attached.let_go(self._number)
        handler = NOTE if wanted else NO_HANDLER
        if lib.on_readable(self._conn, handler, self._number) != 0:
            self._end(_native.io_error(self._conn))

    def _on_readable(self) -> None:
        if not self._reading:
            return
        if self._buffered:
            return self._guarded("protocol.get_buffer() call failed.", self._read_into)
        attached = self._attached
        n = lib.read(self._conn, attached.address, READ_SIZE)
        if n <= 0:
            return self._no_data(n)
        data = attached.view[:n]
        try:
            self._run(self._protocol.data_received, data if self._copies else bytes(data))
        except (SystemExit, KeyboardInterrupt):  # they leave the loop
            raise
        except BaseException as error:
            self._fail("Fatal error: protocol.data_received() call failed.", error)

    def _read_into(self) -> None:
        """Reading into a protocol that provides the buffer."""
        view = memoryview(self._run(self._protocol.get_buffer, -1))
        if not len(view):
            raise RuntimeError("get_buffer() returned an empty buffer")
        view = view.cast("B")
        n = lib.read(self._conn, ctypes.addressof(_Buffer.from_buffer(view)), len(view))
        view.release()  # a bytearray can be resized now
        if n <= 0:
            return self._no_data(n)
        updated = self._protocol.buffer_updated
        self._guarded("protocol.buffer_updated() call failed.", self._run, updated, n)

    def _no_data(self, n: int) -> None:
        number = ctypes.get_errno()
        if n == 0:
            self._input_ended = True
            self._watch()
            self._guarded("protocol.eof_received() call failed.", self._eof)
        elif number not in AGAIN:
            self._end(_native.io_error(self._conn, number))

    def _eof(self) -> None:
        keep_open = self._run(self._protocol.eof_received)
        if not keep_open:
            self.close()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if _get_running_loop() is not self._loop:  # None in a child after fork()
            self._check_thread()
        if self._unsent or self._closing or self._eof_due or data.__class__ is not bytes:
            return self._write_behind(data)
        size = len(data)
        n = lib.write(self._conn, data, size)
        if n != size or self._keeps:
            self._sent(data, n)

    def _write_behind(self, data: bytes | bytearray | memoryview) -> None:
        """write() in all cases but the usual one."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._eof_due:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._closing:
            self._writes_in_vain += 1
            if self._writes_in_vain == 5:
                logger.warning("write() to a transport that is closed")
        elif self._unsent:
            self._unsent += data
            self._pause_if_full()
        else:
            data = bytes(data)
            self._sent(data, lib.write(self._conn, data, len(data)))

    def _sent(self, data: bytes, n: int) -> None:
        """Keeps what C did not take: it took n bytes."""
        if n < 0:
            number = ctypes.get_errno()
            if number not in AGAIN:
                return self._end(_native.io_error(self._conn, number))
        elif self._keeps:
            lib.flush(self._conn)
        if n < len(data):
            self._attached.called.steps[self._number + 1] = self._on_writable
            self._unsent += memoryview(data)[max(n, 0) :]
            if lib.on_writable(self._conn, NOTE, self._number + 1) != 0:
                return self._end(_native.io_error(self._conn))
            self._pause_if_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._check_thread()
        self.write(b"".join(list_of_data))

    def _on_writable(self) -> None:
        self._guarded("Fatal write error on aeconn transport", self._send)

    def _send(self) -> None:
        if not self._unsent:
            return
        size = len(self._unsent)
        buffer = _Buffer.from_buffer(self._unsent)
        n = lib.write(self._conn, ctypes.addressof(buffer), size)
        number = ctypes.get_errno()
        del buffer  # an exported bytearray could not shrink
        if n < 0 and number not in AGAIN:
            return self._end(_native.io_error(self._conn, number))
        if n > 0:
            del self._unsent[:n]
            lib.flush(self._conn)
        if not self._unsent:
            lib.on_writable(self._conn, NO_HANDLER, None)
            self._attached.let_go(self._number + 1)
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

    @_native.keeps_errno
    def close(self) -> None:
        """Data already written is still delivered. Allowed on any thread, like is_closing(): the
        loop's thread closes it then."""
        if self._left_to_parent() or self._closing:
            return
        if not on_thread(self._loop):
            self._loop.call_soon_threadsafe(self.close)
            return
        self._closing = True
        self._watch()
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        """Resets the stream: the peer sees an error instead of a clean end."""
        if not self._left_to_parent():
            self._check_thread()
            self._end(None, lib.abort)

    def _left_to_parent(self) -> bool:
        """Whether this is a child after fork(): the connection is then closed here alone."""
        if self._attached.process == os.getpid():
            return False
        conn, self._conn, self._closing = self._conn, None, True
        _native.leave_to_parent(conn)
        return True

    def _end(
        self, why: BaseException | None, how: Callable[[int], None] = lib.close
    ) -> None:
        conn = self._conn
        if conn is None:
            return
        self._facts = self._all_facts(conn)
        with contextlib.suppress(OSError):  # no descriptor is left
            self._fact("socket")
        self._conn = None
        self._closing, self._reading = True, False
        self._unsent.clear()
        how(conn)
        self._attached.let_go(self._number)
        self._attached.let_go(self._number + 1)
        self._loop.call_soon(self._lost, why, context=self._context)

    def _lost(self, why: BaseException | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(why)
        finally:
            if self._ended is not None:
                self._ended(self)

    def _guarded(self, message: str, step: Callable[..., object], *arguments: Any) -> None:
        try:
            step(*arguments)
        except (SystemExit, KeyboardInterrupt):  # they leave the loop
            raise
        except BaseException as error:
            self._fail(f"Fatal error: {message}", error)

    def _fail(self, message: str, error: BaseException) -> None:
        self._tell_handler(message, error)
        self._end(error)

    def _tell(self, method: str) -> None:
        """Calls a flow control method of the protocol; its exceptions do not end the connection. As in
        asyncio it runs in the context of whoever writes: that of this transport may be entered."""
        try:
            getattr(self._protocol, method)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._tell_handler(f"protocol.{method}() failed", error)

    def _tell_handler(self, message: str, error: BaseException) -> None:
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
        self._copies = isinstance(protocol, StreamProtocol)  # what it is given

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """asyncio's names, those in _FACTS, and those of Socket.info()."""
        self._check_thread()
        return self._fact(name, default)

    def _fact(self, name: str, default: Any = None) -> Any:
        conn = self._conn
        if name == "socket":
            if self._socket is None and conn is not None and lib.fd(conn) >= 0:
                self._socket = TransportSocket(self, conn)
            return self._socket or default
        if conn is not None and name in _FACTS:
            return _FACTS[name](conn)
        facts = self._facts if conn is None else self._attached.facts(conn)
        if name in ("ssl_object", "cipher", "peercert") and "tls" in facts:
            session = _tls.Session(facts, self._fact("peer_certificate"))
            if name == "ssl_object":
                return session
            return session.cipher() if name == "cipher" else session.getpeercert()
        return facts.get(name, default)

    def _all_facts(self, conn: int) -> dict[str, Any]:
        facts: dict[str, Any] = self._attached.facts(conn)
        return facts | {name: fact(conn) for name, fact in _FACTS.items()}


