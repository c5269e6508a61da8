# SPDX-License-Identifier: BSD-3-Clause
"""What a Socket reads and writes: bytes, files that are sent, and the files of makefile()."""

from __future__ import annotations

import ctypes
import errno
import io
import operator
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _native
from ._connection import OUTGOING, Connection, Deadline, still_leaves
from ._native import AGAIN, READABLE, WRITABLE, lib

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from typing import Protocol

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


class _RawFile(socket.SocketIO):
    """Below the files of makefile()."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        n = super().write(data)
        if n is None:  # there is no space: io makes its BlockingIOError from C's errno
            _native.set_errno_of_c(errno.EAGAIN)
        return n


class Data(Connection):
    """The part of a Socket that reads and writes."""

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

        deadline = Deadline(self._timeout)
        self._until(step, WRITABLE, deadline)
        if len(view) and self._timeout != 0:
            self._until(self._left, OUTGOING, deadline)

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
        if still_leaves(conn):
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
