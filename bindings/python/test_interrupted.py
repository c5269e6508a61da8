# SPDX-License-Identifier: BSD-3-Clause
"""Interruptions of calls on a blocking connection: signal handlers that close it or raise, fork(),
and failures in the keeper. Run like test_aeconn.py; it needs no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import io
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from aeconn import _keeper, _native  # noqa: E402
from test_blocking import beside, pair, until  # noqa: E402

lib = _native.lib

# All methods of Socket, with sample calls.
CALLS = {
    "__repr__": repr,
    "abort": lambda s: s.abort(),
    "adopt": None,  # creates a connection
    "cipher": lambda s: s.cipher(),
    "close": lambda s: s.close(),
    "compression": lambda s: s.compression(),
    "detach": lambda s: os.close(s.detach()),
    "fileno": lambda s: s.fileno(),
    "getblocking": lambda s: s.getblocking(),
    "getpeercert": lambda s: s.getpeercert(True),
    "getpeername": lambda s: s.getpeername(),
    "getsockname": lambda s: s.getsockname(),
    "getsockopt": lambda s: s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
    "gettimeout": lambda s: s.gettimeout(),
    "info": lambda s: s.info(),
    "makefile": lambda s: s.makefile("rb"),
    "path": lambda s: s.path(),
    "peer_certificate": lambda s: s.peer_certificate(),
    "peer_credentials": lambda s: s.peer_credentials(),
    "peer_user": lambda s: s.peer_user(),
    "readable": lambda s: s.readable(),
    "recv": lambda s: s.recv(1),
    "recv_into": lambda s: s.recv_into(bytearray(1)),
    "recvfrom": lambda s: s.recvfrom(1),
    "recvfrom_into": lambda s: s.recvfrom_into(bytearray(1)),
    "recvmsg": lambda s: s.recvmsg(1),
    "recvmsg_into": lambda s: s.recvmsg_into([bytearray(1)]),
    "selected_alpn_protocol": lambda s: s.selected_alpn_protocol(),
    "send": lambda s: s.send(b"x"),
    "sendall": lambda s: s.sendall(b"x"),
    "sendfile": lambda s: s.sendfile(io.BytesIO(b"x")),
    "sendmsg": lambda s: s.sendmsg([b"x"]),
    "setblocking": lambda s: s.setblocking(True),
    "setsockopt": lambda s: s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3),
    "settimeout": lambda s: s.settimeout(1),
    "shutdown": lambda s: s.shutdown(socket.SHUT_WR),
    "transport": lambda s: s.transport(),
    "version": lambda s: s.version(),
}
# They do not use the connection.
LOCAL = {"compression", "getblocking", "gettimeout", "setblocking", "settimeout"}
ENDS = {"abort", "close"}


@contextlib.contextmanager
def adopted():
    """An aeconn connection with a short time-out, and its peer."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(60)
        connection = aeconn.adopt(ours)
        connection.settimeout(0.001)
        try:
            yield connection, theirs
        finally:
            connection.close()


class Checked:
    """The library with `between` called before each function; freed handles are not passed on."""

    def __init__(self, between=lambda: None):
        self.between = between
        self.freed = set()
        self.wrong = []

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        for name, (_, *arguments) in _native._FUNCTIONS.items():
            if arguments[:1] == [ctypes.c_void_p]:
                native = getattr(lib, name)
                self._stack.enter_context(mock.patch.object(lib, name, self._wrap(name, native)))
        ends_by = staticmethod(lib.close)
        self._stack.enter_context(mock.patch.object(aeconn.Socket, "_ends_by", ends_by))
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _wrap(self, name, native):
        def call(handle, *arguments):
            self.between()
            if handle in self.freed:
                self.wrong.append(name)
                ctypes.set_errno(errno.EBADF)
                return 0
            if handle and name in ("close", "abort", "loop_free"):
                self.freed.add(handle)
            return native(handle, *arguments)

        return call


