# SPDX-License-Identifier: BSD-3-Clause
"""cpython.py: runs CPython's own tests of sockets and asyncio streams with this package.

They are imported from the interpreter's test package, unchanged: their socket.socket, and the
results of a loop's create_connection() and create_server(), are replaced by this package's.

Prints a line for each mode, with the number of passed tests, and the failures. A class or test that
is neither run nor named in LEFT_OUT is a failure: another release of Python may have more.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pathlib
import re
import socket as real
import ssl
import sys
import tempfile
import threading
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python"))

import aeconn  # noqa: E402

# --- tests that are run, and tests that are not ---------------------------------------------------

SOCKET = [
    "BasicTCPTest",
    "TCPCloserTest",
    "BasicSocketPairTest",
    "NonBlockingTCPTests",
    "FileObjectClassTestCase",
    "UnbufferedFileObjectClassTestCase",
    "LineBufferedFileObjectClassTestCase",
    "SmallBufferedFileObjectClassTestCase",
    "UnicodeReadFileObjectClassTestCase",
    "UnicodeWriteFileObjectClassTestCase",
    "UnicodeReadWriteFileObjectClassTestCase",
    "BufferIOTest",
    "ContextManagersTest",
    "SendfileUsingSendTest",
]

# Classes of test_socket.py that are not run, by pattern, with the reason.
SOCKET_LEFT_OUT = {
    r".*(UDP|CAN|RDS|ISOTP|J1939|QIPCRTR|VSOCK|Bluetooth|TIPC|SCTP|HyperV|Divert).*":
        "no stream, or of another family",
    r"(Sendmsg|Recvmsg|RecvmsgInto|RFC3542|SendRecvFds|CmsgMacro|SCMRights).*":
        "messages with ancillary data, which a stream over TLS or RDMA cannot carry",
    r"(LinuxKernelCryptoAPI|TestMacOSTCPFlags|TestMSWindowsTCPFlags|FreeBSD.*)":
        "of another system or of the kernel's cryptography",
    r"GeneralModuleTests": "functions of the module socket, and sockets that are not connected",
    r"(NetworkConnection.*|BasicTCPTest2|CreateServer.*)":
        "socket.create_connection() and create_server(): a URL is given here",
    r"(TCPTimeoutTest|ResourceTracker.*)": "time-outs of accept() and of sockets not connected",
    r"InterruptedRecvTimeoutTest": "UDP; test_blocking.py has signals in every call",
    r"InterruptedSendTimeoutTest": "its own accept(); test_blocking.py has it",
    r"(TestExceptions|InheritanceTest|NonblockConstantTest|TestSocketSharing|"
    r"TestLinuxAbstractNamespace|TestUnixDomain)":
        "bind(), SOCK_ flags and the class socket.socket itself",
    r"SendfileUsingSendfileTest": "os.sendfile(), which needs the kernel's socket",
    r"ReuseAddr.*|PurePythonSocketPairTest|.*SocketPairTest":
        "socket.socketpair() itself; what it gives is run as BasicSocketPairTest",
}

# Tests of the classes above that are not run, with the reason.
TESTS_LEFT_OUT = {
    "testFromFd": "fileno() is for waiting, not to be taken over",
    "testDup": "the same", "testDetach": "gives a new descriptor, not that of fileno()",
    "testDefaults": "isinstance(socket.socket)",
    "testSetBlocking": "of the listening socket, by fcntl() on its descriptor",
    "testSetBlocking_overflow": "the same", "testInitNonBlocking": "the same",
    "testInheritFlagsBlocking": "of accept()", "testInheritFlagsTimeout": "of accept()",
    "testAccept": "of accept()",
    "testNonRegularFile": "os.sendfile(), which needs the kernel's socket",
    # Streams:
    "test_start_tls": "asyncio's own TLS on top of a transport: the URL says tls",
    "test_read_all_from_pipe_reader": "pipes and processes",
    "test_open_connection_no_loop_ssl": "asyncio's own TLS: the URL says tls",
    "test_open_unix_connection_no_loop_ssl": "asyncio's own TLS: the URL says tls",
    # Servers:
    "test_start_server_1": "reads a server's _sockets and _waiters",
    "test_start_unix_server_1": "the same",
}

# With tls the accepted end is a socket of the module ssl, which behaves differently.
TLS_LEFT_OUT = {
    "BasicSocketPairTest": "a pair has no TLS",
    "TCPCloserTest": "that end closes without close_notify, which is an error over TLS",
    "NonBlockingTCPTests": "that end raises ssl.SSLWantReadError",
    "UnbufferedFileObjectClassTestCase": "the same",
    "testRecvFrom": "that end has no recvfrom()",
    "testOverFlowRecvFrom": "the same",
    "testRecvFromIntoArray": "the same",
    "testRecvFromIntoBytearray": "the same",
    "testRecvFromIntoMemoryview": "the same",
    "testRecvFromIntoSmallBuffer": "the same",
    "testRecvFromIntoEmptyBuffer": "the same",
}

# The accepted end closes with unread bytes; if the other end writes only after that, a Unix socket
# gives EPIPE at once, also with Python's own sockets.
UNIX_LEFT_OUT = ("testRecvFromIntoSmallBuffer", "testRecvFromIntoEmptyBuffer")

EVENTS = [
    "test_create_connection", "test_create_unix_connection", "test_create_server",
    "test_create_unix_server", "test_server_close", "test_prompt_cancellation",
]

# --- sockets -------------------------------------------------------------------------------------


class Swapped:
    """Python's socket until it is connected, then a connection of this package. With the mode unix
    it is a Unix socket, whatever the test asks for; with tls the accepted end is the module
    ssl's."""

    mode = "tcp"
    folder = ""
    certificate = ""
    paths: dict[int, str] = {}

    def __init__(self, *arguments, **settings):
        self._is = real.socket(*arguments, **settings)
        self._lock = threading.Lock()
        inet_stream = (self._is.family, self._is.type) == (real.AF_INET, real.SOCK_STREAM)
        self._unix = self.mode == "unix" and inet_stream
        if self._unix:
            self._is.close()
            self._is = real.socket(real.AF_UNIX)

    def bind(self, address):
        if not self._unix:
            return self._is.bind(address)
        self._port = len(self.paths) + 1
        self.paths[self._port] = f"{self.folder}/{self._port}"
        self._is.bind(self.paths[self._port])

    def getsockname(self):
        return ("127.0.0.1", self._port) if self._unix else self._is.getsockname()

    def accept(self):
        accepted, address = self._is.accept()
        if self.mode == "tls":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate)
            return context.wrap_socket(accepted, server_side=True), address
        return aeconn.adopt(accepted), address

    def connect(self, address):
        with self._lock:
            self._connect(address)

    def fileno(self):  # another thread of the test may be connecting it
        with self._lock:
            return self._is.fileno()

    def _connect(self, address):
        timeout = self._is.gettimeout()
        self._is.close()
        if self.mode == "unix":
            url = "unix://" + self.paths[address[1]]
        else:
            host = "127.0.0.1" if address[0] == "localhost" else address[0]
            url = f"{self.mode}://{host}:{address[1]}"
            if self.mode == "tls":
                url += f"?ca={self.certificate}"
        self._is = aeconn.connect(url, timeout)
        self._unix = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is.close()

    def __getattr__(self, name):
        return getattr(self._is, name)

    @property
    def family(self):
        return real.AF_INET if self._unix else self._is.family

    # Internals of Python's sockets that tests look at.
    @property
    def _closed(self):
        return self._is.fileno() < 0

    @property
    def _sendfile_use_send(self):
        ours = isinstance(self._is, aeconn.Socket)
        return self._is.sendfile if ours else self._is._sendfile_use_send


