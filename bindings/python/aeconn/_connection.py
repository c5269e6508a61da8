# SPDX-License-Identifier: BSD-3-Clause
"""A connection of the library, and the calls that use it and wait for it.

C code does not block. A call makes an attempt; if it has to wait, it releases the lock and polls
the descriptor of the connection's loop. A reading thread and a writing one therefore do not wait
for each other, and Python's signal handlers run without delay during any wait.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from . import _native
from ._keeper import keeper
from ._native import NO_HANDLER, NOTHING, READABLE, WRITABLE, lib

OUTGOING = 0  # waiting for written data to be sent, which needs no handler
_T = TypeVar("_T")


class _Calls:
    """Calls in progress. Each call holds a lock of its own in a `with` statement, which releases it
    even if a signal handler raises an exception, so calls that have ended are not counted.
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


class Deadline:
    """A running time-out."""

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout

    def left_ms(self) -> int | None:
        """None: no limit. Rounded up, so that the time-out has expired after so long a wait."""
        if self._at is None:
            return None
        left = max(self._at - time.monotonic(), 0)
        return min(math.ceil(left * 1000), 2**31 - 1)


class Connection:
    """What the classes of a Socket have in common: the connection with its loop, the calls that
    are in progress, and how it ends.
    """

    _conn: int | None = None
    _loop: int | None = None
    _kept_at: int | None = None  # the keeper's descriptor of this connection
    _ends_by: Callable[[int | None], None] = staticmethod(lib.close)

    __getstate__ = _native.not_copied

    def _begin(self, timeout: float | None) -> None:
        self._lock = threading.RLock()  # held during calls of C, which do not block
        self._process = os.getpid()
        self._timeout = _native.seconds(timeout)
        self._users = _Calls()
        # The subset of calls that are polling.
        self._waiting = {READABLE: _Calls(), WRITABLE: _Calls(), OUTGOING: _Calls()}
        self._watched = {READABLE: False, WRITABLE: False}  # whether the loop has a handler
        self._polled_outside = False  # fileno() was called
        self._input_over = False  # recv() has no more data to wait for
        self._read_shut = False  # shutdown(SHUT_RD)
        self._closing = False
        self._known_kind: tuple[int, int] | None = None  # family and protocol
        self._files = 0  # number of open files from makefile()
        self._close_wanted = False  # close() was called and waits for these files
        self._loop = lib.loop_new()
        if not self._loop:
            raise _native.set_up_error()

    def __del__(self) -> None:
        self._close_now()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends calls in other threads. Written data is still delivered."""
        self._close_wanted = True
        if not self._files:
            self._close_now()

    def abort(self) -> None:
        """Like close(), but resets the stream: no more data is delivered, and the peer sees an
        error (ConnectionResetError, if the transport supports that) instead of a clean end."""
        self._ends_by = lib.abort
        self._files = 0
        self._close_now()

    @_native.keeps_errno
    def _close_now(self) -> None:
        if self._loop is None:
            if self._kept_at is not None and os.getpid() == self._process:
                keeper.drop(self)  # a previous close() was interrupted there
            return
        if os.getpid() != self._process:
            return self._leave_to_parent()
        with self._lock:
            self._closing = True
            if self._users:  # the last of them frees the connection
                if self._loop is not None:
                    _native.wake(self._loop)
            else:
                self._free()

    def _free(self) -> None:
        """If interrupted, the next call continues: each resource is released right after it is
        detached."""
        try:
            keeper.drop(self)
        finally:
            ends_by, close_loop = self._ends_by, lib.loop_free
            conn, self._conn = self._conn, None
            ends_by(conn)
            loop, self._loop = self._loop, None
            close_loop(loop)  # waits up to its end-linger for written data to be sent

    def _leave_to_parent(self) -> None:
        conn, self._conn, self._loop = self._conn, None, None
        _native.leave_to_parent(conn)

    # --- calls -----------------------------------------------------------------------------------

    def _open(self) -> int:
        if self._conn is None or self._closing:
            raise OSError(errno.EBADF, "the connection is closed")
        if os.getpid() != self._process:
            raise OSError(errno.EBADF, "the connection belongs to the parent process")
        return self._conn

    @_native.keeps_errno
    def _used(self, work: Callable[[threading.Lock], _T]) -> _T:
        """Runs `work`, within which all calls of C on the connection are made. If another thread or
        a signal handler calls close() meanwhile, the connection is freed here. `work` receives the
        lock that marks it as in progress."""
        if os.getpid() != self._process:  # in a child after fork() the lock may be held for ever
            self._open()
        held = threading.Lock()
        try:
            with held:
                self._users.add(held)
                return work(held)
        finally:
            try:
                self._free_if_unused()
            except BaseException:  # raised by a signal handler
                self._free_if_unused()
                raise

    def _free_if_unused(self) -> None:
        if not self._users and self._closing:
            with self._lock:
                if not self._users:
                    self._free()

    def _locked(self, step: Callable[[int], _T]) -> _T:
        """Returns the result of `step`, which must not block."""

        def work(_: threading.Lock) -> _T:
            with self._lock:
                return step(self._open())

        return self._used(work)

    def _until(
        self,
        step: Callable[[int], int | None],
        direction: int,
        deadline: Deadline | None = None,
        overdue: int | None = None,
    ) -> int:
        """Calls `step` with the lock held, whenever something may have changed, until it returns a
        result other than None; `step` must not block. On time-out, `overdue` is returned or, if
        that is None, an exception is raised."""
        limit = deadline or Deadline(self._timeout)

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
                        if left == 0:  # one more attempt: data may have arrived
                            late = True
                            self._turn()
                            continue
                        waits = True
                        self._wait_begins(direction, held)
                    poll = select.poll()
                    poll.register(_native.descriptor(self._loop), select.POLLIN)
                    poll.poll(left)
                finally:
                    if waits:
                        try:
                            self._wait_ends(direction, held)
                        except BaseException:  # raised by a signal handler
                            self._wait_ends(direction, held)
                            raise
                        waits = False

        return self._used(work)

    def _wait_begins(self, direction: int, held: threading.Lock) -> None:
        if not self._waits():
            keeper.hold(self)
        self._waiting[direction].add(held)
        self._watch()

    def _wait_ends(self, direction: int, held: threading.Lock) -> None:
        """May be called twice."""
        with self._lock:
            self._waiting[direction].discard(held)
            if not self._waits():
                keeper.release(self)
            if not self._closing:
                self._watch()
                self._turn()

    def _waits(self) -> bool:
        return any(self._waiting.values())

    def _watch(self) -> None:
        """Sets handlers for the directions being waited for: with a handler, the descriptor is
        readable while that direction is ready. Polling of fileno() outside does not wake a waiting
        writer."""
        waiting = self._waiting
        outside = self._polled_outside and not waiting[WRITABLE] and not waiting[OUTGOING]
        for direction, wanted, setter in (
            (READABLE, bool(waiting[READABLE]) or outside, lib.on_readable),
            (WRITABLE, bool(waiting[WRITABLE]), lib.on_writable),
        ):
            if wanted != self._watched[direction]:
                if setter(self._conn, NOTHING if wanted else NO_HANDLER, None) != 0:
                    raise self._error()
                self._watched[direction] = wanted

    def _turn(self) -> None:
        """Dispatches the loop. Wakes other waiting calls that no handler wakes."""
        lib.dispatch(self._loop)
        waiting = self._waiting
        reader = waiting[READABLE] and self._input_over
        if reader or (waiting[OUTGOING] and self._conn and not still_leaves(self._conn)):
            _native.wake(self._loop or 0)

    def _turn_idle(self) -> bool:
        """Called by the keeper: does the transport's pending work unless a call uses the
        connection. Returns False if data remains that only a call can consume: bytes announced by
        fileno()."""
        if self._users:  # calls in progress must not wait for the keeper's thread
            return True
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
        number = number or ctypes.get_errno()
        if number == errno.ENOTCONN:  # it has failed before: that error again
            number = lib.last_errno(self._conn) or number
        return _native.io_error(self._conn, number)

    def _overdue(self) -> OSError:
        if self._timeout == 0 and lib.get_state(self._conn) != _native.CONNECTING:
            return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return TimeoutError(errno.ETIMEDOUT, "timed out")


def still_leaves(conn: int) -> bool:
    """Whether some written data is still buffered in the library."""
    waits = lib.write_all(conn, None, 0, 0) != 0
    return waits and ctypes.get_errno() == errno.ETIMEDOUT
