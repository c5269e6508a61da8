# SPDX-License-Identifier: BSD-3-Clause
"""A connection that blocks, with a socket's methods.

Nothing waits in C. A call tries; where it has to wait it gives the lock back and polls the
descriptor of the connection's loop. So a thread that reads and one that writes do not wait for each
other, and Python's signal handlers run at once, whatever is waited for.
"""

from __future__ import annotations

import ctypes
import errno
import io
import math
import operator
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from . import _native
from ._keeper import keeper
from ._native import AGAIN, NO_HANDLER, NOTHING, READABLE, WRITABLE, Address, lib

# A buffer of Python's, whatever has it, as the address that C takes.
_Buffer = ctypes.c_char * 0
_MOST_AT_ONCE = 1 << 20  # of recv(), whatever it is asked for
_FILE_BLOCK = 64 * 1024  # of sendfile()
_MOST_CONNECT_MS = 24 * 3600 * 1000  # the most that option connect-timeout takes
_OUTGOING = 0  # waiting until what was written has left; no handler is needed for that
_T = TypeVar("_T")


class _Calls:
    """Calls that are under way. Each holds a lock of its own, by `with`, which gives it back
    wherever a signal handler raises: so nothing is counted that has ended.
    """

    def __init__(self) -> None:
        self._held: set[threading.Lock] = set()

    def add(self, held: threading.Lock) -> None:
        self._held.add(held)

    def discard(self, held: threading.Lock) -> None:
        self._held.discard(held)

    def __len__(self) -> int:
        for each in tuple(self._held):
            if not each.locked():
                self._held.discard(each)
        return len(self._held)


class _Deadline:
    """A time-out that has begun."""

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout

    def left_ms(self) -> int | None:
        """None: no limit. Rounded up, so that it is over when the time has come."""
        if self._at is None:
            return None
        left = max(self._at - time.monotonic(), 0)
        return min(math.ceil(left * 1000), 2**31 - 1)