class Closed(unittest.TestCase):
    def test_all_methods_are_here(self):
        methods = {
            name
            for name in dir(aeconn.Socket)
            if callable(getattr(aeconn.Socket, name)) and not name.startswith("_")
        }
        self.assertEqual(methods | {"__repr__"}, CALLS.keys())

    def closed_at(self, call, end, number):
        """Returns whether the call makes at least `number` calls of C."""
        calls = 0

        def between():
            nonlocal calls
            if threading.current_thread() is not threading.main_thread():
                return  # of a descriptor that detach() gave before
            calls += 1
            if calls == number:
                end(connection)

        with adopted() as (connection, theirs), Checked() as checked:
            checked.between = between
            with contextlib.suppress(OSError):
                call(connection)
            self.assertEqual(checked.wrong, [])
            if calls < number:
                return False
            self.assertIsNone(connection._conn)
            self.assertIsNone(connection._loop)
        return True

    def test_between_any_two_calls_of_c(self):
        """Simulates a signal handler."""
        for end in (aeconn.Socket.close, aeconn.Socket.abort):
            for name, call in CALLS.items():
                if call is None:
                    continue
                with self.subTest(method=name, end=end.__name__):
                    number = 1
                    while self.closed_at(call, end, number):
                        number += 1
                    self.assertGreater(number, 0 if name in LOCAL | {"makefile"} else 1)

    def test_by_another_thread_while_the_keeper_looks(self):
        """The keeper does not access a loop that may already be freed."""
        for look in (_keeper.keeper.hold, _keeper.keeper.release, aeconn.Socket._turn_idle):
            with self.subTest(look=getattr(look, "__name__", look)), adopted() as (connection, _):
                with mock.patch.object(connection, "transport", lambda: "tls"):
                    _keeper.keeper.keep(connection)
                ended = []

                def between():
                    if not ended and threading.current_thread() is threading.main_thread():
                        ended.append(threading.Thread(target=connection.close))
                        ended[0].start()
                        ended[0].join(0.05)  # it may have to wait for this thread

                with Checked(between) as checked:
                    look(connection)
                    for each in ended:
                        each.join()
                    self.assertEqual(checked.wrong, [])


class Raised(BaseException):
    pass


class Handlers:
    """Raises at the `number`th point in the package where a signal handler may run: CPython checks
    for signals at function entry, and within a call when a C function has returned."""

    def __init__(self, number):
        self.left = number

    def _place(self):
        self.left -= 1
        if self.left == 0:
            raise Raised

    def _profile(self, frame, event, _):
        if pathlib.Path(frame.f_code.co_filename).parent.name == "aeconn":
            if event in ("call", "c_return"):
                self._place()

    def _wrap(self, native):  # invisible to the profiler
        def call(*arguments):
            result = native(*arguments)
            if sys.getprofile():
                self._place()
            return result

        return call

    @contextlib.contextmanager
    def running(self):
        with contextlib.ExitStack() as stack:
            for name in _native._FUNCTIONS:
                to = mock.patch.object(lib, name, self._wrap(getattr(lib, name)))
                stack.enter_context(to)
            ends_by = staticmethod(lib.close)
            stack.enter_context(mock.patch.object(aeconn.Socket, "_ends_by", ends_by))
            try:
                sys.setprofile(self._profile)
                yield
            except Raised:
                pass
            finally:
                sys.setprofile(None)


class Interrupted(unittest.TestCase):
    def interrupted_at(self, call, end, number):
        """Returns whether the call has at least `number` such points. `end`: the C function in
        which the connection is closed."""
        held, closed = [], []
        with adopted() as (connection, _), contextlib.ExitStack() as stack:
            for name, armed in ("hold", 0), ("release", 1):
                to = mock.patch.object(_keeper.keeper, name, lambda _, a=armed: held.append(a))
                stack.enter_context(to)
            if end:
                native = getattr(lib, end)

                def closing(*arguments):
                    connection.close()
                    closed.append(True)
                    return native(*arguments)

                stack.enter_context(mock.patch.object(lib, end, closing))
            handlers = Handlers(number)
            with handlers.running(), contextlib.suppress(OSError):
                call(connection)
            self.assertEqual(len(connection._users), 0)
            self.assertFalse(any(connection._waiting.values()))
            self.assertNotEqual(held[-1:], [0], "the keeper would not look again")
            if not closed:
                connection.close()
            self.assertIsNone(connection._conn)
            self.assertIsNone(connection._loop)
        return handlers.left <= 0

    def test_no_call_stays_counted(self):
        for name, end in (
            ("recv", None),
            ("readable", None),
            ("sendall", None),
            ("getpeername", None),
            ("fileno", None),
            ("recv", "read"),
            ("readable", "wait"),
            ("sendall", "write"),
            ("getpeername", "peer"),
        ):
            with self.subTest(method=name, closed_in=end):
                number = 1
                while self.interrupted_at(CALLS[name], end, number):
                    number += 1
                self.assertGreater(number, 5)


