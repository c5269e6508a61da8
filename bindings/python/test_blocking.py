# SPDX-License-Identifier: BSD-3-Clause
"""Edge cases of blocking connections: rejected arguments, concurrent use, interrupted waits. Run
like test_aeconn.py; KV_URLS selects the transports.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pathlib
import select
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from test_aeconn import each_url  # noqa: E402

LONG = 60


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "what is waited for does not come"
        time.sleep(0.001)


def waits(connection):
    """Whether a call is waiting on it."""
    return connection is not None and any(connection._waiting.values())


@contextlib.contextmanager
def beside(work, *arguments):
    """Runs `work` on a thread within the context; its exceptions are re-raised at the end."""
    failures = []

    def run():
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(LONG)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def pair(family=socket.AF_INET):
    """An aeconn connection to a Python socket."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(family) as listening:
        if family == socket.AF_UNIX:
            listening.bind(folder + "/s")
            url = f"unix://{folder}/s"
        else:
            listening.bind(("127.0.0.1", 0))
            url = "tcp://%s:%d" % listening.getsockname()
        listening.listen()
        with aeconn.connect(url, timeout=LONG) as ours:
            theirs, _ = listening.accept()
            with theirs:
                theirs.settimeout(LONG)
                yield ours, theirs


class Numbers(unittest.TestCase):
    """Arguments are validated before they are passed to C."""

    @each_url
    def test_sizes(self, url):
        with aeconn.connect(url, timeout=LONG) as connection:
            connection.sendall(b"PING " + b"x" * 100 + b"\r\n")
            store = bytearray(b"-" * 200)
            room = memoryview(store)[:16]
            for size, error in (
                (-1, ValueError),
                (-(2**63), ValueError),
                (17, ValueError),
                (2**40, ValueError),
                (2**70, ValueError),
                (1.0, TypeError),
                ("1", TypeError),
            ):
                with self.assertRaises(error, msg=repr(size)):
                    connection.recv_into(room, size)
                with self.assertRaises(error, msg=repr(size)):
                    connection.recvfrom_into(room, size)
            for size, error in (
                (-1, ValueError),
                (2**63, OverflowError),
                (2**70, OverflowError),
                (1.0, TypeError),
            ):
                with self.assertRaises(error, msg=repr(size)):
                    connection.recv(size)
            for buffer in (b"bytes", memoryview(b"bytes"), "text", 7):
                self.assertRaises(TypeError, connection.recv_into, buffer)
            self.assertRaises(TypeError, connection.recv_into, memoryview(store)[::2])
            for data in ("text", 7, None):
                self.assertRaises(TypeError, connection.send, data)
                self.assertRaises(TypeError, connection.sendall, data)
            self.assertEqual(bytes(store), b"-" * 200)
            self.assertEqual(connection.recv(0), b"")
            self.assertEqual(connection.recv_into(bytearray()), 0)
            self.assertEqual(connection.recv_into(room, 4), 4)
            self.assertEqual(bytes(store), b"$100" + b"-" * 196)
            self.assertEqual(connection.recv(2**40)[:2], b"\r\n")
            for how, error in ((-1, OSError), (3, OSError), (2**31, OverflowError)):
                self.assertRaises(error, connection.shutdown, how)

    @each_url
    def test_timeouts(self, url):
        ignored = []  # exceptions in __del__()
        unraisable = mock.patch.object(sys, "unraisablehook", ignored.append)
        with unraisable, aeconn.connect(url, timeout=LONG) as connection:
            for value, error in (
                (-1, ValueError),
                (-0.001, ValueError),
                (float("nan"), ValueError),
                (1e18, OverflowError),
                (float("inf"), OverflowError),
                ("a word", TypeError),
                (b"", TypeError),
                ([], TypeError),
            ):
                self.assertRaises(error, connection.settimeout, value)
                self.assertRaises(error, connection.readable, value)
                self.assertRaises(error, aeconn.connect, url, value)
            self.assertEqual((connection.gettimeout(), ignored), (LONG, []))
            connection.settimeout(9e9)  # 285 years
            connection.sendall(b"PING\r\n")
            self.assertEqual(connection.recv(100), b"+PONG\r\n")

    def test_texts(self):
        for call in (
            lambda: aeconn.connect("tcp://127.0.0.1:1\0.example"),
            lambda: aeconn.configure("tcp\0", linger="1s"),
            lambda: aeconn.configure("tcp", linger="1s\0"),
            lambda: aeconn.has_transport("tcp\0"),
        ):
            self.assertRaises(ValueError, call)
        self.assertRaises(TypeError, aeconn.connect, b"tcp://127.0.0.1:1")
        with self.assertRaises(FileNotFoundError):
            aeconn.connect("unix:///nowhere/\udcff")