def socketpair(*arguments):
    return tuple(aeconn.adopt(each) for each in real.socketpair(*arguments))


def create_connection(address, timeout=None, **_):
    connection = Swapped(real.AF_INET, real.SOCK_STREAM)
    connection.settimeout(timeout if isinstance(timeout, (int, float)) else None)
    connection.connect(address)
    return connection


class SocketModule(types.ModuleType):
    """The module socket with this package's classes in it."""

    socket = Swapped
    socketpair = staticmethod(socketpair)
    create_connection = staticmethod(create_connection)

    def __getattr__(self, name):
        return getattr(real, name)


def names_of(module):
    return [
        name for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, unittest.TestCase)
        and each.__module__ == module.__name__
        and any(test.startswith("test") for test in dir(each))
    ]


def run(name, classes, only=None, but=()):
    """Runs all tests of the classes except for those left out."""
    suite, left = unittest.TestSuite(), 0
    for each in classes:
        for test in unittest.defaultTestLoader.getTestCaseNames(each):
            if test in TESTS_LEFT_OUT or test in but or (only is not None and test not in only):
                left += 1
            else:
                suite.addTest(each(test))
    result = unittest.TextTestRunner(verbosity=0, stream=open(os.devnull, "w")).run(suite)
    for case, trace in result.failures + result.errors:
        print(f"FAIL {name}: {case}\n" + re.sub("^", "  | ", trace, flags=re.M))
    bad = len({id(case) for case, _ in result.failures + result.errors})
    passed = result.testsRun - bad - len(result.skipped)
    print(f"{name}: {passed} passed, {bad} failed, {len(result.skipped)} skipped, {left} left out")
    return bad == 0 and passed > 0


def certificate_in(folder):
    """A certificate that exists as long as the folder."""
    path = f"{folder}/both.pem"
    os.system(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3"
        f" -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/cert 2>/dev/null"
        f" && cat {folder}/key {folder}/cert >{path}"
    )
    return path


