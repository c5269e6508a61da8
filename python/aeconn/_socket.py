# SPDX-License-Identifier: BSD-3-Clause
"""A connection that blocks, with a socket's methods."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import threading
import weakref
from typing import Any

from . import _native
from ._native import READABLE, WRITABLE, lib

# A buffer of Python's, whatever has it, as the address that C takes.
_Buffer = ctypes.c_char * 0


class Socket:
    """A stream to one peer over any transport of the library.

    Behaves as a blocking socket with a time-out: what a program does with a connected
    socket.socket it can do with this, but for handing its descriptor to something else.
    One thread at a time may use it, as with a socket's stream; close() may come from any.
    """

    def __init__(self, url: str, timeout: float | None = None) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._timeout = timeout
        self._conn: int | None = None
        self._loop: int | None = lib.loop_new()
        if not self._loop:
            raise _native.set_up_error()
        self._conn = lib.connect_wait(self._loop, url.encode(), self._nanoseconds())
        if not self._conn:
            error = _native.set_up_error()
            self.close()
            raise TimeoutError(*error.args) if error.errno == errno.ETIMEDOUT else error
        _keeper.keep(self)

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    # --- data ------------------------------------------------------------------------------------

    def recv(self, size: int, flags: int = 0) -> bytes:
        """At least one byte; b"" at end of stream. flags: MSG_PEEK is not there."""
        if flags:
            raise OSError(errno.EOPNOTSUPP, "recv() has no flags here")
        buffer = ctypes.create_string_buffer(size)
        return ctypes.string_at(buffer, self._read(buffer, size))

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "recv_into() has no flags here")
        view = memoryview(buffer).cast("B")
        size = min(nbytes, len(view)) if nbytes else len(view)
        return self._read(_Buffer.from_buffer(view), size) if size else 0

    def send(self, data: Any, flags: int = 0) -> int:
        """As much as there is room for, at least one byte."""
        view, address = _bytes_of(data)
        with self._lock:
            while True:
                n = lib.write(self._open(), address, len(view))
                if n >= 0:
                    lib.flush(self._conn)
                    return int(n)
                self._wait(WRITABLE)

    def sendall(self, data: Any, flags: int = 0) -> None:
        view, address = _bytes_of(data)
        with self._lock:
            n = lib.write_all(self._open(), address, len(view), self._nanoseconds())
            if n != len(view):
                raise self._error()

    def _read(self, buffer: Any, size: int) -> int:
        with self._lock:
            while True:
                n = lib.read(self._open(), ctypes.byref(buffer), size)
                if n >= 0:
                    return int(n)
                self._wait(READABLE)

    def _wait(self, direction: int) -> None:
        number = ctypes.get_errno()
        if number == errno.EINTR:
            return
        if number not in (errno.EAGAIN, errno.EWOULDBLOCK):
            raise self._error(number)
        if self._timeout == 0:
            raise BlockingIOError(number, os.strerror(number))
        if lib.wait(self._open(), direction, self._nanoseconds()) != 0:
            raise self._error()

    # --- the end ---------------------------------------------------------------------------------

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """SHUT_RDWR, or SHUT_WR where the transport has a half-close."""
        with self._lock:
            both = how != socket.SHUT_WR
            if lib.shutdown(self._open(), READABLE | WRITABLE if both else WRITABLE) != 0:
                raise self._error()

    def close(self) -> None:
        """Waits for a call that another thread is in."""
        if os.getpid() != self._process:
            return self._leave_to_parent()
        with self._lock:
            conn, self._conn = self._conn, None
            loop, self._loop = self._loop, None
            if loop:
                _keeper.drop(self)
                lib.close(conn)
                lib.loop_free(loop)  # which waits for what was written, for its end-linger

    def _leave_to_parent(self) -> None:
        """In a child of fork(): nothing is said to the peer, with whom the parent goes on."""
        conn, self._conn, self._loop = self._conn, None, None
        if conn and (fd := lib.fd(conn)) >= 0:
            os.close(fd)

    # --- settings and facts ----------------------------------------------------------------------

    def settimeout(self, value: float | None) -> None:
        self._timeout = value

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def setsockopt(self, *_: Any) -> None:
        """Nothing: the URL's options are for that."""

    def fileno(self) -> int:
        """Readable while there is something to do, which may be less than a byte to read."""
        with self._lock:
            return -1 if self._loop is None else int(lib.descriptor(self._loop))

    def readable(self, timeout: float | None = 0) -> bool:
        """Whether recv() would return at once, within that many seconds."""
        with self._lock:
            limit = -1 if timeout is None else int(timeout * 1e9)
            return bool(lib.wait(self._open(), READABLE, limit) == 0)

    def getpeername(self) -> tuple[str, int] | str:
        return _native.address(lib.peer, self._open())

    def getsockname(self) -> tuple[str, int] | str:
        return _native.address(lib.local, self._open())

    def transport(self) -> str:
        return str(lib.transport(self._open()).decode())

    def path(self) -> str:
        """What carries the bytes, in one line: "tcp 10.0.0.2:50400 > 10.0.0.1:6379"."""
        return _native.path(self._open())

    def info(self) -> dict[str, str]:
        """Details of the transport, for people."""
        return _native.facts(lambda take: lib.info(self._open(), take, None))

    # --- inside ----------------------------------------------------------------------------------

    def _open(self) -> int:
        if self._conn is None:
            raise OSError(errno.EBADF, "the connection is closed")
        return self._conn

    def _nanoseconds(self) -> int:
        return -1 if self._timeout is None else int(self._timeout * 1e9)

    def _error(self, number: int | None = None) -> OSError:
        number = number or ctypes.get_errno()
        if number == errno.ETIMEDOUT and lib.get_state(self._conn) != _native.FAILED:
            return TimeoutError(number, "timed out")
        return _native.io_error(self._conn, number)

    def _turn(self) -> None:
        """By the keeper: what the transport has to do while nobody uses the connection."""
        if not self._lock.acquire(blocking=False):
            return  # whoever uses it does that
        try:
            if self._loop is not None:
                lib.dispatch(self._loop)
        finally:
            self._lock.release()


