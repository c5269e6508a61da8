# SPDX-License-Identifier: BSD-3-Clause
"""Binds libaeconn-c with ctypes: installing this package compiles nothing.

AECONN_LIBRARY names the library file if the loader would not find it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import math
import operator
import os
import socket
import stat
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from typing import Any, NoReturn, ParamSpec, TypeVar
from urllib.parse import unquote

READABLE = 1
WRITABLE = 2

NEW, CONNECTING, CONNECTED, CLOSED, FAILED = range(5)

_MOST_CONNECT_MS = 24 * 3600 * 1000  # maximum of the option connect-timeout

# Callbacks from C. An exception raised in Python code there would be lost, and Python's signal
# handlers may run in any Python code. Therefore C calls only builtins, which record the event, and
# Python code handles it after C has returned.
ConnFn = CFUNCTYPE(None, c_void_p, c_void_p)
FactFn = CFUNCTYPE(None, py_object, c_char_p, c_char_p)
TextFn = CFUNCTYPE(None, py_object, c_char_p, c_size_t)
PostFn = CFUNCTYPE(None, c_void_p)
EndedFn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
NO_HANDLER = ConnFn(0)
_TAKE = FactFn(operator.setitem)
_TAKE_TEXT = TextFn(operator.setitem)


class StopSettings(ctypes.Structure):
    """aeconn_stop_settings"""

    _fields_ = (
        ("signals", POINTER(c_int)),
        ("begins", c_void_p),
        ("ends", c_void_p),
        ("context", c_void_p),
    )


AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)

# Name: result, arguments. Only the functions that this package calls; see the header for all.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "version": (c_char_p,),
    "error": (c_char_p,),
    "has_transport": (c_int, c_char_p),
    "configure": (c_int, c_char_p, c_char_p),
    "prepare_client_url": (c_int, c_char_p),
    "reload_tls": (c_int,),
    "on_fallback": (c_int, FactFn, py_object),
    "loop_new": (c_void_p,),
    "loop_free": (None, c_void_p),
    "descriptor": (c_int, c_void_p),
    "dispatch": (c_int, c_void_p),
    "collect": (c_ssize_t, c_void_p, c_void_p, c_size_t),
    "note": (None, c_void_p, c_void_p),
    "post": (c_int, c_void_p, PostFn, c_void_p),
    "run": (c_int, c_void_p),
    "stop": (None, c_void_p),
    "statistics": (c_int, c_void_p, c_char_p, FactFn, py_object),
    "metrics": (c_int, c_void_p, TextFn, py_object),
    "listen": (c_void_p, c_void_p, c_char_p, ConnFn, c_void_p),
    "listener_free": (None, c_void_p),
    "listener_url": (c_char_p, c_void_p, c_size_t),
    "listener_pause": (None, c_void_p),
    "listener_resume": (None, c_void_p),
    "graceful_stop_new": (c_void_p, c_void_p, c_void_p, c_int64, POINTER(StopSettings)),
    "graceful_stop_free": (None, c_void_p),
    "graceful_stop_request": (None, c_void_p),
    "graceful_stop_status": (c_int, c_void_p, POINTER(c_uint64), POINTER(c_uint64)),
    "connect": (c_void_p, c_void_p, c_char_p, ConnFn, c_void_p),
    "adopt": (c_void_p, c_void_p, c_char_p, c_int),
    "close": (None, c_void_p),
    "abort": (None, c_void_p),
    "shutdown": (c_int, c_void_p, c_int),
    "on_readable": (c_int, c_void_p, ConnFn, c_void_p),
    "on_writable": (c_int, c_void_p, ConnFn, c_void_p),
    "read": (c_ssize_t, c_void_p, c_void_p, c_size_t),
    "write": (c_ssize_t, c_void_p, c_void_p, c_size_t),
    "flush": (None, c_void_p),
    "wait": (c_int, c_void_p, c_int, c_int64),
    "write_all": (c_ssize_t, c_void_p, c_void_p, c_size_t, c_int64),
    "get_state": (c_int, c_void_p),
    "last_error": (c_char_p, c_void_p),
    "last_errno": (c_int, c_void_p),
    "transport": (c_char_p, c_void_p),
    "fd": (c_int, c_void_p),
    "to_fd": (c_int, c_void_p, EndedFn, c_void_p),
    "local": (c_size_t, c_void_p, c_char_p, c_size_t, POINTER(c_uint16)),
    "peer": (c_size_t, c_void_p, c_char_p, c_size_t, POINTER(c_uint16)),
    "peer_certificate": (c_size_t, c_void_p, c_char_p, c_size_t),
    "peer_user": (c_size_t, c_void_p, c_char_p, c_size_t),
    "peer_credentials": (c_int, c_void_p, POINTER(c_int), POINTER(c_uint32), POINTER(c_uint32)),
    "path": (c_size_t, c_void_p, c_char_p, c_size_t),
    "set_user_data": (None, c_void_p, c_void_p),
    "info": (None, c_void_p, FactFn, py_object),
    "bytes_read": (c_uint64, c_void_p),
    "bytes_written": (c_uint64, c_void_p),
}


def _too_old(library: ctypes.CDLL, name: str, function: str) -> str:
    """Why a library without that function cannot be used."""
    import importlib.metadata

    try:
        version = library.aeconn_version
    except AttributeError:
        return f"{name} is not libaeconn-c: name another file in AECONN_LIBRARY"
    version.restype = c_char_p
    try:
        needed = importlib.metadata.version("aeconn") + " or a newer one"
    except importlib.metadata.PackageNotFoundError:  # used in place
        needed = "a newer one"
    return (
        f"{name} is libaeconn-c {version().decode()} and has no aeconn_{function}(): install "
        f"{needed}, or name its file in AECONN_LIBRARY"
    )


class Library:
    """The functions of aeconn.h, without their prefix."""

    def __init__(self) -> None:
        name = os.environ.get("AECONN_LIBRARY") or "libaeconn-c.so.0.2"
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            raise ImportError(
                f"libaeconn-c cannot be loaded ({error}): install it with the system's packages, or "
                "with `make install` and `ldconfig`, or name its file in AECONN_LIBRARY"
            ) from None
        for function, (result, *arguments) in _FUNCTIONS.items():
            try:
                native = getattr(library, "aeconn_" + function)
            except AttributeError:
                raise ImportError(_too_old(library, name, function)) from None
            native.restype = result
            native.argtypes = arguments
            setattr(self, function, native)

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)


lib = Library()

# Handlers whose only effect is that the loop's descriptor becomes readable: C functions that ignore
# NULL, which is their first argument here. No Python code then runs within C. It could otherwise
# stop a thread in the middle of C++ code if the interpreter exits during a call.
NOTHING = ctypes.cast(lib.set_user_data, ConnFn)
# Stores its context for collect().
NOTE = ctypes.cast(lib.note, ConnFn)
_WAKE = ctypes.cast(lib.close, PostFn)
# They stop the loop that they are given as context.
STOP = ctypes.cast(lib.stop, PostFn)
STOP_AT_END = ctypes.cast(lib.stop, EndedFn)


_errno_of_c = ctypes.pythonapi["__errno_location"]
_errno_of_c.restype = POINTER(c_int)


def set_errno_of_c(number: int) -> None:
    """Sets errno itself, not ctypes' copy: for C code of Python that reads it afterwards."""
    _errno_of_c()[0] = number