def sockets(folder, mode):
    module = importlib.import_module("test.test_socket")
    unknown = [
        name for name in names_of(module)
        if name not in SOCKET
        and not any(re.fullmatch(pattern, name) for pattern in SOCKET_LEFT_OUT)
    ]
    if unknown:
        print("FAIL neither run nor left out:", *unknown)
    module.socket = SocketModule("socket")
    good = not unknown
    classes = [getattr(module, name) for name in SOCKET if hasattr(module, name)]
    Swapped.folder, Swapped.mode = folder, mode
    if mode != "tls":
        but = UNIX_LEFT_OUT if mode == "unix" else ()
        return run(f"test_socket over {mode}", classes, but=but) and good
    Swapped.certificate = certificate_in(folder)
    classes = [each for each in classes if each.__name__ not in TLS_LEFT_OUT]
    return run(f"test_socket over {mode}", classes, but=TLS_LEFT_OUT) and good


# --- asyncio -------------------------------------------------------------------------------------


class Listening:
    """A Server of this package with the attributes that asyncio's tests look at."""

    def __init__(self, server, address):
        self._server, self._address = server, address

    @property
    def sockets(self):
        return (self,) if self._server.is_serving() else ()

    def getsockname(self):
        return self._address

    family, type = real.AF_INET, real.SOCK_STREAM

    def __getattr__(self, name):
        return getattr(self._server, name)

    async def __aenter__(self):
        return await self._server.__aenter__()

    async def __aexit__(self, *why):
        return await self._server.__aexit__(*why)


class Loop(asyncio.SelectorEventLoop):
    """A loop that gives asyncio's functions this package's transports, except for its own TLS."""

    async def create_connection(self, factory, host=None, port=None, *, ssl=None, **settings):
        if ssl is not None or settings.get("sock") is not None:
            return await super().create_connection(factory, host, port, ssl=ssl, **settings)
        return await aeconn.aio.create_connection(factory, f"tcp://{host}:{port}")

    async def create_unix_connection(self, factory, path=None, *, ssl=None, **settings):
        if ssl is not None:
            return await super().create_unix_connection(factory, path, ssl=ssl, **settings)
        return await aeconn.aio.create_connection(factory, "unix://" + os.path.abspath(path))

    async def create_server(self, factory, host=None, port=None, *, ssl=None, sock=None, **_):
        if ssl is not None:
            return await super().create_server(factory, host, port, ssl=ssl, sock=sock, **_)
        if sock is not None:
            host, port = sock.getsockname()[:2]
            sock.close()
        server = await aeconn.aio.create_server(factory, f"tcp://{host or '127.0.0.1'}:{port}")
        found = re.fullmatch(r"tcp://(.*):(\d+)", server.urls[0])
        return Listening(server, (found[1], int(found[2])))

    async def create_unix_server(self, factory, path=None, *, ssl=None, sock=None, **_):
        if ssl is not None or sock is not None:
            return await super().create_unix_server(factory, path, ssl=ssl, sock=sock, **_)
        server = await aeconn.aio.create_server(factory, "unix://" + os.path.abspath(path))
        return Listening(server, path)


class ListeningSocket:
    """The result of socket.create_server() for a test: an address, on which a server of this
    package listens after the socket was closed."""

    def __init__(self, address):
        with real.create_server(address) as listening:
            self._address = listening.getsockname()

    def getsockname(self):
        return self._address

    def close(self):
        pass

    def __enter__(self):  # in a with block it listens itself
        self._listening = real.create_server(self._address)
        return self._listening

    def __exit__(self, *_):
        self._listening.close()


class StreamsSocketModule(types.ModuleType):
    create_server = ListeningSocket

    def __getattr__(self, name):
        return getattr(real, name)


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


def streams():
    asyncio.SelectorEventLoop = Loop
    asyncio.set_event_loop_policy(Policy())
    module = importlib.import_module("test.test_asyncio.test_streams")
    module.socket = StreamsSocketModule("socket")
    buffered = importlib.import_module("test.test_asyncio.test_buffered_proto")
    events = importlib.import_module("test.test_asyncio.test_events")
    servers = importlib.import_module("test.test_asyncio.test_server")
    good = run("asyncio's streams", [module.StreamTests])
    if hasattr(servers, "TestServer2"):  # from Python 3.12 on
        asyncio.set_event_loop_policy(Policy())  # the end of a module resets it
        good = run("asyncio's servers", [servers.TestServer2]) and good
    asyncio.set_event_loop_policy(Policy())
    good = run("asyncio's buffered protocols", [buffered.BufferedProtocolSelectorTests]) and good
    if hasattr(events, "EPollEventLoopTests"):

        class Events(events.EPollEventLoopTests):
            def create_event_loop(self):
                return Loop()

        good = run("asyncio's connections and servers", [Events], only=EVENTS) and good
    return good


def main():
    parts = sys.argv[1:] or ["tcp", "unix", "tls", "asyncio"]
    sys.argv = sys.argv[:1]
    children = []
    for part in parts:  # in parallel: much of the time they wait for time-outs
        if (child := os.fork()) != 0:
            children.append(child)
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # test.support creates files in the current folder
            good = streams() if part == "asyncio" else sockets(folder, part)
        sys.stdout.flush()
        os._exit(0 if good else 1)  # does not wait for threads of a test that hangs
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


main()
