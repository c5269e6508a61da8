# SPDX-License-Identifier: BSD-3-Clause
"""Turns the loops of connections that nobody uses at the moment."""

from __future__ import annotations

import atexit
import os
import select
import threading
import weakref
from typing import TYPE_CHECKING

from ._native import lib

if TYPE_CHECKING:
    from ._socket import Socket

_LATER = 0.25  # seconds until the next look at what only a call of the user's can take


class _Keeper:
    """A peer over RDMA wants to hear from us now and then, and what TLS or RDMA could not hand on
    at once has to leave when there is room. One thread for all of them, while there are any.
    """

    def __init__(self) -> None:
        # Entered again where the collector closes a connection meanwhile.
        self._lock = threading.RLock()
        self._kept: dict[int, weakref.ref[Socket]] = {}
        self._thread: threading.Thread | None = None
        self._poll: select.epoll | None = None
        self._wakes, self._woken = -1, -1  # a pipe beside the loops
        self._ended = False

    def keep(self, connection: Socket) -> None:
        if connection.transport() in ("tcp", "unix"):  # the kernel does that
            return
        fd = int(lib.descriptor(connection._loop))
        with self._lock:
            if self._ended:
                return
            if self._poll is None:
                self._poll = select.epoll()
                self._woken, self._wakes = os.pipe()
                self._poll.register(self._woken, select.EPOLLIN)
            self._kept[fd] = weakref.ref(connection)
            self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(self._poll,), name="aeconn-keeper", daemon=True
                )
                self._thread.start()

    def hold(self, connection: Socket) -> None:
        """Somebody waits with it, and does that meanwhile."""
        self._set(connection, 0)

    def release(self, connection: Socket) -> None:
        self._set(connection, select.EPOLLIN | select.EPOLLONESHOT)

    def _set(self, connection: Socket, events: int) -> None:
        if not self._kept or connection._loop is None:
            return
        fd = int(lib.descriptor(connection._loop))
        with self._lock:
            if fd in self._kept and self._poll is not None:
                self._poll.modify(fd, events)

    def drop(self, connection: Socket) -> None:
        with self._lock:
            for fd, kept in list(self._kept.items()):
                if kept() in (None, connection):
                    self._kept.pop(fd, None)
            if not self._kept and self._thread is not None:
                os.write(self._wakes, b"!")

    def forget_parent(self) -> None:
        """In a child of fork(): the thread and its descriptors are the parent's."""
        self.__init__()  # type: ignore[misc]

    def end(self) -> None:
        """Before the interpreter ends: a thread that it stops in a call would keep that's lock."""
        with self._lock:
            self._ended = True
            self._kept.clear()
            thread = self._thread
            if thread is not None:
                os.write(self._wakes, b"!")
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self, poll: select.epoll) -> None:
        later: list[int] = []
        while True:
            ready = poll.poll(_LATER if later else None)
            if not ready:
                ready, later = [(fd, 0) for fd in later], []
            for fd, events in ready:
                if fd == self._woken and events:
                    os.read(fd, 100)
                    continue
                with self._lock:
                    kept = self._kept.get(fd)
                connection = kept() if kept else None
                if connection is None:
                    continue
                if events and not connection._turn_idle():
                    later.append(fd)
                elif not any(connection._waiting.values()):
                    self.release(connection)
                del connection
            with self._lock:
                if not self._kept and self._poll is poll:
                    poll.close()
                    os.close(self._woken)
                    os.close(self._wakes)
                    self._poll = self._thread = None
                    return


keeper = _Keeper()
os.register_at_fork(after_in_child=keeper.forget_parent)
atexit.register(keeper.end)
