# SPDX-License-Identifier: BSD-3-Clause
"""The graceful stop of asyncio servers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from . import _native
from ._loop import Attached
from ._native import NOTE, lib
from ._transport import Transport


class Left(NamedTuple):
    """What a stop has aborted: connections, and bytes of their output that had not left this
    machine, as far as it is known: not over rdma and shm."""

    connections: int = 0
    bytes: int = 0


class Stop:
    """Ends the servers of the running asyncio loop without losing a request:

        with aeconn.Stop(limit=10) as stop:
            await aeconn.start_server(handle, url)
            return await stop.wait()

    At the first signal, or request(), the loop accepts the connections that have arrived (within a
    second, or half of `limit` if that is less). Then the servers are closed, and sessions end when
    they have nothing left to answer: next_request() returns False. At a second one, or when `limit`
    is over (seconds; 0: at once; None: never), connections that are left are aborted: their calls
    raise OSError (ECANCELED). Requests within 100 ms, or before the servers are closed, are one.
    Connections that the program opened itself are not waited for.

    `signals` are handled as by loop.add_signal_handler(), so on the main thread only; elsewhere
    pass (). `begins` is called once the servers are closed: a program with protocols of its own
    closes the transports there that have no answer due, and each other one after its last answer. A
    loop has one Stop at a time. It belongs to the loop's thread, but for request() and what is
    read."""

    __getstate__ = _native.not_copied

    def __init__(
        self,
        limit: float | None = 10.0,
        *,
        signals: Iterable[int] = (signal.SIGINT, signal.SIGTERM),
        begins: Callable[[], object] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._attached = attached = Attached.to(self._loop)
        self._thread = threading.get_ident()
        self._called = called = attached.called
        if called.stop is not None:
            raise RuntimeError("this loop has a Stop already: close() that first")
        self._limit = _native.seconds(limit)
        self._begins = begins
        self._phase: Literal["serving", "draining", "ended"] = "serving"
        self._hurries_from = float("inf")  # loop.time() when half of the limit is over
        self._left = Left()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._before: dict[int, Any] = {}  # the handler of each signal
        self._signalled = False
        self._number = called.keep(self._on_note)
        note = ctypes.cast(NOTE, ctypes.c_void_p)
        settings = _native.StopSettings(
            signals=(ctypes.c_int * 1)(0), begins=note, ends=note, context=self._number
        )
        most = -1 if self._limit is None else int(self._limit * 1e9)
        self._native: int | None = lib.graceful_stop_new(attached.native, None, most, settings)
        if not self._native:
            called.let_go(self._number)
            raise _native.set_up_error()
        called.stop = self
        attached.stops.append(self._native)
        try:
            for number in signals:
                # Of the loop, which has no function that tells; or the process's.
                before = getattr(self._loop, "_signal_handlers", {}).get(number)
                before = before or signal.getsignal(number)
                self._loop.add_signal_handler(number, self._on_signal)
                self._before[number] = before
        except BaseException as error:
            self.close()
            if isinstance(error, RuntimeError) and "main thread" in str(error):
                raise RuntimeError(
                    "signals reach the main thread alone: pass signals=() and call request()"
                ) from None
            raise

    def __repr__(self) -> str:
        return f"<aeconn.Stop {self._phase}>"

    def _on_signal(self) -> None:
        self._signalled = True
        self._request()

    def _request(self) -> None:
        if self._native is None:
            return
        lib.graceful_stop_request(self._native)
        if self._limit is not None and self._hurries_from == float("inf"):
            self._hurries_from = self._loop.time() + self._limit / 2

    def _on_note(self) -> None:
        """C notes the one number twice: first when what had arrived is accepted, then at the
        end."""
        if self._phase == "serving":
            self._phase = "draining"
            self._begin()
        else:
            self._on_end()

    def _begin(self) -> None:
        if self._native is None:
            return
        try:
            for server in tuple(self._called.servers):
                server._accept()  # these are sessions already, for C
                server.close()
            for reader in tuple(self._called.idle):
                reader._wakeup_waiter()
            begins, self._begins = self._begins, None
            if begins is not None:
                begins()
        except BaseException:  # it leaves the loop; the rest follows in the next iteration
            self._loop.call_soon(self._begin)
            raise

    def _on_end(self) -> None:
        connections, count = ctypes.c_uint64(), ctypes.c_uint64()
        lib.graceful_stop_status(self._native, connections, count)
        self._left = Left(connections.value, count.value)
        self._phase = "ended"
        if not self._ended.done():
            self._ended.set_result(None)

    def request(self) -> None:
        """Does what a signal does. May be called on any thread, and in a signal handler."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._request)

    async def wait(self) -> int:
        """Waits until the stop has ended, and returns its status."""
        self._attached.check(self._loop)
        await asyncio.shield(self._ended)
        return self.status

    @property
    def phase(self) -> Literal["serving", "draining", "ended"]:
        """How far the stop has come; it only goes on. "serving" until what has arrived is accepted
        and the servers are closed: sessions end from then on."""
        return self._phase

    @property
    def left(self) -> Left:
        """What was aborted, once the phase is "ended"."""
        return self._left

    @property
    def status(self) -> int:
        """For sys.exit(): 0, or 1 if connections were aborted."""
        return 1 if self._left.connections else 0

    def close(self) -> None:
        """Ends the stop: sessions that are left live on, and servers if the phase is "serving". The
        signals' handlers are what they were, unless a signal has arrived: the program is about to
        end then, and ignores more of them. wait() raises CancelledError. Raises RuntimeError on
        another thread than the one that runs the loop; if the loop does not run, any thread may
        close a Stop without signals, and the main thread one with signals."""
        if self._attached.process != os.getpid() or self._native is None:
            return
        self._attached.check(self._loop)
        if self._before and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a Stop with signals has to be closed on the main thread")
        if self._thread != threading.get_ident():
            # Otherwise C would wait until the thread that ran its loop last runs it again.
            self._attached.take_over(self._loop)
        native, self._native = self._native, None
        self._called.stop = None
        self._called.let_go(self._number)
        self._attached.stops.remove(native)
        lib.graceful_stop_free(native)
        self._ended.cancel()
        for number, before in self._before.items():
            self._loop.remove_signal_handler(number)
            if self._signalled:
                signal.signal(number, signal.SIG_IGN)
            elif isinstance(before, asyncio.Handle):
                its: Any = before
                self._loop.add_signal_handler(number, its._callback, *its._args)
            elif before is not None:  # it was set from Python
                signal.signal(number, before)

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def next_request(reader: asyncio.StreamReader) -> bool:
    """To be awaited where a request begins: True once bytes of one have arrived, which are then
    read as always. False at the end of the stream, and when the loop's Stop has begun and nothing
    has arrived: the session should end. Once half of the Stop's limit is over, False even if the
    next request has arrived. Raises what reading would."""
    loop = asyncio.get_running_loop()
    called = Attached.to(loop).called
    its: Any = reader
    while True:
        stop = called.stop
        begun = stop is not None and stop.phase != "serving"
        if begun and not its._buffer and isinstance(its._transport, Transport):
            its._transport._on_readable()  # what has arrived
        error = its.exception()
        if error is not None:
            raise error
        if its._buffer:
            return stop is None or loop.time() < stop._hurries_from
        if begun or its._eof:
            return False
        called.idle.add(reader)
        try:
            await its._wait_for_data("next_request")
        finally:
            called.idle.discard(reader)
