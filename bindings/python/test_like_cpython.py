# SPDX-License-Identifier: BSD-3-Clause
"""The same assertions over CPython's sockets and asyncio transports and over this package's. Each
test is a row of the table in docs/python.md, by the first line of its docstring. Needs no server.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import gc
import pathlib
import re
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import weakref
from asyncio.trsock import TransportSocket

try:
    import _testbuffer
except ImportError:  # a Python without its tests
    _testbuffer = None

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
import aeconn.aio  # noqa: E402

LONG = 60
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


@contextlib.contextmanager
def pair(kind, family="tcp"):
    """A connected socket or Socket, and a plain socket as its peer."""
    if family == "unix":
        one, other = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            other = listener.accept()[0]
    one = aeconn.adopt(one) if kind == "ours" else one
    one.settimeout(LONG)
    with one, other:
        yield one, other


def each(test):
    """Runs the test with both kinds; what it returns must be equal."""

    def run(self):
        seen = {}
        for kind in "theirs", "ours":
            with self.subTest(kind):
                result = test(self, kind)
                seen[kind] = asyncio.run(result) if asyncio.iscoroutine(result) else result
        self.assertEqual(seen.get("ours"), seen.get("theirs"))

    run.__doc__ = test.__doc__
    return run


def raised(call, *arguments):
    """The class of an exception and its errno."""
    try:
        result = call(*arguments)
    except Exception as error:
        return type(error).__name__, getattr(error, "errno", None)
    return result


def reset(plain):
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()


class Sockets(unittest.TestCase):
    @each
    def test_receiving(self, kind):
        """recv(), recv_into(), recvfrom(), recvmsg(), recvmsg_into()"""
        with pair(kind) as (one, other):
            other.sendall(b"abcdefghijklmnopqrst")
            first, second = bytearray(3), bytearray(5)
            seen = [one.recv(2), one.recv_into(first), one.recv_into(first, 2), one.recv(0)]
            seen += [one.recvfrom(2)[0], one.recvmsg(2)[:3], one.recvmsg_into([first, second])[:3]]
            self.assertEqual((bytes(first), bytes(second)), (b"lmn", b"opqrs"))
            other.close()
            return seen + [one.recv(9), one.recv(9), one.recv_into(first), one.recvmsg(9)[:3]]

    @each
    def test_sending(self, kind):
        """send(), sendall(), sendmsg(): any contiguous buffer"""
        with pair(kind) as (one, other):
            seen = [one.send(b""), one.send(b"ab"), one.sendall(bytearray(b"cd"))]
            seen += [one.sendmsg([b"ef", memoryview(b"gh")]), one.sendmsg([])]
            seen += [one.send(array.array("H", [0x6A69])), one.sendall(memoryview(b"klm"))]
            seen += [raised(one.send, "text"), raised(one.sendall, 7), raised(one.sendmsg, 7)]
            seen += [raised(one.sendall, memoryview(b"abcd")[::2])[0]]
            one.close()
            received = b""
            while data := other.recv(100):
                received += data
            return seen, received

    @each
    def test_arguments(self, kind):
        """Wrong arguments: the exception's class"""
        with pair(kind) as (one, _):
            wrong = [
                (one.recv, -1), (one.recv, 1.5), (one.recv, None), (one.recv, 2**64),
                (one.recv_into, bytearray(2), 3), (one.recv_into, bytearray(2), -1),
                (one.recv_into, b"const"), (one.settimeout, -1), (one.settimeout, "1"),
                (one.settimeout, float("nan")), (one.settimeout, 1e18), (one.shutdown, 7),
                (one.shutdown, None), (one.makefile, "x"), (one.recvmsg, -1), (one.recvmsg_into, 3),
                (one.recvmsg_into, [b"const"]), (one.sendmsg, ["text"]),
            ]  # fmt: skip
            apart = [memoryview(bytearray(4))[::2]]
            if _testbuffer:
                flags = _testbuffer.ND_FORTRAN | _testbuffer.ND_WRITABLE
                fortran = _testbuffer.ndarray([1] * 4, shape=[2, 2], format="B", flags=flags)
                apart.append(memoryview(fortran))
            for each in apart:
                wrong += [(one.recv_into, each), (one.recvfrom_into, each), (one.send, each)]
                wrong += [(one.recvmsg_into, [each]), (one.sendmsg, [each]), (one.sendall, each)]
            return [raised(*each)[0] for each in wrong]

    @each
    def test_times(self, kind):
        """settimeout(), setblocking(): TimeoutError, BlockingIOError (EAGAIN)"""
        with pair(kind, "unix") as (one, _):
            seen = []
            for limit in 0.01, 0, None, 5:
                one.settimeout(limit)
                seen += [one.gettimeout(), one.getblocking(), one.timeout]
                if limit == 0.01:
                    self.assertRaises(TimeoutError, one.recv, 1)
                elif limit == 0:
                    seen.append(raised(one.recv, 1))
                    with self.assertRaises(BlockingIOError):
                        while True:
                            one.send(b"x" * 65536)
                    file = one.makefile("rwb", 8)
                    seen.append(raised(file.write, b"x" * 1000))
                    self.assertRaises(BlockingIOError, file.close)
            one.setblocking(False)
            seen.append(one.gettimeout())
            one.setblocking(True)
            return seen + [one.gettimeout()]

    @each
    def test_files(self, kind):
        """makefile(): text, binary, unbuffered; the socket closes with its last file"""
        with pair(kind) as (one, other):
            other.sendall(b"one\ntwo\r\nthree\n\xfc")
            with one.makefile(encoding="latin-1", newline="") as text, one.makefile("wb", 0) as out:
                seen = [text.readline(), text.readline(), text.mode, out.write(b"back")]
                one.close()
                seen += [other.recv(100), text.readline(), text.read(1)]
            other.shutdown(socket.SHUT_WR)
            return seen + [other.recv(100), one.fileno()]

    @each
    def test_ends(self, kind):
        """Errors: ECONNRESET, EPIPE, EBADF after close()"""
        seen = []
        with pair(kind) as (one, other):
            reset(other)
            seen.append(raised(one.recv, 1))
        with pair(kind) as (one, other):
            one.shutdown(socket.SHUT_WR)
            seen += [other.recv(1), raised(one.send, b"x")]
        seen += [one.fileno(), raised(one.recv, 1), raised(one.send, b"x"), one.close()]
        seen += [one.family, one.type, one.proto]
        return seen + [raised(one.getpeername), raised(one.getsockopt, 1, 1), one.gettimeout()]

    @each
    def test_names(self, kind):
        """family, type, proto, getsockname(), getpeername(), getsockopt(), setsockopt()"""
        seen = []
        for family in "tcp", "unix":
            with pair(kind, family) as (one, other):
                seen += [one.family, one.type, one.proto]
                one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                seen.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                self.assertEqual(one.getpeername(), other.getsockname())
                self.assertEqual(one.getsockname(), other.getpeername())
        return seen


