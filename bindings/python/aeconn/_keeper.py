# SPDX-License-Identifier: BSD-3-Clause
"""Runs the loops of connections that no call is using at the moment."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
import weakref
from typing import Protocol

from . import _native

_SOON = 0.002  # seconds until the next check
_LATER = 0.25  # likewise, if pending data can only be consumed by a call of the user


class Held(Protocol):
    """A connection that may be kept."""

    _kept_at: int | None  # the keeper's descriptor of this connection


class Kept(Held, Protocol):
    """A connection to keep."""

    _loop: int | None

    def transport(self) -> str: ...
    def _waits(self) -> bool: ...
    def _turn_idle(self) -> bool: ...


class _Keeper:
    """RDMA requires regular keepalive messages, and data that TLS or RDMA could not send at once
    must be sent when space becomes available. One thread does this for all connections, while there
    are any.
    """

    def __init__(self) -> None:
        # Re-entrant, because the garbage collector may close a connection meanwhile.
        self._lock = threading.RLock()
        self._kept: dict[int, weakref.ref[Kept]] = {}
        self._thread: threading.Thread | None = None
        self._poll: select.epoll | None = None
        self._wakes = -1  # end of a pipe; thread, poll and pipe exist together or not at all
        self._ended = False

    def keep(self, connection: Kept) -> None:
        if connection.transport() in ("tcp", "unix"):  # the kernel does all this
            return
        fd = _native.descriptor(connection._loop)
        with self._lock:
            if self._ended:
                return
            try:
                connection._kept_at = fd
                self._kept[fd] = weakref.ref(connection)
                if self._thread is None:
                    self._begin()
                assert self._poll is not None
                self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
            except BaseException:
                self.drop(connection)
                raise

    def _begin(self) -> None:
        poll = select.epoll()
        woken, wakes = os.pipe()
        try:
            poll.register(woken, select.EPOLLIN)
            thread = threading.Thread(
                target=self._run, args=(poll, woken, wakes), name="aeconn-keeper", daemon=True
            )
            self._thread, self._poll, self._wakes = thread, poll, wakes
            thread.start()
        except BaseException:
            self._thread, self._poll, self._wakes = None, None, -1
            os.close(woken)
            os.close(wakes)
            raise

    def hold(self, connection: Held) -> None:
        """A call waits with the connection and runs its loop meanwhile."""
        self._set(connection, 0)

    def release(self, connection: Held) -> None:
        self._set(connection, select.EPOLLIN | select.EPOLLONESHOT)

    def _set(self, connection: Held, events: int) -> None:
        fd = connection._kept_at
        if fd is None:
            return
        with self._lock:
            # drop() precedes freeing the loop, so this descriptor still belongs to the loop.
            kept = self._kept.get(fd)
            if kept is not None and kept() is connection and self._poll is not None:
                self._poll.modify(fd, events)

    def drop(self, connection: Held) -> None:
        """May be called again if it was interrupted, even if the loop was freed since."""
        with self._lock:
            fd = connection._kept_at
            if fd is None:
                return
            kept = self._kept.get(fd)
            if kept is not None and kept() in (None, connection):
                if self._poll is not None:
                    with contextlib.suppress(OSError):  # keep() failed before registering it
                        self._poll.unregister(fd)
                self._kept.pop(fd, None)
            if not self._kept and self._thread is not None:
                os.write(self._wakes, b"!")
            connection._kept_at = None

    def forget_parent(self) -> None:
        """Called in a child after fork(): the thread and its descriptors belong to the parent."""
        self.__init__()  # type: ignore[misc]

    def end(self) -> None:
        """Called before the interpreter exits: it would stop the thread within a call, with the
        call's lock held."""
        with self._lock:
            self._ended = True
            self._kept.clear()
            thread = self._thread
            if thread is not None:
                os.write(self._wakes, b"!")
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self, poll: select.epoll, woken: int, wakes: int) -> None:
        with self._lock:
            if self._poll is not poll:  # _begin() failed after starting the thread
                return
        later: dict[int, float] = {}  # when to check which descriptors again
        while True:
            ready = poll.poll(max(min(later.values()) - time.monotonic(), 0) if later else None)
            now = time.monotonic()
            for fd in [fd for fd, when in later.items() if when <= now]:
                del later[fd]
                connection = self._connection(fd)
                if connection is not None and not connection._waits():
                    self.release(connection)
            for fd, _ in ready:
                if fd == woken:
                    os.read(woken, 100)
                    continue
                connection = self._connection(fd)
                if connection is not None:
                    later[fd] = now + (_SOON if connection._turn_idle() else _LATER)
            connection = None  # a reference would keep it from being closed
            with self._lock:
                if not self._kept and self._poll is poll:
                    self._thread, self._poll, self._wakes = None, None, -1
                    poll.close()
                    os.close(woken)
                    os.close(wakes)
                    return

    def _connection(self, fd: int) -> Kept | None:
        with self._lock:
            kept = self._kept.get(fd)
        return kept() if kept else None


keeper = _Keeper()
os.register_at_fork(after_in_child=keeper.forget_parent)
atexit.register(keeper.end)
