# SPDX-License-Identifier: BSD-3-Clause
"""Edge cases of aeconn transports as seen by asyncio protocols: contexts, exceptions, order of
calls, ends. Run like test_aeconn.py; KV_URLS selects the transports.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import errno
import gc
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import unittest
import urllib.parse
import weakref
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from aeconn._native import lib  # noqa: E402
from test_aeconn import each_url_async  # noqa: E402

LONG = 60
variable = contextvars.ContextVar("variable", default="none")


class Protocol(asyncio.Protocol):
    """Records its calls, and runs the hooks that a test attaches to them."""

    def __init__(self, **calls):
        self.calls, self.told, self.contexts, self.data = calls, [], {}, b""
        self.lost = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()

    def _tell(self, name, *arguments):
        self.told.append(name)
        self.contexts[name] = variable.get()
        self.changed.set()
        return self.calls[name](self, *arguments) if name in self.calls else None

    def connection_made(self, transport):
        self.transport = transport
        self._tell("connection_made", transport)

    def data_received(self, data):
        self.data += data
        self._tell("data_received", data)

    def eof_received(self):
        return self._tell("eof_received")

    def pause_writing(self):
        self._tell("pause_writing")

    def resume_writing(self):
        self._tell("resume_writing")

    def connection_lost(self, error):
        if not self.lost.done():
            self.lost.set_result(error)
        self._tell("connection_lost", error)

    async def until(self, condition):
        async def wait():
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), LONG)


async def kv(url, **calls):
    return await aeconn.aio.create_connection(lambda: Protocol(**calls), url)


class Callbacks(unittest.TestCase):
    @each_url_async
    async def test_each_has_its_context(self, url):
        async def one(name):
            variable.set(name)
            transport, protocol = await kv(url)
            variable.set("changed")
            transport.write(b"PING\r\n")
            await protocol.until(lambda p: p.data == b"+PONG\r\n")
            transport.write(b"QUIT\r\n")
            await protocol.lost
            await protocol.until(lambda p: "connection_lost" in p.told)
            self.assertEqual(set(protocol.contexts.values()), {name})

        await asyncio.gather(one("first"), one("second"), one("third"))
        self.assertEqual(variable.get(), "none")

    def test_contexts_of_accepted_ones(self):
        async def run():
            variable.set("server's")
            seen = []

            async def handle(reader, writer):
                seen.append(variable.get())
                variable.set("a handler's")
                writer.close()

            server = await aeconn.start_server(handle, "tcp://127.0.0.1:0")
            variable.set("later")
            for _ in range(3):
                reader, writer = await aeconn.open_connection(server.urls[0])
                self.assertEqual(await reader.read(), b"")
                writer.close()
            self.assertEqual(seen, ["server's"] * 3)
            server.close()

        asyncio.run(run())

    @each_url_async
    async def test_pause_before_reading_begins(self, url):
        transport, protocol = await kv(
            url, connection_made=lambda _, transport: transport.pause_reading()
        )
        self.assertFalse(transport.is_reading())
        transport.write(b"PING\r\n")
        other, busy = await kv(url)
        for count in range(1, 6):  # time for calls that must not happen
            other.write(b"PING\r\n")
            await busy.until(lambda p, n=count: len(p.data) == 7 * n)
        self.assertEqual(protocol.data, b"")
        transport.resume_reading()
        await protocol.until(lambda p: p.data == b"+PONG\r\n")
        transport.pause_reading()
        transport.pause_reading()
        transport.resume_reading()
        self.assertTrue(transport.is_reading())
        transport.abort()
        other.abort()
        self.assertFalse(transport.is_reading())

    @each_url_async
    async def test_facts_at_the_end(self, url):
        names = ("peername", "sockname", "transport", "path")
        seen = {}

        def lost(protocol, _):
            seen.update({each: protocol.transport.get_extra_info(each) for each in names})

        transport, protocol = await kv(url, connection_lost=lost)
        before = {each: transport.get_extra_info(each) for each in names}
        details = {each for each in ("peer_version", "cipher") if transport.get_extra_info(each)}
        transport.write(b"QUIT\r\n")
        await protocol.lost
        await protocol.until(lambda _: seen)
        self.assertEqual(seen["peername"], before["peername"])
        self.assertEqual(seen["transport"], url.split(":")[0])
        self.assertTrue(seen["path"])
        for each in details:
            self.assertIsNotNone(transport.get_extra_info(each))
        self.assertEqual(transport.get_extra_info("nothing", 7), 7)

    @each_url_async
    async def test_a_callback_that_raises(self, url):
        """As with asyncio's transports: the loop's exception handler is called, and the connection
        is lost."""
        loop, told = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: told.append(context))
        for name in "data_received", "eof_received":
            for kind in ZeroDivisionError, asyncio.CancelledError:

                def fail(*_):
                    raise kind(name)

                told.clear()
                transport, protocol = await kv(url, **{name: fail})
                transport.write(b"QUIT\r\n")
                self.assertIsInstance(await asyncio.wait_for(protocol.lost, LONG), kind)
                self.assertEqual([str(each["exception"]) for each in told], [name])
                self.assertIs(told[0]["transport"], transport)
        loop.set_exception_handler(None)
        with self.assertRaises(ZeroDivisionError):
            await kv(url, connection_made=lambda *_: 1 / 0)

    @each_url_async
    async def test_a_failure_to_collect_events(self, url):
        """The loop's exception handler is called once, and the events follow."""
        loop, told, native = asyncio.get_running_loop(), [], lib.collect
        loop.set_exception_handler(lambda _, context: told.append(context["exception"].errno))

        def fail(*_):
            lib.collect = native
            return native(None, None, 0)

        transport, protocol = await kv(url)
        for take_over in False, True:
            with mock.patch.object(lib, "collect", fail):
                if take_over:
                    transport._attached.take_over(loop)
                protocol.data = b""
                transport.write(b"PING\r\n")
                await protocol.until(lambda p: p.data == b"+PONG\r\n")
            self.assertEqual(told, [errno.EINVAL])
            told.clear()
        transport.close()

    def test_what_leaves_the_loop(self):
        """sys.exit() and Ctrl-C in any callback, on either end; the loop remains usable
        afterwards."""

        def leave(kind):
            due = [kind(7)]

            def call(*_):
                if due:
                    raise due.pop()

            return call

        async def serve(made):
            def factory():
                made.append(Protocol(**calls["server"]))
                return made[-1]

            server = await aeconn.aio.create_server(factory, "tcp://127.0.0.1:0")
            transport, protocol = await kv(server.urls[0], **calls["client"])
            for _ in range(100):
                transport.write(b"x" * 100_000)
            transport.write_eof()
            await asyncio.wait_for(protocol.lost, LONG)
            await asyncio.sleep(LONG)

        for kind in SystemExit, KeyboardInterrupt:
            for end in "client", "server":
                for name in (
                    "connection_made",
                    "data_received",
                    "eof_received",
                    "pause_writing",
                    "resume_writing",
                    "connection_lost",
                ):
                    if name == ("data_received" if end == "client" else "pause_writing"):
                        continue  # this end does not have this callback
                    if name == "resume_writing" and end == "server":
                        continue
                    calls = {"client": {}, "server": {}}
                    calls[end][name] = leave(kind)
                    loop = asyncio.new_event_loop()
                    with self.subTest(kind=kind, end=end, name=name):
                        made = []
                        with self.assertRaises(kind):
                            loop.run_until_complete(serve(made))
                        loop.run_until_complete(asyncio.sleep(0))
                    for task in asyncio.all_tasks(loop):
                        task.cancel()
                    loop.run_until_complete(asyncio.sleep(0))
                    loop.close()
        gc.collect()

    def test_a_protocol_that_writes_in_its_callbacks_is_paused(self):
        """Its context is entered then; without the pause it would fill the memory."""

        async def run(name):
            def write(protocol, *_):
                protocol.transport.write(b"x" * (1 << 24))

            errors, server_made = [], []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context))

            def factory():
                server_made.append(Protocol(**{name: write}))
                return server_made[-1]

            server = await aeconn.aio.create_server(factory, "tcp://127.0.0.1:0")
            reader, writer = await aeconn.open_connection(server.urls[0])
            writer.write(b"x")
            while not server_made or "pause_writing" not in server_made[0].told:
                await asyncio.sleep(0.001)
            self.assertEqual(len(await reader.readexactly(1 << 24)), 1 << 24)
            while "resume_writing" not in server_made[0].told:
                await asyncio.sleep(0.001)
            writer.close()
            await asyncio.wait_for(server_made[0].lost, LONG)
            server.close()
            self.assertEqual(errors, [])

        for name in "connection_made", "data_received":
            with self.subTest(name):
                asyncio.run(asyncio.wait_for(run(name), LONG))

    def test_a_socket_of_an_abstract_name(self):
        async def run(url):
            server = await aeconn.start_server(lambda *_: None, url)
            with await asyncio.to_thread(aeconn.connect, url) as client:
                self.assertEqual(client.family, socket.AF_UNIX)
            server.close()

        for scheme in "unix", "shm":
            with self.subTest(scheme):
                asyncio.run(run(f"{scheme}:@aeconn-test-{os.getpid()}"))

    def test_ctrl_c_while_nothing_comes(self):
        async def run():
            server = await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0")
            reader, _ = await aeconn.open_connection(server.urls[0])
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            await reader.read()

        self.assertRaises(KeyboardInterrupt, asyncio.run, run())

    @each_url_async
    async def test_ends_from_inside(self, url):
        for name in "connection_made", "data_received", "eof_received":
            for how in "close", "abort":

                def end(protocol, *_, how=how):
                    getattr(protocol.transport, how)()
                    gc.collect()

                transport, protocol = await kv(url, **{name: end})
                transport.write(b"QUIT\r\n")
                await asyncio.wait_for(protocol.lost, LONG)
                self.assertEqual(protocol.told.count("connection_lost"), 1)
                self.assertEqual(protocol.told[-1], "connection_lost")

    @each_url_async
    async def test_a_buffer_of_the_protocol(self, url):
        done = asyncio.get_running_loop().create_future()

        class Buffered(asyncio.BufferedProtocol):
            got, buffer = b"", None

            def get_buffer(self, _):
                self.buffer = bytearray(3)
                return self.buffer

            def buffer_updated(self, count):
                self.got += self.buffer[:count]
                if self.got.endswith(b"\r\n"):
                    done.set_result(self.got)

        transport, _ = await aeconn.aio.create_connection(Buffered, url)
        transport.write(b"PING\r\n")
        self.assertEqual(await asyncio.wait_for(done, LONG), b"+PONG\r\n")
        transport.close()
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        for size in 0, None:

            class Bad(Buffered):
                lost = None

                def get_buffer(self, _, size=size):
                    return bytearray(0) if size == 0 else b"read-only"

                def connection_lost(self, error):
                    self.lost.set_result(error)

            Bad.lost = asyncio.get_running_loop().create_future()
            transport, _ = await aeconn.aio.create_connection(Bad, url)
            transport.write(b"PING\r\n")
            self.assertIsInstance(await asyncio.wait_for(Bad.lost, LONG), Exception)

    @each_url_async
    async def test_a_buffer_that_is_resized(self, url):
        lost = asyncio.get_running_loop().create_future()

        class Resizing(asyncio.BufferedProtocol):
            buffer = bytearray(100)

            def get_buffer(self, _):
                return self.buffer

            def buffer_updated(self, _):
                self.buffer.extend(b"more")

            def eof_received(self):
                self.buffer.clear()

            def connection_lost(self, error):
                lost.set_result(error)

        transport, protocol = await aeconn.aio.create_connection(Resizing, url)
        transport.write(b"QUIT\r\n")
        self.assertIsNone(await asyncio.wait_for(lost, LONG))
        self.assertEqual(protocol.buffer, b"")


