# SPDX-License-Identifier: BSD-3-Clause
"""Who may use a connection, and when it ends without being closed: copies, threads, forks, garbage.
Run like test_aeconn.py; it needs no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import gc
import os
import pathlib
import pickle
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402

LONG = 60


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "what is waited for does not come"
        time.sleep(0.001)


def on_a_thread(call, *arguments):
    result = []

    def run():
        try:
            result.append(call(*arguments))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)
    return result[0]


@contextlib.contextmanager
def listening():
    """Yields for each family a listening socket and its URL."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"{folder}/s")
        unix.listen()
        yield (tcp, "tcp://127.0.0.1:%d" % tcp.getsockname()[1]), (unix, f"unix://{folder}/s")


@contextlib.contextmanager
def running(loop):
    """Runs a loop on another thread."""
    runs = threading.Event()
    loop.call_soon(runs.set)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert runs.wait(LONG)
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LONG)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def descriptors_left(count):
    """The process can open so many more descriptors within the context."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class FewDescriptors(unittest.TestCase):
    """Where a descriptor is missing, each call raises OSError (EMFILE) and keeps none."""

    def each_count(self, call, begin=lambda: None, end=lambda _: None):
        """`begin` and `end` run where descriptors are not limited; `call` gets what `begin`
        made."""
        succeeded = []
        gc.collect()
        for count in range(14):
            before = descriptors()
            made = begin()
            with self.subTest(count):
                with descriptors_left(count), contextlib.ExitStack() as stack:
                    stack.enter_context(contextlib.suppress(OSError))
                    try:
                        call(made)
                    except OSError as error:
                        self.assertEqual(error.errno, errno.EMFILE, error)
                        raise
                    succeeded.append(count)
                end(made)
                made = None
                gc.collect()
                self.assertLessEqual(descriptors(), before)
        self.assertEqual(succeeded, list(range(succeeded[0], 14)))

    def test_blocking(self):
        with listening() as both:
            for _, url in both:
                self.each_count(lambda _, to=url: aeconn.connect(to, timeout=LONG).close())

    def test_an_adopted_socket(self):
        def call(_):
            ours, theirs = socket.socketpair()
            with ours, theirs, aeconn.adopt(ours) as connection:
                theirs.send(b"x")
                self.assertGreaterEqual(connection.fileno(), 0)
                self.assertEqual(connection.recv(1), b"x")

        self.each_count(call)

    def test_asyncio(self):
        async def connect(url):
            _, writer = await aeconn.open_connection(url)
            writer.transport.abort()
            await asyncio.sleep(0)

        async def serve(url):
            server = await aeconn.start_server(lambda *_: None, url)
            server.close()

        def each_count(call, url):
            self.each_count(
                lambda loop: loop.run_until_complete(call(url)),
                asyncio.new_event_loop,
                lambda loop: loop.close(),
            )

        with listening() as both:
            for _, url in both:
                each_count(connect, url)
        each_count(serve, "tcp://127.0.0.1:0")


class Copies(unittest.TestCase):
    def test_there_are_none(self):
        """Two objects would free one connection."""

        async def run():
            server = await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0")
            _, writer = await aeconn.open_connection(server.urls[0])
            one, other = socket.socketpair()
            with aeconn.adopt(one) as ours, other, aeconn.Stop(signals=()) as stop:
                below = writer.get_extra_info("socket")
                for each in ours, writer.transport, server, stop, below:
                    for call in copy.copy, copy.deepcopy, pickle.dumps:
                        with self.subTest(f"{call.__name__} {each!r}"):
                            with self.assertRaisesRegex(TypeError, "^cannot pickle '"):
                                call(each)
            writer.close()
            server.close()

        asyncio.run(run())


class Threads(unittest.TestCase):
    def test_a_loop_that_moves_to_another_thread(self):
        """From then on it is used there alone, even before its first event."""
        with listening() as (tcp, _):
            loop = asyncio.new_event_loop()
            _, writer = loop.run_until_complete(aeconn.open_connection(tcp[1]))
            with tcp[0].accept()[0] as theirs:
                theirs.settimeout(LONG)
                with running(loop):
                    self.assertRaises(RuntimeError, writer.write, b"refused")
                    loop.call_soon_threadsafe(writer.write, b"taken")
                    self.assertEqual(theirs.recv(100), b"taken")
                writer.write(b"again")
                self.assertEqual(theirs.recv(100), b"again")
            writer.transport.abort()
            loop.close()

    def test_closed_on_another_thread(self):
        """As by StreamWriter.__del__(), on the thread that the garbage collector runs on."""
        with listening() as (tcp, _):
            loop = asyncio.new_event_loop()
            _, writer = loop.run_until_complete(aeconn.open_connection(tcp[1]))
            with tcp[0].accept()[0] as theirs:
                theirs.settimeout(LONG)
                with running(loop):
                    writer.close()
                    self.assertEqual(theirs.recv(1), b"")
            self.assertTrue(writer.is_closing())
            loop.close()

    def test_collected_on_another_thread(self):
        """C is called on the loop's thread alone."""

        class Paused(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport
                transport.pause_reading()

        def connect(url):
            loop.run_until_complete(aeconn.aio.create_connection(Paused, url))

        def close(conn):
            threads.append(threading.current_thread())
            return native(conn)

        threads, native = [], aeconn._native.lib.close
        with listening() as (tcp, _), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            loop = asyncio.new_event_loop()
            gc.disable()
            try:
                connect(tcp[1])
                with tcp[0].accept()[0] as theirs, running(loop):
                    theirs.settimeout(LONG)
                    with mock.patch.object(aeconn._native.lib, "close", close):
                        gc.collect()
                        self.assertEqual(theirs.recv(1), b"")
            finally:
                gc.enable()
            self.assertEqual(len(threads), 1)
            self.assertIsNot(threads[0], threading.current_thread())
            loop.close()


class Forks(unittest.TestCase):
    """A child of fork(), while the loop runs and while it does not."""

    def in_child(self, call):
        """The errno of the exception that it raises there; 0 without one."""
        child = os.fork()
        if child == 0:
            status = 255
            try:
                call()
                status = 0
            except OSError as error:
                status = error.errno
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def check(self, writer, theirs):
        transport = writer.transport
        for call in (
            lambda: writer.write(b"of the child"),
            lambda: writer.writelines([b"of the child"]),
            writer.write_eof,
            transport.pause_reading,
            lambda: writer.get_extra_info("peername"),
        ):
            self.assertEqual(self.in_child(call), errno.EBADF)
        for call in writer.close, transport.abort:
            self.assertEqual(self.in_child(call), 0)
        theirs.sendall(b"to the parent")
        writer.write(b"of the parent")
        self.assertEqual(theirs.recv(100), b"of the parent")

    def test_transports(self):
        async def connect(url, listener, runs):
            reader, writer = await aeconn.open_connection(url)
            theirs, _ = listener.accept()
            theirs.settimeout(LONG)
            if runs:
                self.check(writer, theirs)
            return reader, writer, theirs

        for runs in True, False:
            with listening() as families:
                for listener, url in families:
                    with self.subTest(url=url, runs=runs):
                        loop = asyncio.new_event_loop()
                        made = loop.run_until_complete(connect(url, listener, runs))
                        reader, writer, theirs = made
                        if not runs:
                            self.check(writer, theirs)
                        got = loop.run_until_complete(reader.readexactly(13))
                        self.assertEqual(got, b"to the parent")
                        self.assertEqual(self.in_child(writer.close), 0)
                        writer.close()
                        self.assertEqual(theirs.recv(1), b"")
                        theirs.close()
                        loop.run_until_complete(writer.wait_closed())
                        loop.close()

    def test_a_loop_that_the_child_runs(self):
        """The connections are the parent's, and the loop's exception handler is not called."""
        told, collected, native = [], [], aeconn._native.lib.collect

        async def turns():
            loop.set_exception_handler(lambda _, context: told.append(context))
            while not collected:
                await asyncio.sleep(0)

        def run():
            def collect(*arguments):
                collected.append(native(*arguments))
                return collected[-1]

            with mock.patch.object(aeconn._native.lib, "collect", collect):
                loop.run_until_complete(turns())
            if set(collected) != {-1} or told:
                raise OSError(errno.EIO, f"{collected} {told}")

        with listening() as (tcp, _):
            loop = asyncio.new_event_loop()
            _, writer = loop.run_until_complete(aeconn.open_connection(tcp[1]))
            with tcp[0].accept()[0] as theirs:
                theirs.sendall(b"to the parent")
                self.assertEqual(self.in_child(run), 0)
                writer.close()
                loop.run_until_complete(writer.wait_closed())
            loop.close()

    def test_a_server(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = asyncio.new_event_loop()
            url = f"unix://{folder}/s"
            server = loop.run_until_complete(aeconn.start_server(lambda *_: None, url))
            self.assertEqual(self.in_child(server.close), 0)
            self.assertEqual(self.in_child(server.abort_clients), errno.EBADF)
            _, writer = loop.run_until_complete(aeconn.open_connection(url))
            writer.close()
            server.close()
            loop.run_until_complete(writer.wait_closed())
            loop.close()


class Groups(unittest.TestCase):
    def test_a_loop_that_ends(self):
        """The others serve all clients then."""

        async def handle(reader, writer):
            if await reader.readline() == b"exit\n":
                asyncio.get_running_loop().set_exception_handler(lambda *_: None)
                sys.exit(3)
            writer.write(b"served\n")
            writer.close()

        def ask(line):
            with aeconn.connect(group.urls[0], LONG) as connection:
                connection.sendall(line)
                return connection.recv(100)

        gc.disable()  # it would end the listener of a loop that has ended
        try:
            with aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=2) as group:
                asking = threading.Thread(target=lambda: raised.append(ask(b"exit\n")), daemon=True)
                raised = []
                asking.start()
                until(lambda: not all(each.is_alive() for each in group._threads))
                for _ in range(24):
                    self.assertEqual(ask(b"serve\n"), b"served\n")
        finally:
            gc.enable()
            gc.collect()

    def test_interrupted_before_it_serves(self):
        class Interrupted(Exception):
            pass

        def interrupt(*_):
            raise Interrupted

        async def start_server(*arguments):
            began.set()
            await asyncio.sleep(0.3)  # as when the name of a host is looked up
            return await start(*arguments)

        async def handle(reader, writer):
            writer.close()

        start, began = aeconn.aio.start_server, threading.Event()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with mock.patch.object(aeconn.aio, "start_server", start_server):
                signal.setitimer(signal.ITIMER_REAL, 0.1, LONG / 4)
                with self.assertRaises(Interrupted):
                    aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertTrue(began.is_set())
        names = [each.name for each in threading.enumerate()]
        self.assertNotIn("aeconn-loop-0", names)

    def test_a_loop_that_closes_at_the_same_time(self):
        class Closing:
            def is_closed(self):
                return False

            def call_soon_threadsafe(self, _):
                raise RuntimeError("Event loop is closed")

        async def handle(reader, writer):
            writer.close()

        group = aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=1)
        group._ends.insert(0, (Closing(), asyncio.Event()))
        group.close()
        self.assertFalse(any(each.is_alive() for each in group._threads))


if __name__ == "__main__":
    unittest.main()
