# SPDX-License-Identifier: BSD-3-Clause
"""A blocking connection with the methods of a socket.

C code does not block. A call makes an attempt; if it has to wait, it releases the lock and polls
the descriptor of the connection's loop. A reading thread and a writing one therefore do not wait
for each other, and Python's signal handlers run without delay during any wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import math
import operator
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from . import _native, _tls
from ._keeper import keeper
from ._native import AGAIN, NO_HANDLER, NOTHING, READABLE, WRITABLE, Address, lib
from ._pump import pumps

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from typing import Protocol

    from typing_extensions import Self

    class SendableFile(Protocol):
        """What sendfile() takes."""

        def read(self, size: int, /) -> bytes: ...
        def seek(self, offset: int, /) -> object: ...

    _Both = Literal["rwb", "rbw", "wrb", "wbr", "brw", "bwr"]
    _Reading = Literal["rb", "br"]
    _Writing = Literal["wb", "bw"]
    _Binary = Literal["b", "rb", "br", "wb", "bw", "rwb", "rbw", "wrb", "wbr", "brw", "bwr"]
    _Text = Literal["r", "w", "rw", "wr", ""]
    _Buffered = Literal[-1, 1]

# Type for the address of any Python buffer, as C expects it.
_Buffer = ctypes.c_char * 0
_MOST_AT_ONCE = 1 << 20  # limit of recv(), whatever size is requested
_FILE_BLOCK = 64 * 1024  # of sendfile()
_MOST_CONNECT_MS = 24 * 3600 * 1000  # maximum of the option connect-timeout
_OUTGOING = 0  # waiting for written data to be sent, which needs no handler
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


class _Deadline:
    """A running time-out."""

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout

    def left_ms(self) -> int | None:
        """None: no limit. Rounded up, so that the time-out has expired after a wait of that long."""
        if self._at is None:
            return None
        left = max(self._at - time.monotonic(), 0)
        return min(math.ceil(left * 1000), 2**31 - 1)


class _RawFile(socket.SocketIO):
    """Below the files of makefile()."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        n = super().write(data)
        if n is None:  # there is no space: io makes its BlockingIOError from C's errno
            _native.set_errno_of_c(errno.EAGAIN)
        return n