class Values(unittest.TestCase):
    def test_abort(self):
        async def run():
            server = await aeconn.aio.create_server(Protocol, "tcp://127.0.0.1:0")
            host, _, port = server.urls[0].removeprefix("tcp://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            transport, protocol = await kv(server.urls[0])
            transport.abort()
            self.assertIsNone(await protocol.lost)
            with self.assertRaises(ConnectionResetError):
                listening = socket.create_server(("127.0.0.1", 0))
                transport, _ = await kv("tcp://127.0.0.1:%d" % listening.getsockname()[1])
                with listening, listening.accept()[0] as theirs:
                    transport.abort()
                    theirs.recv(1)
            writer.close()
            server.close()

        asyncio.run(run())

    def test_errors(self):
        async def run():
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                url = "tcp://%s:%d" % nobody.getsockname()
                with self.assertRaises(ConnectionRefusedError) as caught:
                    await aeconn.open_connection(url)
                self.assertEqual(caught.exception.errno, 111)
                self.assertIn("refused", str(caught.exception))
            with self.assertRaises(FileNotFoundError):
                await aeconn.open_connection("unix:///nowhere/at/all")
            with socket.socket() as silent:
                silent.bind(("127.0.0.1", 0))
                silent.listen()
                url = "tls://%s:%d?connect-timeout=20ms" % silent.getsockname()
                if aeconn.has_transport("tls"):
                    with self.assertRaises(TimeoutError):
                        await aeconn.open_connection(url)
            for call in (aeconn.open_connection, lambda u: aeconn.start_server(lambda *_: None, u)):
                with self.assertRaises(ValueError):
                    await call("tcp://127.0.0.1:1\0")
                with self.assertRaises(TypeError):
                    await call(b"tcp://127.0.0.1:1")
            server = await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0")
            with self.assertRaises(OSError) as caught:
                await aeconn.start_server(lambda *_: None, server.urls[0])
            self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
            with self.assertRaises(OSError) as caught:
                url = "shm|%s?shm-path=@aeconn-nobody" % server.urls[0]
                await aeconn.start_server(lambda *_: None, url)
            self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
            server.close()

        asyncio.run(run())

    def test_no_memory_to_wait_until_more_can_be_written(self):
        def full(*_):
            ctypes.set_errno(errno.ENOMEM)
            return -1

        async def run():
            with socket.create_server(("127.0.0.1", 0)) as listening:
                transport, protocol = await kv("tcp://127.0.0.1:%d" % listening.getsockname()[1])
                with listening.accept()[0], mock.patch.object(lib, "on_writable", full):
                    transport.write(b"x" * (1 << 25))  # nobody reads
                    error = await asyncio.wait_for(protocol.lost, 5)
                self.assertEqual(error.errno, errno.ENOMEM)
                self.assertEqual(transport.get_write_buffer_size(), 0)

        asyncio.run(run())

    def test_names_that_a_peer_chose(self):
        async def run(folder):
            names, done = [], asyncio.Event()

            async def handle(_, writer):
                names.append(writer.get_extra_info("peername"))
                str(writer.get_extra_info("path"))
                writer.close()
                done.set()

            url = "unix://" + folder + "/\udcff"
            async with await aeconn.start_server(handle, url) as server:
                where = urllib.parse.unquote(server.urls[0], errors="surrogateescape")
                self.assertEqual(where, url)
                for name in b"\0abstract\xff", b"10.0.0.1:6379", b"\xff\xfe\n":
                    with socket.socket(socket.AF_UNIX) as peer:
                        peer.bind(name)
                        peer.connect(os.fsencode(folder) + b"/\xff")
                        await asyncio.wait_for(done.wait(), LONG)
                        done.clear()
            self.assertEqual(names, [b"\0abstract\xff", "10.0.0.1:6379", "\udcff\udcfe\n"])

        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                asyncio.run(run(folder))
            finally:
                os.chdir(before)

    @each_url_async
    async def test_mistakes(self, url):
        transport, protocol = await kv(url)
        for data in "text", 7, None, [1]:
            self.assertRaises(TypeError, transport.write, data)
        for high, low in (-1, None), (1, 2), (10, -1):
            self.assertRaises(ValueError, transport.set_write_buffer_limits, high, low)
        transport.write(b"")
        transport.write(memoryview(b"PING\r\n"))
        transport.writelines([b"PI", b"NG\r\n"])
        await protocol.until(lambda p: p.data == b"+PONG\r\n" * 2)

        transport.close()
        transport.write(b"late")
        transport.close()
        transport.abort()
        await asyncio.wait_for(protocol.lost, LONG)
        self.assertRaises(TypeError, transport.write, "text")

    @each_url_async
    async def test_writing_after_the_end(self, url):
        """The fifth time it is a warning of asyncio's logger, and no error of the loop."""
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        transport, protocol = await kv(url)
        transport.close()
        with self.assertLogs("asyncio", "WARNING") as logged:
            for _ in range(20):
                transport.write(b"late")
        await asyncio.wait_for(protocol.lost, LONG)
        self.assertEqual((len(logged.records), told), (1, []))

    def test_another_thread(self):
        """All calls are refused, and C is not called."""
        calls = {
            "get_extra_info": ("peername",),
            "set_protocol": (asyncio.Protocol(),),
            "write": (b"x",),
            "writelines": ([b"x"],),
        }
        told = {("Transport", "is_closing"), ("Transport", "close"), ("Server", "get_loop")}

        async def run():
            server = await aeconn.aio.create_server(Protocol, "tcp://127.0.0.1:0")
            transport, protocol = await kv(server.urls[0])
            got, threads = {}, []

            def elsewhere():
                for one in server, transport:
                    for name, method in vars(type(one)).items():
                        if name.startswith("_") or not callable(method):
                            continue
                        call = type(one).__name__, name
                        try:
                            result = getattr(one, name)(*calls.get(name, ()))
                            if asyncio.iscoroutine(result):
                                result.send(None)
                            got[call] = "not refused"
                        except RuntimeError as error:
                            got[call] = str(error)
                        except BaseException as error:
                            got[call] = repr(error)
                repr(transport), repr(server)

            def noted(native):
                def call(*arguments):
                    threads.append(threading.current_thread())
                    return native(*arguments)

                return call

            with contextlib.ExitStack() as stack:
                for name in aeconn._native._FUNCTIONS:
                    to = noted(getattr(lib, name))
                    stack.enter_context(mock.patch.object(lib, name, to))
                thread = threading.Thread(target=elsewhere)
                thread.start()
                thread.join()
            self.assertEqual(threads, [])
            refused = {call for call, why in got.items() if "call_soon_threadsafe" in why}
            self.assertEqual(got.keys() - refused, told)
            self.assertGreaterEqual(len(refused), 20)
            self.assertIn("127.0.0.1", repr(transport))
            self.assertTrue(server.is_serving() and transport.is_reading())
            transport.close()
            server.close()
            await asyncio.wait_for(protocol.lost, LONG)

        asyncio.run(run())

    def test_after_the_loop(self):
        """Objects that outlive their loop end without errors, in any order of garbage
        collection."""
        left = []

        async def run():
            server = await aeconn.aio.create_server(Protocol, "tcp://127.0.0.1:0")
            transport, protocol = await kv(server.urls[0])
            left.extend((server, transport, protocol))

        asyncio.run(run())
        transport = left[1]
        transport.get_extra_info("peername")
        reference = weakref.ref(transport)
        del transport
        left.clear()
        gc.collect()
        self.assertIsNone(reference())


class Several(unittest.TestCase):
    """Connections that are re-established, loops that share a port, and their metrics."""

    def test_redial(self):
        async def run():
            lines = []

            async def handle(reader, writer):
                lines.append(await reader.readline())
                writer.close()

            server = await aeconn.start_server(handle, "tcp://127.0.0.1:0")
            url = server.urls[0]
            rounds = 0
            async for reader, writer in aeconn.redial(url, first_pause=0.001, most_pause=0.01):
                rounds += 1
                writer.write(b"round %d\n" % rounds)
                self.assertEqual(await reader.read(), b"")  # the connection was lost
                if rounds == 2:  # the server is down for a while
                    server.close()
                    with self.assertRaises(ConnectionRefusedError):
                        await aeconn.open_connection(url)
                    server = await aeconn.start_server(handle, url)
                if rounds == 4:
                    break
            self.assertEqual(lines, [b"round 1\n", b"round 2\n", b"round 3\n", b"round 4\n"])
            server.close()
            with self.assertRaises(OSError):
                async for _ in aeconn.redial("smoke://127.0.0.1:1"):
                    pass
            with self.assertRaises(ValueError):
                async for _ in aeconn.redial(url, first_pause=-1):
                    pass

        asyncio.run(asyncio.wait_for(run(), LONG))

    def test_redial_counts_the_time_of_a_connection_alone(self):
        """Connections that are lost at once, after attempts that take longer than `stable`."""

        async def run():
            clock, pauses, sleep = [0.0], [], asyncio.sleep

            async def connect(*_):
                clock[0] += 6
                return None, mock.Mock()

            async def pause(delay):
                pauses.append(delay)
                await sleep(0)

            loop = mock.Mock(time=lambda: clock[0])
            with (
                mock.patch.object(aeconn.aio, "open_connection", connect),
                mock.patch.object(aeconn.aio.random, "uniform", lambda _, most: most),
                mock.patch.object(asyncio, "sleep", pause),
                mock.patch.object(asyncio, "get_running_loop", lambda: loop),
            ):
                async for _ in aeconn.redial("tcp://127.0.0.1:1", attempt=10, stable=5):
                    if len(pauses) == 3:
                        clock[0] += 6  # this one lasts
                    if len(pauses) == 5:
                        break
            self.assertEqual(pauses, [0.05, 0.1, 0.2, 0.05, 0.1])

        asyncio.run(run())

    def test_redial_to_what_is_wrong(self):
        """Raises even though no server is running."""
        urls = {"smoke://127.0.0.1:1": errno.EINVAL, "tcp://127.0.0.1:1?colour=red": errno.EINVAL}
        if aeconn.has_transport("tls"):
            for to in "tls://127.0.0.1:1", "tls+unix:///nowhere.sock", "tcp|tls://127.0.0.1:1":
                for key in "ca", "crl", "cert", "ca-dir":
                    urls[f"{to}?{key}=/nowhere.pem"] = errno.ENOENT
                urls[f"{to}?ca=/dev"] = errno.EISDIR
                urls[f"{to}?ca-dir=%2Fdev%2Fnull"] = errno.ENOTDIR
                urls[f"{to}?ca=/dev/null"] = errno.EINVAL

        async def run(url):
            async for _ in aeconn.redial(url, first_pause=0.001):
                pass

        for url, number in urls.items():
            for connect in (
                lambda url: asyncio.run(asyncio.wait_for(run(url), LONG)),
                lambda url: asyncio.run(aeconn.open_connection(url)),
                aeconn.connect,
            ):
                with self.subTest(url=url), self.assertRaises(OSError) as caught:
                    connect(url)
                self.assertEqual(caught.exception.errno, number)

    def test_redial_waits_for_a_socket(self):
        """A missing Unix socket has the errno of a missing file, but a server may create it."""

        async def run():
            with tempfile.TemporaryDirectory() as folder:
                url = f"unix:{folder}/socket"

                async def dial():
                    async for _, writer in aeconn.redial(url, first_pause=0.001):
                        writer.close()
                        return True

                redial = asyncio.ensure_future(dial())
                await asyncio.sleep(0.05)
                self.assertFalse(redial.done())
                server = await aeconn.start_server(lambda *_: None, url)
                self.assertTrue(await redial)
                server.close()

        asyncio.run(asyncio.wait_for(run(), LONG))

    def test_a_time_out_is_not_in_texts_about_the_url(self):
        """The package adds an option for it, which the user has not written."""

        async def redial(url):
            async for _ in aeconn.redial(url, attempt=3):
                pass

        for url in (
            "tcp://127.0.0.1:99999",
            "tcp://127.0.0.1:1?colour=red",
            "tcp://127.0.0.1:1?backlog=7&nodelay=maybe",
        ):
            for connect in lambda to: aeconn.connect(to, 3), lambda to: asyncio.run(redial(to)):
                with self.subTest(url), self.assertRaises(OSError) as caught:
                    connect(url)
                self.assertIn(f"[Errno 22] {url}: ", str(caught.exception))

    def test_redial_takes_any_time_for_an_attempt(self):
        """A URL's connect-timeout is at most a day; the argument is not limited."""

        async def run():
            server = await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0")
            for attempt in 1e-9, 100 * 24 * 3600:
                async for _, writer in aeconn.redial(server.urls[0], attempt=attempt):
                    writer.close()
                    break
            server.close()

        asyncio.run(asyncio.wait_for(run(), LONG))

    @unittest.skipUnless(aeconn.has_transport("rdma"), "a build without RDMA")
    def test_redial_without_a_device(self):
        """Is no mistake in the URL: the device may come."""
        attempts = []

        async def run():
            open_connection = aeconn.aio.open_connection

            async def attempt(*arguments):
                attempts.append(arguments)
                return await open_connection(*arguments)

            with mock.patch.object(aeconn.aio, "open_connection", attempt):
                async for _ in aeconn.redial("rdma://127.0.0.1:1", first_pause=0.001):
                    pass

        async def until_it_has_tried_again():
            redial = asyncio.ensure_future(run())
            while len(attempts) < 3 and not redial.done():
                await asyncio.sleep(0.01)
            self.assertFalse(redial.done())
            redial.cancel()

        asyncio.run(asyncio.wait_for(until_it_has_tried_again(), LONG))

    def test_several_loops(self):
        names = set()

        async def handle(reader, writer):
            names.add(threading.current_thread().name)
            while data := await reader.read(1000):
                writer.write(data)
            writer.close()

        with aeconn.LoopGroup(handle, "tcp://127.0.0.1:0?backlog=100", loops=3) as group:
            self.assertEqual(len(group.urls), 1)
            for _ in range(100):
                with aeconn.connect(group.urls[0], LONG) as connection:
                    connection.sendall(b"hello")
                    self.assertEqual(connection.recv(10), b"hello")
        self.assertTrue(names <= {"aeconn-loop-0", "aeconn-loop-1", "aeconn-loop-2"})
        self.assertGreater(len(names), 1)
        with self.assertRaises(ConnectionRefusedError):
            aeconn.connect(group.urls[0])
        with self.assertRaises(OSError):
            aeconn.LoopGroup(handle, "tcp://127.0.0.1:0?colour=red", loops=2)
        with self.assertRaises(ValueError):
            aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=-1)

    def test_metrics_and_fallbacks(self):
        async def run():
            async with await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0") as server:
                url = server.urls[0].replace("tcp:", "rdma|tcp:")
                _, writer = await aeconn.open_connection(url)
                text = aeconn.aio.metrics()
                self.assertIn('aeconn_connections_accepted_total{scheme="tcp"} 1', text)
                self.assertIn("not rdma", aeconn.fallbacks()[url])
                self.assertEqual(writer.get_extra_info("peer_user"), "")
                self.assertEqual(writer.get_extra_info("peer_certificate"), "")
                self.assertIsNone(writer.get_extra_info("peer_credentials"))
                writer.close()
            name = f"unix:@aeconn-{os.getpid()}"
            async with await aeconn.start_server(lambda *_: None, name) as server:
                self.assertEqual(server.urls, [name])
                _, writer = await aeconn.open_connection(name)
                ours = os.getpid(), os.geteuid(), os.getegid()
                self.assertEqual(writer.get_extra_info("peer_credentials"), ours)
                peer = f"\0aeconn-{os.getpid()}".encode()
                self.assertEqual(writer.get_extra_info("peername"), peer)
                writer.close()

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