class Together(unittest.TestCase):
    """Two threads, and external events."""

    @each_url
    def test_full_duplex(self, url):
        with aeconn.connect(url, timeout=LONG) as connection:

            def read(count):
                got = b""
                while len(got) < 7 * count:
                    got += connection.recv(100)
                assert got == b"+PONG\r\n" * count, got

            for _ in range(5):
                with beside(read, 1):
                    until(lambda: waits(connection))
                    connection.sendall(b"PING\r\n")
            with beside(read, 1000):
                for _ in range(1000):
                    connection.sendall(b"PING\r\n")

    @each_url
    def test_much_in_both_directions(self, url):
        """More data than fits between both ends: a peer that only wrote would wait for ever."""
        value = os.urandom(4_000_000)
        with aeconn.connect(url, timeout=LONG) as connection:

            def write():
                for _ in range(3):
                    connection.sendall(b"*2\r\n$4\r\nPING\r\n$4000000\r\n" + value + b"\r\n")

            with beside(write):
                for _ in range(3):
                    got = bytearray()
                    while len(got) < len(value) + 12:
                        got += connection.recv(len(value) + 12 - len(got))
                    self.assertEqual(bytes(got[10:-2]), value)

    def interrupted(self, connection, call, *arguments):
        """A signal handler that raises ends the call at once; one that does not raise has no
        effect."""
        seen = []

        class Raised(Exception):
            pass

        def handler(*_):
            seen.append(1)
            if len(seen) > 1:
                raise Raised

        def send():
            for count in 1, 2:
                until(lambda: waits(connection()))
                os.kill(os.getpid(), signal.SIGINT)
                until(lambda: len(seen) == count)

        before = signal.signal(signal.SIGINT, handler)
        try:
            with beside(send), self.assertRaises(Raised):
                call(*arguments)
        finally:
            signal.signal(signal.SIGINT, before)

    @each_url
    def test_signals_end_a_wait(self, url):
        with aeconn.connect(url) as connection:
            for call in (
                (connection.recv, 1),
                (connection.recv_into, bytearray(1)),
                (connection.readable, None),
                (connection.makefile("rb").readline,),
            ):
                with self.subTest(call=call[0].__name__):
                    self.interrupted(lambda: connection, *call)
            connection.settimeout(LONG)
            self.interrupted(lambda: connection, connection.recv, 1)
            connection.sendall(b"PING\r\n")
            self.assertEqual(connection.recv(100), b"+PONG\r\n")

    def test_signals_while_there_is_no_room(self):
        for family in socket.AF_INET, socket.AF_UNIX:
            with pair(family) as (ours, _):
                ours.settimeout(None)
                self.interrupted(lambda: ours, ours.sendall, b"x" * 20_000_000)

    def test_signals_while_it_connects(self):
        made = []

        class Watched(aeconn.Socket):
            def _begin(self, timeout):
                super()._begin(timeout)
                made.append(self)

        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            address = silent.getsockname()
            with contextlib.ExitStack() as filling:
                for _ in range(3):
                    each = filling.enter_context(socket.socket())
                    each.setblocking(False)
                    each.connect_ex(address)
                url = "tcp://%s:%d" % address
                self.interrupted(lambda: made[0] if made else None, Watched, url, LONG)
                self.assertIsNone(made[0]._conn)
                started = time.monotonic()
                self.assertRaises(TimeoutError, aeconn.connect, url, 0.05)
                self.assertRaises(TimeoutError, aeconn.connect, url + "?connect-timeout=50ms")
                self.assertLess(time.monotonic() - started, LONG)

    @each_url
    def test_close_ends_a_wait(self, url):
        for call in (lambda c: c.recv(1), lambda c: c.readable(None)):
            connection = aeconn.connect(url)
            with beside(lambda c=connection: (until(lambda: waits(c)), c.close())):
                with self.assertRaises(OSError) as caught:
                    call(connection)
                self.assertEqual(caught.exception.errno, 9)
            self.assertIsNone(connection._loop)

    @each_url
    def test_close_in_a_signal_handler(self, url):
        connection = aeconn.connect(url)
        before = signal.signal(signal.SIGUSR1, lambda *_: connection.close())
        try:
            with beside(
                lambda: (until(lambda: waits(connection)), os.kill(os.getpid(), signal.SIGUSR1))
            ):
                self.assertRaises(OSError, connection.recv, 1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(connection.fileno(), -1)

    @each_url
    def test_the_end_is_told_to_all_readers(self, url):
        with aeconn.connect(url, timeout=LONG) as connection, contextlib.ExitStack() as stack:
            got = []
            for _ in range(3):
                stack.enter_context(beside(lambda: got.append(connection.recv(1))))
            until(lambda: len(connection._waiting[1]) == 3)
            connection.sendall(b"QUIT\r\n")
            stack.close()
            self.assertEqual(len(got), 3)

    def test_the_interpreter_ends(self):
        """Whatever is open at that time, and whichever threads wait."""
        program = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import aeconn
kept = [aeconn.connect(url) for url in sys.argv[2:]]
for each in kept:
    threading.Thread(target=each.recv, args=(1,), daemon=True).start()
kept[0].cycle = kept[0]
"""
        urls = os.environ.get("KV_URLS", "").split()
        here = str(pathlib.Path(__file__).parent)
        pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program, here, *urls])
        self.assertEqual(os.waitpid(pid, 0)[1], 0)


class AsASocket(unittest.TestCase):
    def test_errors(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            url = "tcp://%s:%d" % nobody.getsockname()
            with self.assertRaises(ConnectionRefusedError) as caught:
                aeconn.connect(url)
            self.assertEqual(caught.exception.errno, 111)
        with self.assertRaises(FileNotFoundError):
            aeconn.connect("unix:///nowhere/at/all")
        for url in "tcp://127.0.0.1:1?colour=red", "tcp://127.0.0.1:x":
            with self.assertRaises(OSError) as caught:
                aeconn.connect(url, timeout=5)
            self.assertIn(url, str(caught.exception))
            self.assertNotIn("timeout=", str(caught.exception))
        with pair() as (ours, theirs):
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            theirs.close()
            self.assertRaises(ConnectionResetError, ours.recv, 1)

    def test_its_kind_after_the_end(self):
        for family, proto in (socket.AF_INET, socket.IPPROTO_TCP), (socket.AF_UNIX, 0):
            with pair(family) as (ours, _):
                pass
            self.assertEqual((ours.family, ours.proto), (family, proto))

    def test_names_of_unix_peers(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
            os.chdir(folder)
            listening.bind(os.fsencode(folder) + b"/\xff")
            listening.listen()
            url = "unix://" + folder + "/\udcff"
            with aeconn.connect(url) as connection:
                listening.accept()[0].close()
                self.assertEqual(connection.getpeername(), folder + "/\udcff")
                connection.path(), repr(connection), connection.info()
                with self.assertRaises(OSError) as caught:
                    aeconn.connect(url[:-1] + "\udcfe")
                str(caught.exception)
            for name, expected in (
                (b"\0abstract\xff\0name", b"\0abstract\xff\0name"),
                (b"10.0.0.1:6379", "10.0.0.1:6379"),
                (b"\xfe\nlines", "\udcfe\nlines"),
            ):
                ours, theirs = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
                if name:
                    theirs.bind(name)
                theirs.connect(os.fsencode(folder) + b"/\xff")
                accepted = listening.accept()[0]
                with aeconn.adopt(accepted) as connection:
                    self.assertEqual(connection.getpeername(), expected)
                    connection.path()
                ours.close()
                theirs.close()
            os.chdir("/")

    @each_url
    def test_select(self, url):
        with aeconn.connect(url, timeout=LONG) as connection:
            for _ in range(3):
                connection.setblocking(False)
                self.assertRaises(BlockingIOError, connection.recv, 1)
                connection.setblocking(True)
                connection.sendall(b"PING\r\n")
                connection.setblocking(False)
                got = b""
                while len(got) < 7:
                    readable, _, _ = select.select([connection], [], [], LONG)
                    self.assertEqual(readable, [connection])
                    with contextlib.suppress(BlockingIOError):  # an incomplete TLS record
                        got += connection.recv(100)
                self.assertEqual(got, b"+PONG\r\n")
            connection.setblocking(True)
            connection.sendall(b"QUIT\r\n")
            got = b"?"
            while got:
                self.assertTrue(select.select([connection], [], [], LONG)[0])
                got = connection.recv(100)
            self.assertTrue(select.select([connection], [], [], LONG)[0])

    def test_unread_bytes_do_not_keep_a_writer_awake(self):
        with pair() as (ours, theirs):
            ours.fileno()
            theirs.sendall(b"unread")
            self.assertTrue(ours.readable(LONG))
            rounds, begins = [], ours._wait_begins
            ours._wait_begins = lambda *arguments: (rounds.append(1), begins(*arguments))
            with beside(ours.sendall, b"x" * 20_000_000):
                until(lambda: waits(ours))
                for _ in range(3):  # until all buffers are full
                    time.sleep(0.05)
                before = len(rounds)
                time.sleep(0.05)
                self.assertLess(len(rounds) - before, 10)
                left = 20_000_000
                while left:
                    left -= len(theirs.recv(1 << 20))
            self.assertEqual(ours.recv(10), b"unread")

    @each_url
    def test_makefile(self, url):
        with aeconn.connect(url, timeout=LONG) as connection:
            with connection.makefile("rwb") as file:
                file.write(b"PING\r\n")
                file.flush()
                self.assertEqual(file.readline(), b"+PONG\r\n")
            with connection.makefile("rwb", 0) as file:
                file.write(b"PING hello\r\n")
                self.assertEqual(file.readline(), b"$5\r\n")
            with connection.makefile("r", newline="") as text:
                self.assertEqual(text.readline(), "hello\r\n")
            for mode, buffering in (("x", None), ("r", 0)):
                self.assertRaises(ValueError, connection.makefile, mode, buffering)
            file = connection.makefile("rb")
        gc.collect()
        self.assertIsNotNone(connection._conn)
        file.close()
        self.assertIsNone(connection._conn)
        self.assertRaises(OSError, connection.makefile)

    @each_url
    def test_options_of_the_socket(self, url):
        with aeconn.connect(url, timeout=LONG) as connection:
            if url.partition(":")[0].endswith(("rdma", "shm")):
                self.assertRaises(OSError, connection.getsockopt, socket.SOL_SOCKET, 1)
                return
            kind = connection.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
            self.assertEqual(kind, socket.SOCK_STREAM)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
            self.assertEqual(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), 3)

    def test_shutdown_of_reading(self):
        for family in socket.AF_INET, socket.AF_UNIX:
            with pair(family) as (ours, theirs):
                with beside(lambda: self.assertEqual(ours.recv(1), b"")):
                    until(lambda: waits(ours))
                    ours.shutdown(socket.SHUT_RD)
                self.assertEqual(ours.recv(1), b"")
                ours.sendall(b"goes on")
                self.assertEqual(theirs.recv(100), b"goes on")
                ours.shutdown(socket.SHUT_WR)
                self.assertEqual(theirs.recv(100), b"")

    def test_sendall_that_does_not_block(self):
        for family in socket.AF_INET, socket.AF_UNIX:
            with pair(family) as (ours, theirs):
                ours.setblocking(False)
                ours.sendall(b"fits")
                self.assertEqual(theirs.recv(100), b"fits")
                self.assertRaises(BlockingIOError, ours.sendall, b"x" * 20_000_000)
                ours.settimeout(0.01)
                self.assertRaises(TimeoutError, ours.sendall, b"x" * 20_000_000)

    @each_url
    def test_what_was_written_leaves(self, url):
        """Even if no call uses the connection any more: TLS and RDMA buffer part of it at first."""
        value = b"v" * 3_000_000
        with aeconn.connect(url, LONG) as writes, aeconn.connect(url, LONG) as reads:
            writes.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nleave\r\n$3000000\r\n" + value + b"\r\n")

            def there():
                reads.sendall(b"STRLEN leave\r\n")
                return reads.recv(100) == b":3000000\r\n"

            until(there)
            writes.sendall(b"DEL leave\r\n")

    def test_abort(self):
        for family in socket.AF_INET, socket.AF_UNIX:
            with pair(family) as (ours, theirs):
                file = ours.makefile("rb")
                ours.abort()
                ours.abort()
                if family == socket.AF_INET:  # a Unix socket reports end of stream
                    self.assertRaises(ConnectionResetError, theirs.recv, 1)
                else:
                    self.assertEqual(theirs.recv(1), b"")
                self.assertRaises(OSError, ours.recv, 1)
                file.close()

    @each_url
    def test_abort_while_another_thread_waits(self, url):
        connection = aeconn.connect(url)
        with beside(lambda: (until(lambda: waits(connection)), connection.abort())):
            self.assertRaises(OSError, connection.recv, 1)
        self.assertIsNone(connection._loop)

    def test_adopt(self):
        for family in socket.AF_UNIX, socket.AF_INET:
            with pair(family) as (ours, theirs):
                taken = aeconn.adopt(theirs)
                self.assertEqual(theirs.fileno(), -1)
                self.assertEqual(taken.gettimeout(), LONG)
                taken.sendall(b"hello")
                self.assertEqual(ours.recv(100), b"hello")
                taken.close()
                self.assertEqual(ours.recv(100), b"")
        one, other = socket.socketpair()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        with other, context.wrap_socket(one, do_handshake_on_connect=False) as secured:
            self.assertRaises(TypeError, aeconn.adopt, secured)
            self.assertGreaterEqual(secured.fileno(), 0)
        for family in socket.AF_UNIX, socket.AF_INET, socket.AF_VSOCK:
            with self.subTest(family=family):
                try:
                    unconnected = socket.socket(family)
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    self.skipTest("this kernel has no vsock")
                with unconnected:
                    with self.assertRaises(OSError) as caught:
                        aeconn.adopt(unconnected)
                    self.assertGreaterEqual(unconnected.fileno(), 0)
                self.assertEqual(caught.exception.errno, errno.ENOTCONN)  # not: of another kind


if __name__ == "__main__":
    unittest.main()