class Socket:
    """A stream to one peer over any transport of the library.

    Behaves like a connected socket.socket; docs/python.md lists the differences. One thread may
    read and another write at the same time. close() may be called from any thread and from a signal
    handler: waiting calls then raise OSError (EBADF).
    """

    _conn: int | None = None
    _loop: int | None = None
    _kept_at: int | None = None  # the keeper's descriptor of this connection
    _ends_by: Callable[[int | None], None] = staticmethod(lib.close)

    __getstate__ = _native.not_copied

    def __init__(self, url: str, timeout: float | None = None) -> None:
        self._begin(timeout)
        limited = _with_limit(url, self._timeout)
        self._conn = lib.connect(self._loop, _native.to_c(limited), NO_HANDLER, None)
        try:
            if not self._conn:
                raise _without(limited[len(url) :], _native.set_up_error())
            if self._until(_settled, _OUTGOING) != _native.CONNECTED:
                raise _without(limited[len(url) :], _native.connect_error(self._conn))
        except BaseException:
            self.close()
            raise
        with contextlib.suppress(OSError):  # no descriptor is left: later, then
            self._kind()
        keeper.keep(self)

    def _begin(self, timeout: float | None) -> None:
        self._lock = threading.RLock()  # held during calls of C, which do not block
        self._process = os.getpid()
        self._timeout = _native.seconds(timeout)
        self._users = _Calls()
        # The subset of calls that are polling.
        self._waiting = {READABLE: _Calls(), WRITABLE: _Calls(), _OUTGOING: _Calls()}
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

    @classmethod
    def adopt(cls, connected: socket.socket) -> Self:
        """Takes over a connected TCP or Unix socket and its time-out."""
        ssl = sys.modules.get("ssl")
        if ssl is not None and isinstance(connected, ssl.SSLSocket):
            raise TypeError("an ssl.SSLSocket cannot be adopted: connect to a tls:// URL instead")
        self = cls.__new__(cls)
        self._begin(connected.gettimeout())
        scheme = _native.scheme_of(connected).encode()
        self._conn = lib.adopt(self._loop, scheme, connected.fileno())
        if not self._conn:
            error = _native.set_up_error()
            self.close()
            raise error
        self._known_kind = connected.family, connected.proto
        connected.detach()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._close_now()

    def __repr__(self) -> str:
        try:
            return f"<aeconn.Socket {self.path()}>"
        except OSError:
            return "<aeconn.Socket, closed>"

    # --- data ------------------------------------------------------------------------------------

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Returns at least one byte and at most 1 MiB; b"" at end of stream."""
        size = operator.index(bufsize)
        _no_flags("recv", flags)
        if size < 0:
            raise ValueError("negative buffersize in recv")
        if size > 2**63 - 1:
            raise OverflowError("Python int too large to convert to C ssize_t")
        buffer = bytearray(min(size, _MOST_AT_ONCE))
        got = self._read(_address_of(buffer), len(buffer))
        return bytes(memoryview(buffer)[:got])

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        size = operator.index(nbytes)
        _no_flags("recv_into", flags)
        view = _writable(buffer)
        if size < 0:
            raise ValueError("negative buffersize in recv_into")
        if size > len(view):
            raise ValueError("buffer too small for requested bytes")
        return self._read(_address_of(view), size or len(view))

    def recvfrom(self, bufsize: int, flags: int = 0) -> tuple[bytes, None]:
        """Like recv(); the address is None, because a stream has only one peer."""
        return self.recv(bufsize, flags), None

    def recvfrom_into(
        self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0
    ) -> tuple[int, None]:
        return self.recv_into(buffer, nbytes, flags), None

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0
    ) -> tuple[bytes, list[Any], int, None]:
        """Like recv(): there is no ancillary data."""
        return self.recv(bufsize, flags), [], 0, None

    def recvmsg_into(
        self, buffers: Iterable[WriteableBuffer], ancbufsize: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, None]:
        views = [_writable(each) for each in buffers]
        data = self.recv(sum(map(len, views)), flags)
        rest = memoryview(data)
        for view in views:
            part = rest[: len(view)]
            view[: len(part)] = part
            rest = rest[len(part) :]
        return len(data), [], 0, None

    def sendmsg(
        self,
        buffers: Iterable[ReadableBuffer],
        ancdata: Iterable[Any] = (),
        flags: int = 0,
        address: None = None,
    ) -> int:
        """Like send(); ancillary data is not supported."""
        if list(ancdata):
            raise OSError(errno.EOPNOTSUPP, "sendmsg() has no ancillary data here")
        if address is not None:
            raise OSError(errno.EISCONN, os.strerror(errno.EISCONN))
        return self.send(b"".join([_flat(each) for each in buffers]), flags)

    def _read(self, address: int, size: int) -> int:
        def step(conn: int) -> int | None:
            if self._read_shut or not size:
                return 0
            n = lib.read(conn, address, size)
            if n > 0:
                return int(n)
            number = ctypes.get_errno()
            if n < 0 and number in AGAIN:
                return None
            self._input_over = True
            if n < 0:
                raise self._error(number)
            return 0

        return self._until(step, READABLE)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Sends as much as there is space for, at least one byte."""
        _no_flags("send", flags)
        view = _readable(data)
        address = _address_of(view)
        return self._until(lambda conn: self._write(conn, address, len(view)), WRITABLE)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        """Passes all data to the kernel or device. On an error or time-out, an unknown part has
        been sent; the same applies to BlockingIOError of a non-blocking connection.
        """
        _no_flags("sendall", flags)
        view = _readable(data)
        address, sent = _address_of(view), 0

        def step(conn: int) -> int | None:
            nonlocal sent
            while sent < len(view):
                n = self._write(conn, address + sent, len(view) - sent)
                if n is None:
                    return None
                sent += n
            return sent

        deadline = _Deadline(self._timeout)
        self._until(step, WRITABLE, deadline)
        if len(view) and self._timeout != 0:
            self._until(self._left, _OUTGOING, deadline)

    def _write(self, conn: int, address: int, size: int) -> int | None:
        n = lib.write(conn, address, size)
        if n >= 0:
            lib.flush(conn)
            return int(n)
        number = ctypes.get_errno()
        if number in AGAIN:
            return None
        raise self._error(number)

    def _left(self, conn: int) -> int | None:
        """Returns 0 once all written data has been passed on."""
        if _still_leaves(conn):
            return None
        if lib.get_state(conn) == _native.FAILED:
            raise _native.connect_error(conn)
        return 0

    def sendfile(self, file: SendableFile, offset: int = 0, count: int | None = None) -> int:
        """Sends up to `count` bytes of a file opened in binary mode, starting at `offset`. Returns
        the number of bytes sent; the file position is after these bytes, even on an error."""
        if "b" not in getattr(file, "mode", "b"):
            raise ValueError("file should be opened in binary mode")
        if count is not None and not isinstance(count, int):
            raise TypeError(f"count must be a positive integer (got {count!r})")
        if count is not None and count <= 0:
            raise ValueError(f"count must be a positive integer (got {count!r})")
        if self._timeout == 0:
            raise ValueError("non-blocking sockets are not supported")
        if offset or hasattr(file, "seek"):
            file.seek(offset)
        sent = 0
        try:
            while count is None or sent < count:
                size = _FILE_BLOCK if count is None else min(_FILE_BLOCK, count - sent)
                view = memoryview(file.read(size))
                if not len(view):
                    break
                while len(view):
                    n = self.send(view)
                    sent += n
                    view = view[n:]
        finally:
            if sent and hasattr(file, "seek"):
                file.seek(offset + sent)
        return sent

    @overload
    def makefile(
        self,
        mode: _Binary,
        buffering: Literal[0],
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> socket.SocketIO: ...
    @overload
    def makefile(
        self,
        mode: _Both,
        buffering: _Buffered | None = ...,
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.BufferedRWPair: ...
    @overload
    def makefile(
        self,
        mode: _Reading,
        buffering: _Buffered | None = ...,
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.BufferedReader: ...
    @overload
    def makefile(
        self,
        mode: _Writing,
        buffering: _Buffered | None = ...,
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.BufferedWriter: ...
    @overload
    def makefile(
        self,
        mode: _Binary,
        buffering: int,
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.IOBase: ...
    @overload
    def makefile(
        self,
        mode: _Text = ...,
        buffering: int | None = ...,
        *,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.TextIOWrapper: ...
    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:  # the overloads tell callers
        """Like socket.makefile(); the connection stays open until its files are closed as well."""
        if not set(mode) <= set("rwb"):
            raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
        reads, writes, text = "r" in mode or "w" not in mode, "w" in mode, "b" not in mode
        self._open()
        raw = _RawFile(self, "r" * reads + "w" * writes)  # type: ignore[arg-type]
        self._files += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
        if size == 0:
            if text:
                raw.close()
                raise ValueError("unbuffered streams must be binary")
            return raw
        buffered: Any
        if reads and writes:
            buffered = io.BufferedRWPair(raw, raw, size)
        else:
            buffered = io.BufferedReader(raw, size) if reads else io.BufferedWriter(raw, size)
        if not text:
            return buffered
        file = io.TextIOWrapper(buffered, encoding, errors, newline)
        file.mode = mode  # type: ignore[misc]
        return file

    def _decref_socketios(self) -> None:  # called by socket.SocketIO, which makefile() creates
        self._files = max(self._files - 1, 0)
        if self._close_wanted and not self._files:
            self._close_now()

    # --- the end ---------------------------------------------------------------------------------

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """SHUT_WR requires a transport with half-close; SHUT_RD makes recv() return end of
        stream."""
        how = operator.index(how)
        if not -(2**31) <= how < 2**31:
            raise OverflowError("Python int too large to convert to C int")
        if how not in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        def step(conn: int) -> None:
            if how == socket.SHUT_RD:
                if lib.get_state(conn) != _native.CONNECTED:
                    raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
                self._read_shut = self._input_over = True
            else:
                both = how == socket.SHUT_RDWR or self._read_shut
                if lib.shutdown(conn, READABLE | WRITABLE if both else WRITABLE) != 0:
                    raise self._error()
            _native.wake(self._loop or 0)  # waiting calls check again

        self._locked(step)

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

    # --- settings and facts ----------------------------------------------------------------------

    def settimeout(self, value: float | None) -> None:
        self._timeout = _native.seconds(value)

    def gettimeout(self) -> float | None:
        return self._timeout

    @property
    def timeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def getblocking(self) -> bool:
        return self._timeout != 0

    @overload
    def setsockopt(self, level: int, optname: int, value: int | ReadableBuffer, /) -> None: ...
    @overload
    def setsockopt(self, level: int, optname: int, value: None, optlen: int, /) -> None: ...
    def setsockopt(self, *arguments: Any) -> None:
        """Options of the underlying socket, if there is one. For rdma and shm use options of the
        URL."""
        with self._kernel_socket() as below:
            below.setsockopt(*arguments)

    @overload
    def getsockopt(self, level: int, optname: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
    def getsockopt(self, *arguments: int) -> int | bytes:
        """Like setsockopt(). SO_ERROR is always 0: errors are raised by the call that encounters
        them."""
        with self._kernel_socket() as below:
            return below.getsockopt(*arguments)

    def _kernel_socket(self) -> socket.socket:
        return self._locked(_native.kernel_socket)

    @property
    def family(self) -> int:
        """That of the underlying socket; over rdma, that of the address."""
        return self._kind()[0]

    @property
    def type(self) -> int:
        return socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        return self._kind()[1]

    def _kind(self) -> tuple[int, int]:
        if self._known_kind is None:
            try:
                with self._kernel_socket() as below:
                    self._known_kind = below.family, below.proto
            except OSError as error:
                if error.errno != errno.ENOPROTOOPT:
                    raise
                name = self.getpeername()
                family = socket.AF_UNIX
                if isinstance(name, tuple):
                    family = socket.AF_INET6 if ":" in str(name[0]) else socket.AF_INET
                self._known_kind = family, 0
        return self._known_kind

    def fileno(self) -> int:
        """Descriptor for select() and similar functions to wait for reading: readable if recv()
        would not block, and sometimes when it would. Returns -1 after close() and in a child after
        fork(). Waiting for space to write is not supported."""

        def step(_: int) -> int:
            if not self._polled_outside:
                self._polled_outside = True
                self._watch()
                lib.dispatch(self._loop)
            return int(lib.descriptor(self._loop))

        if self._conn is None or self._closing or os.getpid() != self._process:
            return -1
        try:
            return self._locked(step)
        except OSError:
            if self._closing:  # closed meanwhile
                return -1
            raise

    def detach(self) -> int:
        """Closes this object without closing the connection, and returns a descriptor for it: a
        Unix stream socket, non-blocking if the time-out is 0, for select() in both directions,
        socket.socket(fileno=...), other threads, and C libraries. It belongs to the caller; closing
        it closes the connection. A thread moves the bytes. Raises OSError (EBUSY) while another
        thread uses the connection; after any OSError it is as before, after other exceptions it has
        ended.
        """

        def step(conn: int) -> int:
            if len(self._users) > 1:
                raise OSError(errno.EBUSY, "another call is using the connection")
            keeper.drop(self)
            loop, self._conn, self._loop = self._loop, None, None
            assert loop is not None
            begun, fd = False, -1
            try:
                fd = int(lib.to_fd(conn, _native.STOP_AT_END, loop))
                if fd < 0:
                    error = _native.set_up_error()
                else:
                    os.set_blocking(fd, self._timeout != 0)
                    begun = True
                    pumps.begin(loop)
            except BaseException:  # raised by a signal handler, or there is no thread
                if fd >= 0:
                    os.close(fd)  # a thread that runs already ends by that
                if not begun:
                    lib.loop_free(loop)
                raise
            if fd < 0:
                self._conn, self._loop = conn, loop
                self._watched = {READABLE: False, WRITABLE: False}
                self._watch()
                keeper.keep(self)
                raise error
            return fd

        return self._locked(step)

    def readable(self, timeout: float | None = 0) -> bool:
        """Whether recv() would return at once; waits up to `timeout` seconds."""

        def step(conn: int) -> int | None:
            over = self._input_over or lib.wait(conn, READABLE, 0) == 0
            return 1 if over else None

        return bool(self._until(step, READABLE, _Deadline(_native.seconds(timeout)), overdue=0))

    def getpeername(self) -> Address:
        return self._locked(lambda conn: _native.address(lib.peer, conn))

    def getsockname(self) -> Address:
        return self._locked(lambda conn: _native.address(lib.local, conn))

    def transport(self) -> str:
        return self._locked(lambda conn: _native.from_c(lib.transport(conn)))

    def path(self) -> str:
        """Description of the path in one line: "tcp 10.0.0.2:50400 > 10.0.0.1:6379"."""
        return self._locked(_native.path)

    def info(self) -> dict[str, str]:
        """Details of the transport in readable form."""
        return self._locked(
            lambda conn: _native.facts(lambda take, told: lib.info(conn, take, told))
        )

    def peer_user(self) -> str:
        """The name that the option peer-user takes from the peer's certificate; "" without the
        option."""
        return self._locked(lambda conn: _native.text_of(lib.peer_user, conn))

    def peer_credentials(self) -> tuple[int, int, int] | None:
        """Process, user and group at the other end of a Unix socket; None for other transports."""
        return self._locked(_native.peer_credentials)

    def peer_certificate(self) -> str:
        """The certificate as PEM; "" if there is none."""
        return self._locked(lambda conn: _native.text_of(lib.peer_certificate, conn))

    def _tls(self) -> _tls.Session:
        return _tls.Session(self.info(), self.peer_certificate())

    @overload
    def getpeercert(self, binary_form: Literal[False] = False) -> dict[str, Any] | None: ...
    @overload
    def getpeercert(self, binary_form: Literal[True]) -> bytes | None: ...
    @overload
    def getpeercert(self, binary_form: bool) -> dict[str, Any] | bytes | None: ...
    def getpeercert(self, binary_form: bool = False) -> dict[str, Any] | bytes | None:
        """As ssl.SSLSocket.getpeercert(): the certificate as a dict, which is empty if it was not
        verified, or as DER; None if there is none."""
        return self._tls().getpeercert(binary_form)

    def version(self) -> str | None:
        """As ssl.SSLSocket.version(): "TLSv1.3"; None without TLS."""
        return self._tls().version()

    def cipher(self) -> tuple[str, str, int] | None:
        """As ssl.SSLSocket.cipher(): the name, its protocol, and secret bits; None without TLS."""
        return self._tls().cipher()

    def selected_alpn_protocol(self) -> str | None:
        """As ssl.SSLSocket.selected_alpn_protocol()."""
        return self._tls().selected_alpn_protocol()

    def compression(self) -> None:
        """As ssl.SSLSocket.compression(): None, nothing is compressed."""

    @property
    def session_reused(self) -> bool:
        """As ssl.SSLSocket.session_reused."""
        return self._tls().session_reused

    # --- inside ----------------------------------------------------------------------------------

    def _open(self) -> int:
        if self._conn is None or self._closing:
            raise OSError(errno.EBADF, "the connection is closed")
        if os.getpid() != self._process:
            raise OSError(errno.EBADF, "the connection belongs to the parent process")
        return self._conn

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
        deadline: _Deadline | None = None,
        overdue: int | None = None,
    ) -> int:
        """Calls `step` with the lock held, whenever something may have changed, until it returns a
        result other than None; `step` must not block. On time-out, `overdue` is returned or, if
        that is None, an exception is raised."""
        limit = deadline or _Deadline(self._timeout)

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
                    poll.register(lib.descriptor(self._loop), select.POLLIN)
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
        if not any(self._waiting.values()):
            keeper.hold(self)
        self._waiting[direction].add(held)
        self._watch()

    def _wait_ends(self, direction: int, held: threading.Lock) -> None:
        """May be called twice."""
        with self._lock:
            self._waiting[direction].discard(held)
            if not any(self._waiting.values()):
                keeper.release(self)
            if not self._closing:
                self._watch()
                self._turn()

    def _watch(self) -> None:
        """Sets handlers for the directions being waited for: with a handler, the descriptor is
        readable while that direction is ready. Polling of fileno() outside does not wake a waiting
        writer."""
        waiting = self._waiting
        outside = self._polled_outside and not waiting[WRITABLE] and not waiting[_OUTGOING]
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
        if reader or (waiting[_OUTGOING] and self._conn and not _still_leaves(self._conn)):
            _native.wake(self._loop or 0)

    def _turn_idle(self) -> bool:
        """Called by the keeper: does the transport's pending work while no call uses the
        connection. Returns False if data remains that only a call can consume: bytes announced by
        fileno()."""
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


def _settled(conn: int) -> int | None:
    state = int(lib.get_state(conn))
    return None if state in (_native.NEW, _native.CONNECTING) else state


def _still_leaves(conn: int) -> bool:
    """Whether some written data is still buffered in the library."""
    waits = lib.write_all(conn, None, 0, 0) != 0
    return waits and ctypes.get_errno() == errno.ETIMEDOUT


def _with_limit(url: str, timeout: float | None) -> str:
    """The caller's `timeout` takes precedence, so the transport's own limit must not be shorter."""
    if timeout is None or not isinstance(url, str):
        return url
    limit = min(max(math.ceil(timeout * 1000), 1), _MOST_CONNECT_MS)
    return _native.with_option(url, "connect-timeout", f"{limit}ms")


def _without(added: str, error: OSError) -> OSError:
    """The error about a URL, without an option that the user did not write."""
    return OSError(error.errno, error.strerror.replace(added, "")) if added else error


def _no_flags(call: str, flags: int) -> None:
    if operator.index(flags):
        raise OSError(errno.EOPNOTSUPP, f"{call}() has no flags here")


def _flat(data: Any) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"" if view.readonly else bytearray())


def _writable(data: Any) -> memoryview:
    view = memoryview(data)
    if view.readonly or not view.c_contiguous:
        raise TypeError("a contiguous buffer that can be written to is required")
    return _flat(view)


def _readable(data: Any) -> memoryview:
    """A view of bytes whose address can be taken; they remain valid as long as the view."""
    if isinstance(data, bytes):
        return memoryview(data)
    view = _flat(data)
    return memoryview(bytes(view)) if view.readonly else view


def _address_of(data: bytearray | memoryview) -> int:
    if not len(data):
        return 0
    if isinstance(data, memoryview) and data.readonly:
        store: Any = data.obj  # bytes: their address is not available in any other way
        return ctypes.cast(ctypes.c_char_p(store), ctypes.c_void_p).value or 0
    return ctypes.addressof(_Buffer.from_buffer(data))
