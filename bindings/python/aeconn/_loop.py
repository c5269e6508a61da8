# SPDX-License-Identifier: BSD-3-Clause
"""A loop of the library attached to an asyncio loop.

C only records which connections have events. Protocols are called after it has returned, each in
the context of its transport, so their exceptions propagate as with asyncio's own transports.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from . import _native
from ._native import lib

READ_SIZE = 256 * 1024
_MOST_FOUND = 1024  # events at a time
_Loop = Callable[[], "asyncio.AbstractEventLoop | None"]  # a weak reference


class Serving(Protocol):
    """A server on the loop."""

    def _accept(self) -> None: ...
    def close(self) -> None: ...


class Stopping(Protocol):
    """The stop of the loop's servers."""

    _hurries_from: float

    @property
    def phase(self) -> str: ...


class Called:
    """What handles events of C, by number. The asyncio loop references it until closed, like its
    own transports: C holds no references to Python objects."""

    def __init__(self) -> None:
        self.steps: dict[int, Callable[[], object]] = {}
        self.servers: set[Serving] = set()
        self.stop: Stopping | None = None
        self.idle: set[Any] = set()  # StreamReaders that wait for a request
        self.numbers = 0
        self.found = (ctypes.c_size_t * _MOST_FOUND)()  # numbers from C
        self.address = ctypes.addressof(self.found)

    def reserve(self, count: int) -> int:
        """Returns the first of so many numbers."""
        first = self.numbers + 1
        self.numbers += count
        return first

    def keep(self, step: Callable[[], object]) -> int:
        """Returns the number of the step."""
        number = self.reserve(1)
        self.steps[number] = step
        return number

    def let_go(self, number: int) -> None:
        self.steps.pop(number, None)


def _collect(loop: _Loop, attached: Attached, called: Called, most: int) -> int:
    """Lets C handle events. Returns how many numbers it has stored; -1 if it has failed."""
    with attached.gate:
        count: int = lib.collect(attached.native, called.address, most)
    if count < 0 and attached.process == os.getpid():  # in a child after fork() it always fails
        told = {"message": "aeconn_collect() failed", "exception": _native.set_up_error()}
        if (running := loop()) is not None:
            running.call_exception_handler(told)
    return count


def _dispatch(loop: _Loop, attached: Attached, called: Called) -> None:
    count = _collect(loop, attached, called, _MOST_FOUND)
    if count == _MOST_FOUND:  # maybe there are more
        _soon(loop, _dispatch, attached, called)
    _work(loop, iter(called.found[:count] if count > 0 else ()), called)


def _work(loop: _Loop, numbers: Iterator[int], called: Called) -> None:
    steps = called.steps
    try:
        for number in numbers:
            if number in steps:
                steps[number]()
        for server in tuple(called.servers):
            server._accept()
    except BaseException:  # it leaves the loop; the rest follows in the next iteration
        _soon(loop, _work, numbers, called)
        raise


def _soon(loop: _Loop, step: Callable[..., None], *arguments: Any) -> None:
    running = loop()
    if running is not None and not running.is_closed():
        running.call_soon(step, loop, *arguments)


@_native.keeps_errno
def _free(native: int, process: int, stops: list[int]) -> None:
    if os.getpid() == process:  # in a child after fork(), its connections belong to the parent
        lib.loop_free(native)
        for each in stops:
            lib.graceful_stop_free(each)


class Attached:
    """A loop of the library, attached to an asyncio loop for that loop's lifetime."""

    ended = False  # the interpreter is about to exit
    _all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Attached] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = lib.loop_new()
        if not self.native:
            raise _native.set_up_error()
        # Freeing a large block once makes glibc keep freed memory of that size (mallopt(3),
        # M_MMAP_THRESHOLD); else the buffers of streams go back to the kernel with each message.
        bytearray(READ_SIZE)
        buffer = bytearray(READ_SIZE)
        self.view = memoryview(buffer)
        self.address = ctypes.addressof((ctypes.c_char * READ_SIZE).from_buffer(buffer))
        self.process = os.getpid()
        self._thread = threading.current_thread()
        self.stops: list[int] = []  # of C; freed after the loop if not before
        self.gate = threading.RLock()  # held while C may call Python; acquired for good at exit
        # self must not reference it: that would keep the loop alive.
        called = Called()
        self._called = weakref.ref(called)
        self._freed = weakref.finalize(self, _free, self.native, self.process, self.stops)
        self._freed.atexit = False  # done by end()
        descriptor = _native.descriptor(self.native)
        loop.add_reader(descriptor, _dispatch, weakref.ref(loop), self, called)

    @property
    def called(self) -> Called:
        called = self._called()
        if called is None:
            raise RuntimeError("Event loop is closed")
        return called

    def let_go(self, number: int) -> None:
        called = self._called()
        if called is not None:
            called.let_go(number)

    def check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Other threads must not call C, and the recorded events would change meanwhile. In a child
        after fork() all of this belongs to the parent."""
        if self.process != os.getpid():
            raise OSError(errno.EBADF, "this belongs to the parent process")
        if not on_thread(loop):
            raise RuntimeError("this belongs to its loop's thread: call_soon_threadsafe()")

    def take_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes the calling thread the one that the loop of C belongs to."""
        reference = weakref.ref(loop)
        _collect(reference, self, self.called, 0)
        _soon(reference, _dispatch, self, self.called)  # for what was recorded

    @classmethod
    def to(cls, loop: asyncio.AbstractEventLoop) -> Attached:
        """That of the running loop."""
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


atexit.register(Attached.end)


def on_thread(loop: asyncio.AbstractEventLoop) -> bool:
    return asyncio._get_running_loop() is loop or not loop.is_running()