class Beside(unittest.TestCase):
    """What a signal handler, or the garbage collector, does with other connections between the end
    of a function of C and the look at its errno."""

    @staticmethod
    @contextlib.contextmanager
    def after(function, step):
        """Runs `step` once, after the first call of that function."""
        native, due = getattr(lib, function), [step]

        def call(*arguments):
            result = native(*arguments)
            while due:
                due.pop()()
            return result

        with mock.patch.object(lib, function, call):
            yield
        assert not due

    @contextlib.contextmanager
    def uses(self):
        """Ways to use other connections that leave an errno."""
        with socket.create_server(("127.0.0.1", 0)) as server, adopted() as (reset, peer):
            server.listen(64)
            url = "tcp://%s:%d" % server.getsockname()
            peer.sendall(b"x")
            reset.send(b"unread")
            peer.close()  # with unread bytes: this resets the connection
            self.assertEqual(reset.recv(1), b"x")

            def fails():
                with self.assertRaises(OSError):
                    reset.send(b"x")

            yield {"connect": lambda: aeconn.connect(url).close(), "fail": fails}

    def test_of_a_socket(self):
        def fill(connection):
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(bytes(1 << 20))
            connection.settimeout(0.001)

        for name, function, prepare in (
            ("recv", "read", lambda _: None),
            ("recv_into", "read", lambda _: None),
            ("send", "write", fill),
            ("sendall", "write", fill),
        ):
            with self.uses() as uses:
                for use, step in uses.items():
                    with self.subTest(method=name, use=use), adopted() as (connection, theirs):
                        prepare(connection)
                        with self.after(function, step), self.assertRaises(TimeoutError):
                            CALLS[name](connection)
                        theirs.sendall(b"goes on")
                        connection.settimeout(60)
                        self.assertEqual(connection.recv(100), b"goes on")

    def test_of_a_transport(self):
        """The garbage collector of newer releases of Python closes a StreamWriter."""

        async def run():
            async def echo(reader, writer):
                writer.write(await reader.readline())
                writer.close()

            server = await aeconn.start_server(echo, "tcp://127.0.0.1:0")
            reader, writer = await aeconn.open_connection(server.urls[0])
            _, other = await aeconn.open_connection(server.urls[0])
            with self.after("read", other.close):
                writer.transport._on_readable()  # as next_request() does, also if nothing is there
            self.assertFalse(writer.is_closing())
            writer.write(b"goes on\n")
            self.assertEqual(await reader.read(), b"goes on\n")
            writer.close()
            server.close()

        asyncio.run(run())


class Child(unittest.TestCase):
    def test_every_method_in_a_child(self):
        """A child cannot take over the parent's connection, even if another thread held the
        lock."""
        with pair() as (connection, theirs):
            inside, go = threading.Event(), threading.Event()

            def hold():
                with connection._lock:
                    inside.set()
                    go.wait()

            with beside(hold):
                inside.wait()
                # Calls that close the connection come last.
                children = {}
                for name, call in CALLS.items():
                    if call is None:
                        continue
                    child = os.fork()
                    if child == 0:
                        signal.signal(signal.SIGALRM, signal.SIG_DFL)
                        signal.alarm(20)
                        os._exit(self.in_child(name, call, connection))
                    children[name] = child
                results = {name: os.waitpid(child, 0)[1] for name, child in children.items()}
                go.set()
            self.assertEqual({name: status for name, status in results.items() if status}, {})
            connection.sendall(b"goes on")
            self.assertEqual(theirs.recv(100), b"goes on")

    @staticmethod
    def in_child(name, call, connection):
        try:
            result = call(connection)
        except OSError as error:
            ok = error.errno == errno.EBADF and name not in LOCAL | ENDS | {"fileno", "__repr__"}
        except BaseException:
            ok = False
        else:
            ok = name in LOCAL | ENDS | {"__repr__"} or (name == "fileno" and result == -1)
        return 0 if ok else 1


class Keeper(unittest.TestCase):
    def test_what_it_needs_is_not_there(self):
        """After a failure, the keeper keeps the next connection as usual."""

        def full(*_, **__):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        def no_thread(_):
            raise RuntimeError("can't start new thread")

        class NoRoom:
            """An epoll in which registering fails."""

            register = full

            def close(self):
                pass

        for name, patches in {
            "epoll": [mock.patch.object(select, "epoll", full)],
            "pipe": [mock.patch.object(os, "pipe", full)],
            "register": [mock.patch.object(select, "epoll", NoRoom)],
            "thread": [mock.patch.object(threading.Thread, "start", no_thread)],
        }.items():
            keeper = _keeper._Keeper()
            before = len(os.listdir("/proc/self/fd"))
            with self.subTest(missing=name), adopted() as (ours, theirs), mock.patch.object(
                aeconn._connection, "keeper", keeper
            ):
                ours.transport = lambda: "tls"
                with contextlib.ExitStack() as stack:
                    for each in patches:
                        stack.enter_context(each)
                    with self.assertRaises((OSError, RuntimeError)):
                        keeper.keep(ours)
                self.assertIsNone(keeper._thread)
                self.assertFalse(keeper._kept)
                turned = threading.Event()
                ours._turn_idle = lambda: (turned.set(), True)[1]
                keeper.keep(ours)
                _native.wake(ours._loop)
                self.assertTrue(turned.wait(60))
                thread = keeper._thread
                ours.close()
                self.assertEqual(theirs.recv(1), b"")
                thread.join(60)
                self.assertIsNone(keeper._thread)
            self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_close_whatever_it_says(self):
        with adopted() as (ours, theirs):
            with mock.patch.object(_keeper.keeper, "drop", side_effect=OSError(9, "no")):
                with contextlib.suppress(OSError):
                    ours.close()
            self.assertEqual(theirs.recv(1), b"")
            self.assertIsNone(ours._conn)
            self.assertIsNone(ours._loop)