async def serve(kind, handle, **settings):
    if kind == "ours":
        return await aeconn.start_server(handle, "tcp://127.0.0.1:0", **settings)
    return await asyncio.start_server(handle, "127.0.0.1", 0, **settings)


def port_of(server):
    return server.sockets[0].getsockname()[1]


async def connect(kind, port):
    if kind == "ours":
        return await aeconn.open_connection(f"tcp://127.0.0.1:{port}")
    return await asyncio.open_connection("127.0.0.1", port)


async def quiet(reader, writer):
    await reader.read()
    writer.close()


class Streams(unittest.TestCase):
    @each
    async def test_extra_info(self, kind):
        """get_extra_info(): peername, sockname, socket; the default for what there is not"""
        seen = []

        async def handle(reader, writer):
            seen.append(writer.get_extra_info("sockname")[0])
            await quiet(reader, writer)

        async with await serve(kind, handle) as server:
            _, writer = await connect(kind, port_of(server))
            below = writer.get_extra_info("socket")
            below.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.assertGreater(below.fileno(), 0)
            self.assertEqual(writer.get_extra_info("sockname"), below.getsockname())
            self.assertEqual(writer.get_extra_info("peername"), below.getpeername())
            self.assertEqual(below.getpeername(), ("127.0.0.1", port_of(server)))
            if sys.version_info >= (3, 11):  # the others were deprecated
                missing = {each for each in dir(TransportSocket) if each[0] != "_"}
                self.assertLessEqual(missing - set(dir(below)), {"getsockbyname"})  # never worked
            found = [below.family, below.type, below.proto, below.gettimeout()]
            found += [raised(below.setblocking, True), raised(below.settimeout, 1)]
            found += [below.get_inheritable(), raised(below.shutdown, 7)]
            with below.dup() as duplicate:
                found += [duplicate.gettimeout(), duplicate.get_inheritable()]
                self.assertEqual(duplicate.getsockname(), below.getsockname())
            found.append(below.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
            for name in "cipher", "peercert", "ssl_object", "compression", "nothing":
                found.append(writer.get_extra_info(name, "none"))
            writer.close()
            await writer.wait_closed()
            for call in below.getpeername, below.dup, below.get_inheritable:
                found.append(raised(call))
            _, writer = await connect(kind, port_of(server))
            writer.close()
            await writer.wait_closed()
            late = writer.get_extra_info("socket")
            found += [late.fileno(), late.family, late.type, late.proto]
            return found + [below.fileno(), *seen]

    @each
    async def test_server(self, kind):
        """Server: sockets, is_serving(), start_serving(), serve_forever(), close(), get_loop()"""
        server = await serve(kind, quiet, start_serving=False)
        seen = [server.is_serving(), len(server.sockets), server.sockets[0].family]
        seen += [await server.start_serving(), server.is_serving(), await server.start_serving()]
        self.assertIs(server.get_loop(), asyncio.get_running_loop())
        port = port_of(server)
        _, writer = await connect(kind, port)
        writer.close()
        await writer.wait_closed()
        for how in "cancel", "close":
            task = asyncio.ensure_future(server.serve_forever())
            await asyncio.sleep(0)
            with self.assertRaises(RuntimeError):
                await server.serve_forever()
            task.cancel() if how == "cancel" else server.close()
            with self.assertRaises(asyncio.CancelledError):
                await task
            seen += [server.is_serving(), server.sockets]
            if how == "cancel":
                server = await serve(kind, quiet)
        with self.assertRaises(RuntimeError):
            await server.serve_forever()
        seen += [server.close(), await server.wait_closed()]
        with self.assertRaises(ConnectionRefusedError) as caught:
            await connect(kind, port)
        return seen + [caught.exception.errno]

    @each
    async def test_clients_of_a_server(self, kind):
        """Server.close_clients(), abort_clients() (Python 3.13)"""
        if kind == "theirs" and sys.version_info < (3, 13):
            return [b"", None]
        seen = []
        for how in "close_clients", "abort_clients":
            ended = asyncio.get_running_loop().create_future()

            async def handle(reader, writer, ended=ended):
                writer.write(b"x")
                await writer.drain()
                ended.set_result(await reader.read())

            server = await serve(kind, handle)
            reader, writer = await connect(kind, port_of(server))
            self.assertEqual(await reader.read(1), b"x")
            getattr(server, how)()
            if how == "close_clients":
                seen.append(await asyncio.wait_for(reader.read(), LONG))
            else:
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(await asyncio.wait_for(reader.read(), LONG), b"")
                seen.append(None)
            await asyncio.wait([ended])
            writer.close()
            server.close()
            await asyncio.wait_for(server.wait_closed(), LONG)
        return seen

    @each
    async def test_waiting_for_the_end_of_a_server(self, kind):
        """Server.wait_closed(): from Python 3.12 on, also for its connections"""
        made = asyncio.Event()

        async def handle(reader, writer):
            made.set()
            await quiet(reader, writer)

        server = await serve(kind, handle)
        _, writer = await connect(kind, port_of(server))
        await made.wait()
        server.close()
        task = asyncio.ensure_future(server.wait_closed())
        for _ in range(10):
            await asyncio.sleep(0)
        done = task.done()
        writer.close()
        await asyncio.wait_for(task, LONG)
        return done

    @each
    async def test_back_pressure(self, kind):
        """drain(), set_write_buffer_limits(), get_write_buffer_size()"""
        async with await serve(kind, quiet) as server:
            _, writer = await connect(kind, port_of(server))
            transport = writer.transport
            seen = [transport.get_write_buffer_limits(), transport.get_write_buffer_size()]
            for limits in {"high": 100}, {"low": 100}, {"high": 0}, {"high": 50, "low": 10}, {}:
                transport.set_write_buffer_limits(**limits)
                seen.append(transport.get_write_buffer_limits())
            for high, low in (1, 2), (-1, None):
                seen.append(raised(transport.set_write_buffer_limits, high, low)[0])
            writer.close()
        release = asyncio.Event()

        async def slow(reader, writer):
            await release.wait()
            await quiet(reader, writer)

        async with await serve(kind, slow) as server:
            _, writer = await connect(kind, port_of(server))
            with self.assertRaises(asyncio.TimeoutError):
                while True:
                    writer.write(b"x" * 100_000)
                    await asyncio.wait_for(writer.drain(), 0.2)
            self.assertGreater(writer.transport.get_write_buffer_size(), 64 * 1024)
            release.set()
            await asyncio.wait_for(writer.drain(), LONG)
            self.assertLessEqual(writer.transport.get_write_buffer_size(), 16 * 1024)
            writer.close()
        return seen

    @each
    async def test_writing(self, kind):
        """write(), writelines(), write_eof(), can_write_eof(), close(), is_closing()"""
        got = asyncio.get_running_loop().create_future()

        async def handle(reader, writer):
            got.set_result(await reader.read())
            writer.close()

        async with await serve(kind, handle) as server:
            reader, writer = await connect(kind, port_of(server))
            writer.write(b"a")
            writer.write(bytearray(b"b"))
            writer.write(memoryview(b"c"))
            writer.write(b"")
            writer.writelines([b"d", b"ef"])
            seen = [raised(writer.write, "text"), raised(writer.write, None)]
            seen += [writer.can_write_eof(), writer.write_eof(), writer.is_closing()]
            seen += [raised(writer.write, b"late"), await got, await reader.read()]
            seen += [writer.close(), writer.is_closing(), await writer.wait_closed()]
            return seen + [writer.transport.is_reading()]

    @each
    async def test_losing(self, kind):
        """connection_lost(): None after close() and abort(), ConnectionResetError after a reset"""
        seen = []
        for how in "close", "abort", "reset":
            lost = asyncio.get_running_loop().create_future()

            class Protocol(asyncio.Protocol):
                def connection_lost(self, error, lost=lost):
                    lost.set_result((type(error).__name__, getattr(error, "errno", None)))

            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                if kind == "ours":
                    made = aeconn.aio.create_connection(Protocol, f"tcp://127.0.0.1:{port}")
                else:
                    loop = asyncio.get_running_loop()
                    made = loop.create_connection(Protocol, "127.0.0.1", port)
                transport, protocol = await made
                self.assertIs(transport.get_protocol(), protocol)
                with listener.accept()[0] as plain:
                    reset(plain) if how == "reset" else getattr(transport, how)()
                    seen.append(await asyncio.wait_for(lost, LONG))
        return seen

    @each
    async def test_exceptions(self, kind):
        """Exceptions of a protocol end its connection, also CancelledError"""
        loop, told = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: told.append(repr(context["exception"])))

        class Protocol(asyncio.Protocol):
            def __init__(self, where):
                if where == "factory":
                    raise asyncio.CancelledError

            def data_received(self, data):
                raise asyncio.CancelledError

            def connection_lost(self, error):
                told.append(f"lost: {error!r}")

        async def run(where):
            if kind == "ours":
                url = "tcp://127.0.0.1:0"
                server = await aeconn.aio.create_server(lambda: Protocol(where), url)
            else:
                server = await loop.create_server(lambda: Protocol(where), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            writer.write(b"x")
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(await asyncio.wait_for(reader.read(), LONG), b"")
            writer.close()
            server.close()

        await run("data_received")
        seen = tuple(told)
        await run("factory")
        return seen

    @each
    async def test_forgotten(self, kind):
        """A stream that is dropped, not closed, after its end: garbage, with a ResourceWarning"""
        quiet_ones = []

        async def forgetful(reader, writer):
            quiet_ones.append((weakref.ref(writer.transport), await reader.read()))

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            server = await serve(kind, forgetful)
            reader, writer = await connect(kind, port_of(server))
            writer.write_eof()
            while not quiet_ones:
                await asyncio.sleep(0.001)
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()
            self.assertEqual(await asyncio.wait_for(reader.read(), LONG), b"")
            client = weakref.ref(writer.transport)
            del reader, writer
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()
            server.close()
            await asyncio.wait_for(server.wait_closed(), LONG)
        self.assertTrue(any(each.category is ResourceWarning for each in warned))
        return [quiet_ones[0][0](), client()]

    @each
    async def test_failing(self, kind):
        """A failed connect to an address: the exception's class and errno"""
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            with self.assertRaises(OSError) as caught:
                await connect(kind, nobody.getsockname()[1])
        return type(caught.exception), caught.exception.errno


@unittest.skipUnless(aeconn.has_transport("tls"), "built without TLS")
class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.certificate, cls.key = f"{folder.name}/cert.pem", f"{folder.name}/key.pem"
        subprocess.run(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3"
            " -addext subjectAltName=IP:127.0.0.1,DNS:localhost,URI:urn:x,email:a@b.c -subj".split()
            + ["/C=DE/O=One + Two/CN=b\u00fccher", "-keyout", cls.key, "-out", cls.certificate],
            check=True,
            stderr=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def peer(self):
        """A server of the module ssl for one connection; its port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["b"])
        done = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve():
                with contextlib.suppress(OSError), listener.accept()[0] as plain:
                    with context.wrap_socket(plain, server_side=True) as secured:
                        secured.sendall(b"here\n")
                        done.wait(LONG)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield listener.getsockname()[1]
            finally:
                done.set()
                thread.join()

    def context(self, verify):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["a", "b"])
        context.load_verify_locations(self.certificate)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def url(self, port, verify):
        options = f"ca={self.certificate}" if verify else "verify=no"
        return f"tls://127.0.0.1:{port}?alpn=a,b&{options}"

    def facts(self, one):
        seen = [one.version(), one.cipher(), one.selected_alpn_protocol(), one.compression()]
        seen += [one.getpeercert(), one.getpeercert(False), one.getpeercert(True)]
        return seen + [one.session_reused]

    @each
    def test_sockets(self, kind):
        """TLS: version(), cipher(), getpeercert(), selected_alpn_protocol(), session_reused"""
        seen = []
        for verify in True, False:
            with self.peer() as port:
                if kind == "ours":
                    one = aeconn.connect(self.url(port, verify), LONG)
                else:
                    plain = socket.create_connection(("127.0.0.1", port))
                    one = self.context(verify).wrap_socket(plain, server_hostname="127.0.0.1")
                with one:
                    self.assertEqual(one.recv(5), b"here\n")
                    seen += self.facts(one)
        self.assertEqual(seen[4]["subject"][0], (("countryName", "DE"),))
        self.assertEqual(seen[12], {})
        return seen

    @each
    async def test_streams(self, kind):
        """TLS in asyncio: get_extra_info() of ssl_object, cipher, peercert, compression"""
        seen = []
        for verify in True, False:
            with self.peer() as port:
                if kind == "ours":
                    reader, writer = await aeconn.open_connection(self.url(port, verify))
                else:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", port, ssl=self.context(verify)
                    )
                self.assertEqual(await reader.readline(), b"here\n")
                seen += self.facts(writer.get_extra_info("ssl_object"))
                for name in "cipher", "peercert", "compression":
                    seen.append(writer.get_extra_info(name))
                writer.transport.abort()
        return seen

    def test_refused_certificate(self):
        """TLS: a certificate that is refused is an OSError"""
        with self.peer() as port, self.assertRaises(OSError):
            context = ssl.create_default_context()
            plain = socket.create_connection(("127.0.0.1", port))
            context.wrap_socket(plain, server_hostname="127.0.0.1")
        with self.peer() as port, self.assertRaises(OSError) as caught:
            aeconn.connect(f"tls://127.0.0.1:{port}", LONG)
        self.assertIn("certificate", str(caught.exception))


class Different(unittest.TestCase):
    """Rows of the second table: CPython's behaviour, then ours."""

    def both(self, call):
        seen = []
        for kind in "theirs", "ours":
            with pair(kind) as (one, other):
                seen.append(call(one, other))
        return seen

    def test_flags(self):
        """flags"""
        def call(one, other):
            other.sendall(b"x")
            return raised(one.recv, 1, socket.MSG_PEEK), raised(one.send, b"x", socket.MSG_DONTWAIT)

        no = ("OSError", errno.EOPNOTSUPP)
        self.assertEqual(self.both(call), [(b"x", 1), (no, no)])

    def test_ancillary_data(self):
        """ancillary data"""
        data = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
        seen = []
        for kind in "theirs", "ours":
            with pair(kind, "unix") as (one, _):
                seen.append(raised(one.sendmsg, [b"x"], data))
        self.assertEqual(seen, [1, ("OSError", errno.EOPNOTSUPP)])

    def test_much_at_once(self):
        """`recv()`"""
        def call(one, other):
            one.settimeout(0)
            other.settimeout(LONG)
            thread = threading.Thread(target=other.sendall, args=(b"x" * 3_000_000,))
            thread.start()
            most = total = 0
            while total < 3_000_000:
                with contextlib.suppress(BlockingIOError):
                    n = len(one.recv(2**22))
                    most, total = max(most, n), total + n
            thread.join()
            return most

        self.assertLessEqual(self.both(call)[1], 2**20)

    def test_reading_has_ended(self):
        """`shutdown(SHUT_RD)`"""
        def call(one, other):
            other.sendall(b"x")
            one.recv(1)
            other.sendall(b"y")
            self.assertEqual(other.send(b""), 0)
            while not select_readable(one):
                pass
            one.shutdown(socket.SHUT_RD)
            return one.recv(1)

        self.assertEqual(self.both(call), [b"y", b""])

    def test_after_an_error(self):
        """after an error"""
        def call(one, other):
            reset(other)
            self.assertRaises(ConnectionResetError, one.recv, 1)
            return raised(one.recv, 1), raised(one.send, b"x")

        again = ("ConnectionResetError", errno.ECONNRESET)
        self.assertEqual(self.both(call), [(b"", ("BrokenPipeError", errno.EPIPE)), (again, again)])

    def test_names(self):
        """names of peers"""
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            name = listener.getsockname()
            with socket.create_connection(name[:2]) as theirs:
                self.assertEqual(theirs.getpeername(), name)
            with aeconn.connect(f"tcp://[::1]:{name[1]}", LONG) as ours:
                self.assertEqual(ours.getpeername(), name[:2])

    def test_missing(self):
        """methods that are missing"""
        missing = {each for each in dir(socket.socket) if each[0] != "_"} - set(dir(aeconn.Socket))
        row = PAGE.read_text().partition("| methods that are missing |")[2].partition("|")[0]
        self.assertEqual(missing, set(re.findall("[a-z_]+", row)))

    def test_names_that_do_not_resolve(self):
        """a name that does not resolve"""
        with self.assertRaises(socket.gaierror):
            socket.create_connection(("nowhere.invalid", 1))
        with self.assertRaisesRegex(OSError, "nowhere.invalid: ") as caught:
            aeconn.connect("tcp://nowhere.invalid:1")
        self.assertEqual(caught.exception.errno, errno.EHOSTUNREACH)


def select_readable(one):
    return bool(select.select([one], [], [], LONG)[0])


class Page(unittest.TestCase):
    def test_rows(self):
        """The page's tables have the rows that are tested here."""
        text = PAGE.read_text()

        def rows(after):
            part = text.partition(after)[2].partition("\n## ")[0]
            lines = (line for line in part.splitlines() if line.startswith("| "))
            return [line.split("|")[1].strip() for line in lines]

        def tested(*classes):
            tests = [one for each in classes for one in vars(each).items()]
            return [one.__doc__.splitlines()[0] for name, one in tests if name[:4] == "test"]

        self.assertEqual(rows("## As CPython's")[1:], tested(Sockets, Streams, Tls))
        self.assertLessEqual(set(tested(Different)), set(rows("## Differences from a socket")))


if __name__ == "__main__":
    unittest.main()
