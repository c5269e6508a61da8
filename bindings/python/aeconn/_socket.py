# SPDX-License-Identifier: BSD-3-Clause
"""A blocking connection with the methods of a socket."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import socket
import sys
from typing import TYPE_CHECKING

from . import _native
from ._connection import OUTGOING, Deadline
from ._data import Data
from ._facts import Facts
from ._keeper import keeper
from ._native import NO_HANDLER, READABLE, WRITABLE, lib
from ._pump import pumps

if TYPE_CHECKING:
    from typing_extensions import Self


class Socket(Data, Facts):
    """A stream to one peer over any transport of the library.

    Behaves like a connected socket.socket; docs/python.md lists the differences. One thread may
    read and another write at the same time. close() may be called from any thread and from a signal
    handler: waiting calls then raise OSError (EBADF).
    """

    @_native.keeps_errno
    def __init__(self, url: str, timeout: float | None = None) -> None:
        self._begin(timeout)
        limited = _native.with_limit(url, self._timeout)
        self._conn = lib.connect(self._loop, _native.to_c(limited), NO_HANDLER, None)
        try:
            if not self._conn:
                raise _native.without(url, limited, _native.set_up_error())
            if self._until(_settled, OUTGOING) != _native.CONNECTED:
                raise _native.without(url, limited, _native.connect_error(self._conn))
        except BaseException:
            self.close()
            raise
        with contextlib.suppress(OSError):  # no descriptor is left: later, then
            self._kind()
        keeper.keep(self)

    @classmethod
    @_native.keeps_errno
    def adopt(cls, connected: socket.socket) -> Self:
        """Takes over a connected TCP, Unix or vsock socket and its time-out."""
        ssl = sys.modules.get("ssl")
        if ssl is not None and isinstance(connected, ssl.SSLSocket):
            raise TypeError("an ssl.SSLSocket cannot be adopted: connect to a tls:// URL instead")
        self = cls.__new__(cls)
        self._begin(connected.gettimeout())
        scheme = _native.scheme_of(connected).encode()
        self._conn = lib.adopt(self._loop, scheme, connected.fileno())
        if not self._conn:
            error = _native.set_up_error()
            self.close()
            raise error
        self._known_kind = connected.family, connected.proto
        connected.detach()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return f"<aeconn.Socket {self.path()}>"
        except OSError:
            return "<aeconn.Socket, closed>"

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """SHUT_WR requires a transport with half-close; SHUT_RD makes recv() return end of
        stream."""
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
            _native.wake(self._loop or 0)  # waiting calls check again

        self._locked(step)

    # --- descriptors -----------------------------------------------------------------------------

    def fileno(self) -> int:
        """Descriptor for select() and similar functions to wait for reading: readable if recv()
        would not block, and sometimes when it would. Returns -1 after close() and in a child after
        fork(). Waiting for space to write is not supported."""

        def step(_: int) -> int:
            if not self._polled_outside:
                self._polled_outside = True
                self._watch()
                lib.dispatch(self._loop)
            return _native.descriptor(self._loop)

        if self._conn is None or self._closing or os.getpid() != self._process:
            return -1
        try:
            return self._locked(step)
        except OSError:
            if self._closing:  # closed meanwhile
                return -1
            raise

    def detach(self) -> int:
        """Closes this object without closing the connection, and returns a descriptor for it: a
        Unix stream socket, non-blocking if the time-out is 0, for select() in both directions,
        socket.socket(fileno=...), other threads, and C libraries. It belongs to the caller; closing
        it closes the connection. A thread moves the bytes. Raises OSError (EBUSY) while another
        thread uses the connection; after any OSError it is as before, after other exceptions it has
        ended.
        """

        def step(conn: int) -> int:
            if len(self._users) > 1:
                raise OSError(errno.EBUSY, "another call is using the connection")
            keeper.drop(self)
            loop, self._conn, self._loop = self._loop, None, None
            assert loop is not None
            begun, fd = False, -1
            try:
                fd = int(lib.to_fd(conn, _native.STOP_AT_END, loop))
                if fd < 0:
                    error = _native.set_up_error()
                else:
                    os.set_blocking(fd, self._timeout != 0)
                    begun = True
                    pumps.begin(loop)
            except BaseException:  # raised by a signal handler, or there is no thread
                if fd >= 0:
                    os.close(fd)  # a thread that runs already ends by that
                if not begun:
                    lib.loop_free(loop)
                raise
            if fd < 0:
                self._conn, self._loop = conn, loop
                self._watched = {READABLE: False, WRITABLE: False}
                self._watch()
                keeper.keep(self)
                raise error
            return fd

        return self._locked(step)

    def readable(self, timeout: float | None = 0) -> bool:
        """Whether recv() would return at once; waits up to `timeout` seconds."""

        def step(conn: int) -> int | None:
            over = self._input_over or lib.wait(conn, READABLE, 0) == 0
            return 1 if over else None

        return bool(self._until(step, READABLE, Deadline(_native.seconds(timeout)), overdue=0))


def _settled(conn: int) -> int | None:
    state = int(lib.get_state(conn))
    return None if state in (_native.NEW, _native.CONNECTING) else state