def _bytes_of(data: Any) -> tuple[memoryview, Any]:
    view = memoryview(data).cast("B")
    if not len(view):
        return view, None
    if view.readonly:
        copy = bytes(view)  # itself, if it is bytes
        return memoryview(copy), ctypes.cast(ctypes.c_char_p(copy), ctypes.c_void_p)
    return view, ctypes.byref(_Buffer.from_buffer(view))


class _Keeper:
    """Turns the loops of connections over RDMA that nobody uses: their peers want to hear from them.

    One thread for all of them, which is there while there are any.
    """

    def __init__(self) -> None:
        # Entered again where the collector closes a connection meanwhile.
        self._lock = threading.RLock()
        self._kept: dict[int, weakref.ref[Socket]] = {}
        self._thread: threading.Thread | None = None
        self._poll: select.epoll | None = None

    def keep(self, connection: Socket) -> None:
        if "rdma" not in connection.transport():  # a list may have come to it
            return
        fd = connection.fileno()
        with self._lock:
            if self._poll is None:
                self._poll = select.epoll()
            self._kept[fd] = weakref.ref(connection)
            self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(self._poll,), name="aeconn-keeper", daemon=True
                )
                self._thread.start()

    def drop(self, connection: Socket) -> None:
        with self._lock:
            for fd, kept in list(self._kept.items()):
                if kept() in (None, connection):
                    self._kept.pop(fd, None)

    def forget_parent(self) -> None:
        """In a child of fork(): the thread and its descriptors are the parent's."""
        self.__init__()  # type: ignore[misc]

    def _run(self, poll: select.epoll) -> None:
        while True:
            ready = poll.poll(1.0)
            for fd, _ in ready:
                with self._lock:
                    kept = self._kept.get(fd)
                connection = kept() if kept else None
                if connection is None:
                    continue
                connection._turn()
                del connection
                with self._lock:
                    if fd in self._kept:
                        poll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
            with self._lock:
                if not self._kept and self._poll is poll:
                    poll.close()
                    self._poll = self._thread = None
                    return


_keeper = _Keeper()
os.register_at_fork(after_in_child=_keeper.forget_parent)