class Socket:
    """A stream to one peer over any transport of the library.

    Behaves as a connected socket.socket does; docs/python.md has what is different. One thread may
    read and another write at the same time. close() may come from any thread, and from a signal
    handler: calls that wait raise OSError (EBADF) then.
    """

    _conn: int | None = None
    _loop: int | None = None
    _ends_by: Callable[[int | None], None] = staticmethod(lib.close)

    def __init__(self, url: str, timeout: float | None = None) -> None:
        self._begin(timeout)
        self._conn = lib.connect(self._loop, _with_limit(url, self._timeout), NO_HANDLER, None)
        if not self._conn:
            error = _native.set_up_error()
            self.close()
            raise error
        try:
            state = self._until(_settled, _OUTGOING)
            if state != _native.CONNECTED:
                raise _native.connect_error(self._conn)
        except BaseException:
            self.close()
            raise
        keeper.keep(self)

    def _begin(self, timeout: float | None) -> None:
        self._lock = threading.RLock()  # held for calls of C, which do not wait
        self._process = os.getpid()
        self._timeout = _native.seconds(timeout)
        self._users = _Calls()
        # Of these, those that poll.
        self._waiting = {READABLE: _Calls(), WRITABLE: _Calls(), _OUTGOING: _Calls()}
        self._watched = {READABLE: False, WRITABLE: False}  # whether the loop has a handler
        self._polled_outside = False  # fileno() was asked for
        self._input_over = False  # recv() has nothing more to wait for
        self._read_shut = False  # shutdown(SHUT_RD)
        self._closing = False
        self._kept_at: int | None = None  # the keeper's
        self._files = 0  # of makefile()
        self._close_wanted = False  # close() was called, and waits for these
        self._loop = lib.loop_new()
        if not self._loop:
            raise _native.set_up_error()

    @classmethod
    def adopt(cls, connected: socket.socket) -> Socket:
        """Takes a connected tcp or Unix socket over, its time-out with it."""
        self = cls.__new__(cls)
        self._begin(connected.gettimeout())
        scheme = _native.scheme_of(connected).encode()
        self._conn = lib.adopt(self._loop, scheme, connected.fileno())
        if not self._conn:
            error = _native.set_up_error()
            self.close()
            raise error
        connected.detach()
        return self

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self._close_now()

    def __repr__(self) -> str:
        try:
            return f"<aeconn.Socket {self.path()}>"
        except OSError:
            return "<aeconn.Socket, closed>"

    # --- data ------------------------------------------------------------------------------------

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """At least one byte, a MiB at most; b"" at end of stream."""
        size = operator.index(bufsize)
        _no_flags("recv", flags)
        if size < 0:
            raise ValueError("negative buffersize in recv")
        if size > 2**63 - 1:
            raise OverflowError("Python int too large to convert to C ssize_t")
        buffer = bytearray(min(size, _MOST_AT_ONCE))
        got = self._read(_address_of(buffer), len(buffer))
        return bytes(memoryview(buffer)[:got])

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        size = operator.index(nbytes)
        _no_flags("recv_into", flags)
        view = _flat(buffer)
        if view.readonly:
            raise TypeError("recv_into() needs a buffer that can be written to")
        if size < 0:
            raise ValueError("negative buffersize in recv_into")
        if size > len(view):
            raise ValueError("buffer too small for requested bytes")
        return self._read(_address_of(view), size or len(view))

    def recvfrom(self, bufsize: int, flags: int = 0) -> tuple[bytes, None]:
        """As recv(): the peer is always the same, which a stream does not say again."""
        return self.recv(bufsize, flags), None

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, None]:
        return self.recv_into(buffer, nbytes, flags), None

    def _read(self, address: int, size: int) -> int:
        def step(conn: int) -> int | None:
            if self._read_shut or not size:
                return 0
            n = lib.read(conn, address, size)
            if n > 0:
                return int(n)
            number = ctypes.get_errno()
            if n < 0 and number in AGAIN:
                return None
            self._input_over = True
            if n < 0:
                raise self._error(number)
            return 0

        return self._until(step, READABLE)

    def send(self, data: Any, flags: int = 0) -> int:
        """As much as there is room for, at least one byte."""
        _no_flags("send", flags)
        view = _readable(data)
        address = _address_of(view)
        return self._until(lambda conn: self._write(conn, address, len(view)), WRITABLE)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """All of it, handed to the kernel or device. Where it fails, or the time is over, an
        unknown part of it has been sent; so it is with BlockingIOError of one that does not block.
        """
        _no_flags("sendall", flags)
        view = _readable(data)
        address, sent = _address_of(view), 0

        def step(conn: int) -> int | None:
            nonlocal sent
            while sent < len(view):
                n = self._write(conn, address + sent, len(view) - sent)
                if n is None:
                    return None
                sent += n
            return sent

        deadline = _Deadline(self._timeout)
        self._until(step, WRITABLE, deadline)
        if len(view) and self._timeout != 0:
            self._until(self._left, _OUTGOING, deadline)

    def _write(self, conn: int, address: int, size: int) -> int | None:
        n = lib.write(conn, address, size)
        if n >= 0:
            lib.flush(conn)
            return int(n)
        number = ctypes.get_errno()
        if number in AGAIN:
            return None
        raise self._error(number)

    def _left(self, conn: int) -> int | None:
        """0 once what was written has left."""
        if _still_leaves(conn):
            return None
        if lib.get_state(conn) == _native.FAILED:
            raise _native.connect_error(conn)
        return 0

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """What is in a file opened in binary mode, from `offset` on, `count` bytes at most. Returns
        how many were sent; the file is behind these, also where it fails."""
        if "b" not in getattr(file, "mode", "b"):
            raise ValueError("file should be opened in binary mode")
        if count is not None and not isinstance(count, int):
            raise TypeError(f"count must be a positive integer (got {count!r})")
        if count is not None and count <= 0:
            raise ValueError(f"count must be a positive integer (got {count!r})")
        if self._timeout == 0:
            raise ValueError("non-blocking sockets are not supported")
        if offset or hasattr(file, "seek"):
            file.seek(offset)
        sent = 0
        try:
            while count is None or sent < count:
                size = _FILE_BLOCK if count is None else min(_FILE_BLOCK, count - sent)
                view = memoryview(file.read(size))
                if not len(view):
                    break
                while len(view):
                    n = self.send(view)
                    sent += n
                    view = view[n:]
        finally:
            if sent and hasattr(file, "seek"):
                file.seek(offset + sent)
        return sent

    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """As socket.makefile(); the connection stays until its files are closed as well."""
        if not set(mode) <= set("rwb"):
            raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
        reads, writes, text = "r" in mode or "w" not in mode, "w" in mode, "b" not in mode
        self._open()
        raw = socket.SocketIO(self, "r" * reads + "w" * writes)  # type: ignore[arg-type]
        self._files += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
        if size == 0:
            if text:
                raw.close()
                raise ValueError("unbuffered streams must be binary")
            return raw
        buffered: Any
        if reads and writes:
            buffered = io.BufferedRWPair(raw, raw, size)
        else:
            buffered = io.BufferedReader(raw, size) if reads else io.BufferedWriter(raw, size)
        if not text:
            return buffered
        file = io.TextIOWrapper(buffered, encoding, errors, newline)
        file.mode = mode  # type: ignore[misc]
        return file

    def _decref_socketios(self) -> None:  # by socket.SocketIO, which makefile() made
        self._files = max(self._files - 1, 0)
        if self._close_wanted and not self._files:
            self._close_now()

    # --- the end ---------------------------------------------------------------------------------

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """SHUT_WR where the transport has a half-close; SHUT_RD ends what recv() gives."""
        how = operator.index(how)
        if not -(2**31) <= how < 2**31:
            raise OverflowError("Python int too large to convert to C int")
        if how not in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        def step(conn: int) -> None:
            if how == socket.SHUT_RD:
                if lib.get_state(conn) != _native.CONNECTED:
                    raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
                self._read_shut = self._input_over = True
            else:
                both = how == socket.SHUT_RDWR or self._read_shut
                if lib.shutdown(conn, READABLE | WRITABLE if both else WRITABLE) != 0:
                    raise self._error()
            _native.wake(self._loop or 0)  # who waits looks again

        self._locked(step)

    def close(self) -> None:
        """Ends calls that other threads are in. What was written is still delivered."""
        self._close_wanted = True
        if not self._files:
            self._close_now()

    def abort(self) -> None:
        """As close(), but cuts the stream: nothing more is delivered, and the peer is to see an
        error (ConnectionResetError, where the transport can tell) instead of a clean end."""
        self._ends_by = lib.abort
        self._files = 0
        self._close_now()

    def _close_now(self) -> None:
        if self._loop is None:
            if self._kept_at is not None and os.getpid() == self._process:
                keeper.drop(self)  # close() was interrupted there
            return
        if os.getpid() != self._process:
            return self._leave_to_parent()
        with self._lock:
            self._closing = True
            if self._users:  # the last of them frees it
                if self._loop is not None:
                    _native.wake(self._loop)
            else:
                self._free()

    def _free(self) -> None:
        """Where it is interrupted, the next call goes on: what is taken is given back at once."""
        try:
            keeper.drop(self)
        finally:
            ends_by, close_loop = self._ends_by, lib.loop_free
            conn, self._conn = self._conn, None
            ends_by(conn)
            loop, self._loop = self._loop, None
            close_loop(loop)  # which waits for what was written, for its end-linger

    def _leave_to_parent(self) -> None:
        """In a child of fork(): nothing is said to the peer, with whom the parent goes on."""
        conn, self._conn, self._loop = self._conn, None, None
        if conn and (fd := lib.fd(conn)) >= 0:
            os.close(fd)

    # --- settings and facts ----------------------------------------------------------------------

    def settimeout(self, value: float | None) -> None:
        self._timeout = _native.seconds(value)

    def gettimeout(self) -> float | None:
        return self._timeout

    timeout = property(gettimeout)

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def getblocking(self) -> bool:
        return self._timeout != 0

    def setsockopt(self, *arguments: Any) -> None:
        """Of the socket below, where there is one. Over rdma the URL's options are for that."""
        with self._kernel_socket() as below:
            below.setsockopt(*arguments)

    def getsockopt(self, *arguments: Any) -> Any:
        """As setsockopt(). SO_ERROR is 0: failures come from the call that meets them."""
        with self._kernel_socket() as below:
            return below.getsockopt(*arguments)

    def _kernel_socket(self) -> socket.socket:
        def step(conn: int) -> socket.socket:
            fd = lib.fd(conn)
            if fd < 0:
                raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
            return socket.socket(fileno=os.dup(fd))

        return self._locked(step)

    def fileno(self) -> int:
        """For select() and alike, to wait for reading: it is readable where recv() would not wait,
        and sometimes where it would. -1 once it is closed, and in a child of fork(). There is no
        waiting for room to write."""

        def step(_: int) -> int:
            if not self._polled_outside:
                self._polled_outside = True
                self._watch()
                lib.dispatch(self._loop)
            return int(lib.descriptor(self._loop))

        if self._conn is None or self._closing or os.getpid() != self._process:
            return -1
        try:
            return self._locked(step)
        except OSError:
            if self._closing:  # meanwhile
                return -1
            raise

    def readable(self, timeout: float | None = 0) -> bool:
        """Whether recv() would return at once, within that many seconds."""

        def step(conn: int) -> int | None:
            over = self._input_over or lib.wait(conn, READABLE, 0) == 0
            return 1 if over else None

        return bool(self._until(step, READABLE, _Deadline(_native.seconds(timeout)), overdue=0))

    def getpeername(self) -> Address:
        return self._locked(lambda conn: _native.address(lib.peer, conn))

    def getsockname(self) -> Address:
        return self._locked(lambda conn: _native.address(lib.local, conn))

    def transport(self) -> str:
        return self._locked(lambda conn: _native.from_c(lib.transport(conn)))

    def path(self) -> str:
        """What carries the bytes, in one line: "tcp 10.0.0.2:50400 > 10.0.0.1:6379"."""
        return self._locked(_native.path)

    def info(self) -> dict[str, str]:
        """Details of the transport, for people."""
        return self._locked(
            lambda conn: _native.facts(lambda take, told: lib.info(conn, take, told))
        )

    def peer_user(self) -> str:
        """The name that option peer-user takes from the peer's certificate; "" without."""
        return self._locked(lambda conn: _native.text_of(lib.peer_user, conn))

    def peer_certificate(self) -> str:
        """As PEM; "" where there is none."""
        return self._locked(lambda conn: _native.text_of(lib.peer_certificate, conn))

    # --- inside ----------------------------------------------------------------------------------

    def _open(self) -> int:
        if self._conn is None or self._closing:
            raise OSError(errno.EBADF, "the connection is closed")
        if os.getpid() != self._process:
            raise OSError(errno.EBADF, "the connection is that of the parent process")
        return self._conn

    def _used(self, work: Callable[[threading.Lock], _T]) -> _T:
        """All calls of C on the connection are made in `work`. close(), of another thread or of a
        signal handler, leaves the connection to it, and it is freed here. `work` gets the lock that
        says that it is under way."""
        if os.getpid() != self._process:  # a child of fork() may never have the lock
            self._open()
        held = threading.Lock()
        try:
            with held:
                self._users.add(held)
                return work(held)
        finally:
            try:
                self._free_if_unused()
            except BaseException:  # a signal handler's
                self._free_if_unused()
                raise

    def _free_if_unused(self) -> None:
        if not self._users and self._closing:
            with self._lock:
                if not self._users:
                    self._free()

    def _locked(self, step: Callable[[int], _T]) -> _T:
        """What `step` gives, which does not wait."""

        def work(_: threading.Lock) -> _T:
            with self._lock:
                return step(self._open())

        return self._used(work)

    def _until(
        self,
        step: Callable[[int], int | None],
        direction: int,
        deadline: _Deadline | None = None,
        overdue: int | None = None,
    ) -> int:
        """What `step` gives, once it gives something. It is asked again whenever something may have
        changed, with the lock, and does not wait. `overdue` is what comes when the time is over;
        None: an exception."""
        limit = deadline or _Deadline(self._timeout)

        def work(held: threading.Lock) -> int:
            late = waits = False
            while True:
                try:
                    with self._lock:
                        result = step(self._open())
                        left = limit.left_ms()
                        if result is not None:
                            return result
                        if late:
                            if overdue is not None:
                                return overdue
                            raise self._overdue()
                        if left == 0:  # what is there by now counts
                            late = True
                            self._turn()
                            continue
                        waits = True
                        self._wait_begins(direction, held)
                    poll = select.poll()
                    poll.register(lib.descriptor(self._loop), select.POLLIN)
                    poll.poll(left)
                finally:
                    if waits:
                        try:
                            self._wait_ends(direction, held)
                        except BaseException:  # a signal handler's
                            self._wait_ends(direction, held)
                            raise
                        waits = False

        return self._used(work)

    def _wait_begins(self, direction: int, held: threading.Lock) -> None:
        if not any(self._waiting.values()):
            keeper.hold(self)
        self._waiting[direction].add(held)
        self._watch()

    def _wait_ends(self, direction: int, held: threading.Lock) -> None:
        """May run twice."""
        with self._lock:
            self._waiting[direction].discard(held)
            if not any(self._waiting.values()):
                keeper.release(self)
            if not self._closing:
                self._watch()
                self._turn()

    def _watch(self) -> None:
        """Handlers for what is waited for: while there is one, the descriptor is readable as long
        as it has something to do. Who waits outside, by fileno(), does not keep a writer awake."""
        waiting = self._waiting
        outside = self._polled_outside and not waiting[WRITABLE] and not waiting[_OUTGOING]
        for direction, wanted, setter in (
            (READABLE, bool(waiting[READABLE]) or outside, lib.on_readable),
            (WRITABLE, bool(waiting[WRITABLE]), lib.on_writable),
        ):
            if wanted != self._watched[direction]:
                if setter(self._conn, NOTHING if wanted else NO_HANDLER, None) != 0:
                    raise self._error()
                self._watched[direction] = wanted

    def _turn(self) -> None:
        """What the loop has to do. Others that wait are woken where no handler does that."""
        lib.dispatch(self._loop)
        waiting = self._waiting
        reader = waiting[READABLE] and self._input_over
        if reader or (waiting[_OUTGOING] and self._conn and not _still_leaves(self._conn)):
            _native.wake(self._loop or 0)

    def _turn_idle(self) -> bool:
        """By the keeper: what the transport has to do while nobody uses the connection. False if
        something stays that only a call can take: bytes that fileno() announces."""
        with self._lock:
            if self._loop is None or self._closing:
                return True
            self._turn()
            if not self._polled_outside:
                return True
            poll = select.poll()
            poll.register(lib.descriptor(self._loop), select.POLLIN)
            return not poll.poll(0)

    def _error(self, number: int | None = None) -> OSError:
        return _native.io_error(self._conn, number or ctypes.get_errno())

    def _overdue(self) -> OSError:
        if self._timeout == 0 and lib.get_state(self._conn) != _native.CONNECTING:
            return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return TimeoutError(errno.ETIMEDOUT, "timed out")