# A daemon thread runs a loop and is within C when the interpreter begins to exit. That loop must
# not be freed then, and when the interpreter stops threads, no thread may be within C or enter it.
ENDS_IN_A_CALL = """
import asyncio, atexit, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
def late():  # after the package's own end
    for native in list(loops):
        _native.wake(native)
    before = len(entered)
    time.sleep(0.1)
    if inside or len(entered) != before:
        os._exit(4)
    if group:
        group.close()
    print("ended", flush=True)
atexit.register(late)
import aeconn
from aeconn import _native
lib, main = _native.lib, threading.current_thread()
inside, entered, loops, at = [], [], set(), threading.Event()
ending, group = threading.Event(), None
dispatch, free = lib.collect, lib.loop_free
def slow(native, *found):
    if threading.current_thread() is main:
        return dispatch(native, *found)
    entered.append(native)
    loops.add(native)
    inside.append(native)
    at.set()
    ending.wait(0.01)
    result = dispatch(native, *found)
    if ending.is_set():
        time.sleep(0.05)
    inside.remove(native)
    return result
def checked(native):
    if native in inside or (native in loops and threading.current_thread() is main):
        os._exit(3)
    free(native)
lib.collect, lib.loop_free = slow, checked
atexit.register(ending.set)
async def handle(reader, writer):
    await reader.read()
async def serve():
    server = await aeconn.start_server(handle, "tcp://127.0.0.1:0")
    urls.extend(server.urls)
    await server.serve_forever()
urls = []
if sys.argv[2] == "group":
    group = aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=2)
    urls = group.urls
else:
    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    while not urls:
        time.sleep(0.001)
client = aeconn.connect(urls[0])
client.sendall(b"x")
at.wait()
main_loop = asyncio.new_event_loop()
main_loop.run_until_complete(aeconn.open_connection(urls[0]))
"""


class End(unittest.TestCase):
    def test_a_daemon_thread_is_inside_of_c(self):
        here = str(pathlib.Path(__file__).parent)
        for kind in "group", "thread":
            with self.subTest(kind=kind):
                run = subprocess.run(
                    [sys.executable, "-c", ENDS_IN_A_CALL, here, kind],
                    stdout=subprocess.PIPE,
                    timeout=60,
                )
                self.assertEqual((run.returncode, run.stdout), (0, b"ended\n"))


class Sendall(unittest.TestCase):
    """sendall() returns once all data has been sent."""

    def test_failure_while_the_last_bytes_wait(self):
        real, steps = lib.write_all, []
        with pair() as (ours, theirs):

            def write_all(conn, buffer, size, limit):
                steps.append(1)
                if len(steps) == 1:
                    linger = struct.pack("ii", 1, 0)
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    theirs.close()
                    _native.wake(ours._loop)
                    ctypes.set_errno(errno.ETIMEDOUT)
                    return -1
                byte = ctypes.create_string_buffer(1)
                until(lambda: lib.read(conn, byte, 1) < 0 and lib.get_state(conn) != 2)
                return real(conn, buffer, size, limit)

            with mock.patch.object(lib, "write_all", write_all):
                self.assertRaises(ConnectionResetError, ours.sendall, b"last")
            self.assertGreater(len(steps), 1)

    def test_time_is_over_while_the_last_bytes_wait(self):
        def write_all(*_):
            ctypes.set_errno(errno.ETIMEDOUT)
            return -1

        with pair() as (ours, _), mock.patch.object(lib, "write_all", write_all):
            ours.settimeout(0.01)
            self.assertRaises(TimeoutError, ours.sendall, b"last")


if __name__ == "__main__":
    unittest.main()