_P = ParamSpec("_P")
_T = TypeVar("_T")


def keeps_errno(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """For functions that a signal handler, or the garbage collector by __del__(), may call between
    a function of C and the ctypes.get_errno() after it: the interrupted call still finds its own
    errno there."""

    @functools.wraps(call)
    def kept(*arguments: _P.args, **named: _P.kwargs) -> _T:
        before = ctypes.get_errno()
        try:
            return call(*arguments, **named)
        finally:
            ctypes.set_errno(before)

    return kept


# --- texts and numbers, validated before they are passed to C -------------------------------------


def to_c(value: str) -> bytes:
    """Encodes a text for C: bytes that are not UTF-8 are represented as in paths (PEP 383)."""
    if not isinstance(value, str):
        raise TypeError(f"expected a str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError("embedded null character")
    return value.encode("utf-8", "surrogateescape")


def from_c(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "surrogateescape")


def seconds(value: float | None) -> float | None:
    """Validates a time-out like socket.settimeout()."""
    if value is None:
        return None
    value = math.ldexp(value, 0)  # a float; unlike float(), not of a text
    if math.isnan(value):
        raise ValueError("Invalid value NaN (not a number)")
    if value < 0:
        raise ValueError("Timeout value out of range")
    if value > 2**63 / 1e9 - 1:
        raise OverflowError("timeout doesn't fit into C timeval")
    return value


# --- failures ------------------------------------------------------------------------------------


def set_up_error() -> OSError:
    """The error of a failed setup function."""
    number = ctypes.get_errno() or errno.EIO
    return OSError(number, from_c(lib.error()) or os.strerror(number))


def descriptor(loop: int | None) -> int:
    """The loop's descriptor, for poll() and the like. The first call for a loop opens it, for which
    the process may have too few descriptors."""
    fd = int(lib.descriptor(loop))
    if fd < 0:
        raise set_up_error()
    return fd


def io_error(conn: int | None, number: int | None = None) -> OSError:
    """The error of a connection, as the exception that a socket would raise."""
    number = number or ctypes.get_errno() or errno.EIO
    words = from_c(lib.last_error(conn)) if conn is not None else ""
    return OSError(number, words or os.strerror(number))


def connect_error(conn: int) -> OSError:
    """The reason why a connection was not established."""
    return io_error(conn, lib.last_errno(conn) or errno.EIO)


# --- facts ---------------------------------------------------------------------------------------

Address = tuple[str, int] | str | bytes


def address(function: Any, conn: int) -> Address:
    """Like a socket's address: (host, port), a path, or the bytes of an abstract name."""
    port = c_uint16()
    size = function(conn, None, 0, port) + 1
    host = ctypes.create_string_buffer(size)
    function(conn, host, size, port)
    raw = host.raw[: size - 1]
    if port.value == 0 and raw.startswith(b"@"):
        return b"\0" + raw[1:]
    text = from_c(raw)
    return (text, port.value) if port.value or _is_host(conn, text) else text


def _is_host(conn: int, text: str) -> bool:
    """Whether it is a host whose port is 0 (possible for the local address of rdma) and not a
    path."""
    return bool(text) and not text.startswith("/") and not lib.transport(conn).endswith((b"unix", b"shm"))


def not_copied(self: object) -> NoReturn:
    """As __getstate__(): two objects must not own what one of them frees."""
    raise TypeError(f"cannot pickle {type(self).__name__!r} object")


def leave_to_parent(conn: int | None) -> None:
    """Called in a child after fork(): closes the child's copy of the descriptor. Sends nothing to
    the peer, because the parent continues to use the connection."""
    if conn and (fd := lib.fd(conn)) >= 0:
        os.close(fd)


def kernel_socket(conn: int) -> socket.socket:
    """The socket below the connection, duplicated: to be closed at once, since the peer sees the
    end only when all duplicates are closed."""
    fd = lib.fd(conn)
    if fd < 0:
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
    return socket.socket(fileno=os.dup(fd))


def path(conn: int) -> str:
    """Description of the connection's path in one line."""
    return text_of(lib.path, conn)


def text_of(function: Any, conn: int) -> str:
    """The result of a function that writes a text like snprintf(3)."""
    size = function(conn, None, 0) + 1
    line = ctypes.create_string_buffer(size)
    function(conn, line, size)
    return from_c(line.value)


def peer_credentials(conn: int) -> tuple[int, int, int] | None:
    """The process, user and group at the other end of a Unix socket; None for other transports."""
    pid, uid, gid = c_int(), c_uint32(), c_uint32()
    if lib.peer_credentials(conn, pid, uid, gid) != 0:
        return None
    return pid.value, uid.value, gid.value


def facts(call: Any) -> dict[str, str]:
    """Collects the facts that a function reports one by one."""
    told: dict[bytes, bytes] = {}
    call(_TAKE, told)
    return {from_c(name): from_c(value) for name, value in told.items()}


def metrics(loop: int) -> str:
    """The counters of all transports on a loop."""
    told: dict[bytes, int] = {}
    if lib.metrics(loop, _TAKE_TEXT, told) != 0:
        raise set_up_error()
    return from_c(b"".join(told))


_fallbacks: dict[bytes, bytes] = {}
lib.on_fallback(_TAKE, _fallbacks)


def fallbacks() -> dict[str, str]:
    """For each address that was connected with another scheme of a list than the first: the most
    recent reason. "not rdma: connect to ...: no such device"."""
    return {from_c(to): from_c(why) for to, why in list(_fallbacks.items())}


def with_option(url: str, name: str, value: str) -> str:
    """Adds an option unless the URL already has it."""
    query = url.partition("?")[2]
    if any(each.split("=")[0] == name for each in query.split("&")):
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={value}"


def with_limit(url: str, timeout: float | None) -> str:
    """The caller's `timeout` takes precedence, so the transport's own limit must not be shorter."""
    if timeout is None or not isinstance(url, str):
        return url
    limit = min(max(math.ceil(timeout * 1000), 1), _MOST_CONNECT_MS)
    return with_option(url, "connect-timeout", f"{limit}ms")


def is_of_file(url: str, error: OSError) -> bool:
    """Whether the URL names a file of TLS that cannot be opened, for the same reason as `error`."""
    for option in url.partition("?")[2].split("&"):
        key, _, value = option.partition("=")
        if key not in ("cert", "key", "key-pass-file", "ca", "ca-dir", "crl"):
            continue
        for path in unquote(value).split(","):
            try:
                file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                folder = stat.S_ISDIR(os.fstat(file).st_mode)
                os.close(file)
            except OSError as why:
                number = why.errno
            else:
                wrong = errno.ENOTDIR if key == "ca-dir" else errno.EISDIR
                number = wrong if folder != (key == "ca-dir") else 0
            if number == error.errno:
                return True
    return False


def without(url: str, limited: str, error: OSError) -> OSError:
    """The error about the URL that with_limit() has returned, without an option that the user did
    not write. The library's texts have the options of a URL in alphabetical order."""
    option = limited[len(url) + 1 :]
    if not option:
        return error
    text = error.strerror.replace(f"{option}&", "")
    return OSError(error.errno, text.replace(f"?{option}", "").replace(f"&{option}", ""))


def wake(loop: int) -> None:
    """Makes the loop's descriptor readable until the loop is dispatched."""
    lib.post(loop, _WAKE, None)


def scheme_of(adopted: socket.socket) -> str:
    schemes = {socket.AF_UNIX: "unix", getattr(socket, "AF_VSOCK", None): "vsock"}
    return schemes.get(adopted.family, "tcp")