def _settled(conn: int) -> int | None:
    state = int(lib.get_state(conn))
    return None if state in (_native.NEW, _native.CONNECTING) else state


def _still_leaves(conn: int) -> bool:
    """Whether a part of what was written waits inside the library."""
    waits = lib.write_all(conn, None, 0, 0) != 0
    return waits and ctypes.get_errno() == errno.ETIMEDOUT


def _with_limit(url: str, timeout: float | None) -> bytes:
    """`timeout` is the caller's word, so the transport's own limit is no shorter."""
    if timeout is None or not isinstance(url, str):
        return _native.to_c(url)
    limit = min(max(math.ceil(timeout * 1000), 1), _MOST_CONNECT_MS)
    return _native.to_c(_native.with_option(url, "connect-timeout", f"{limit}ms"))


def _no_flags(call: str, flags: int) -> None:
    if operator.index(flags):
        raise OSError(errno.EOPNOTSUPP, f"{call}() has no flags here")


def _flat(data: Any) -> memoryview:
    view = memoryview(data)
    if not view.contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"" if view.readonly else bytearray())


def _readable(data: Any) -> memoryview:
    """Bytes whose address can be had; they stay as long as the view."""
    if isinstance(data, bytes):
        return memoryview(data)
    view = _flat(data)
    return memoryview(bytes(view)) if view.readonly else view


def _address_of(data: bytearray | memoryview) -> int:
    if not len(data):
        return 0
    if isinstance(data, memoryview) and data.readonly:
        store: Any = data.obj  # bytes, whose address no other way tells
        return ctypes.cast(ctypes.c_char_p(store), ctypes.c_void_p).value or 0
    return ctypes.addressof(_Buffer.from_buffer(data))
