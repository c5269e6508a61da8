# SPDX-License-Identifier: BSD-3-Clause
"""Runs the loops of connections that have become descriptors.

Each has a thread, which stays in C without the interpreter's lock until the connection has ended.
"""

from __future__ import annotations

import atexit
import os
import threading

from ._native import STOP, lib


class _Pumps:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}  # by loop
        self._ended = False

    def begin(self, loop: int) -> None:
        """Runs the loop until it is stopped, and frees it. If no thread can be started, raises
        RuntimeError and frees the loop, as for another exception before the thread runs."""
        thread = threading.Thread(
            target=self._run, args=(loop,), name="aeconn-descriptor", daemon=True
        )
        with self._lock:
            self._threads[loop] = thread
        try:
            thread.start()
        except BaseException:  # there is no thread, or a signal handler raised
            if thread.ident is None:
                self._free(loop)
            raise

    def _run(self, loop: int) -> None:
        with self._lock:
            ended = self._ended
        if not ended:
            lib.run(loop)
        self._free(loop)

    def _free(self, loop: int) -> None:
        with self._lock:  # end() posts only to loops that exist
            self._threads.pop(loop, None)
        lib.loop_free(loop)  # passes on what was written, for as long as its end-linger says

    def forget_parent(self) -> None:
        """Called in a child after fork(): threads and loops belong to the parent."""
        self.__init__()  # type: ignore[misc]

    def end(self) -> None:
        """Called before the interpreter exits: what was written to descriptors still leaves."""
        with self._lock:
            self._ended = True
            threads = list(self._threads.values())
            for loop in self._threads:
                lib.post(loop, STOP, loop)
        for thread in threads:
            if thread.ident is not None:
                thread.join()


pumps = _Pumps()
os.register_at_fork(after_in_child=pumps.forget_parent)
atexit.register(pumps.end)
