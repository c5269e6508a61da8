# SPDX-License-Identifier: BSD-3-Clause
"""libaeconn-c by ctypes: nothing is compiled when this package is installed.

AECONN_LIBRARY names the file where the loader would not find it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint16,
    c_uint64,
    c_void_p,
)
from typing import Any

READABLE = 1
WRITABLE = 2

NEW, CONNECTING, CONNECTED, CLOSED, FAILED = range(5)

ConnFn = CFUNCTYPE(None, c_void_p, c_void_p)
TimerFn = CFUNCTYPE(c_int64, c_void_p)
FactFn = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
PostFn = CFUNCTYPE(None, c_void_p)
NO_HANDLER = ConnFn(0)

# Name: result, arguments. What this package calls; the header has the rest.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "version": (c_char_p,),
    "error": (c_char_p,),
    "has_transport": (c_int, c_char_p),
    "configure": (c_int, c_char_p, c_char_p),
    "loop_new": (c_void_p,),
    "loop_free": (None, c_void_p),
    "descriptor": (c_int, c_void_p),
    "dispatch": (c_int, c_void_p),
    "statistics": (c_int, c_void_p, c_char_p, FactFn, c_void_p),
    "listen": (c_void_p, c_void_p, c_char_p, ConnFn, c_void_p),
    "listener_free": (None, c_void_p),
    "listener_url": (c_char_p, c_void_p, c_size_t),
    "connect": (c_void_p, c_void_p, c_char_p, ConnFn, c_void_p),
    "connect_wait": (c_void_p, c_void_p, c_char_p, c_int64),
    "close": (None, c_void_p),
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
    "transport": (c_char_p, c_void_p),
    "fd": (c_int, c_void_p),
    "local": (c_size_t, c_void_p, c_char_p, c_size_t, POINTER(c_uint16)),
    "peer": (c_size_t, c_void_p, c_char_p, c_size_t, POINTER(c_uint16)),
    "peer_certificate": (c_size_t, c_void_p, c_char_p, c_size_t),
    "path": (c_size_t, c_void_p, c_char_p, c_size_t),
    "info": (None, c_void_p, FactFn, c_void_p),
    "bytes_read": (c_uint64, c_void_p),
    "bytes_written": (c_uint64, c_void_p),
}


class Library:
    """The functions of aeconn.h, without their prefix."""

    def __init__(self) -> None:
        name = os.environ.get("AECONN_LIBRARY", "libaeconn-c.so.0.2")
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            raise ImportError(
                f"{error}: install libaeconn-c, or name the file in AECONN_LIBRARY"
            ) from None
        for function, (result, *arguments) in _FUNCTIONS.items():
            native = getattr(library, "aeconn_" + function)
            native.restype = result
            native.argtypes = arguments
            setattr(self, function, native)

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)


lib = Library()


def set_up_error() -> OSError:
    """What a function that sets something up has said."""
    number = ctypes.get_errno() or errno.EIO
    return OSError(number, (lib.error() or b"").decode() or os.strerror(number))


def io_error(conn: int | None, number: int | None = None) -> OSError:
    """What a connection says of its failure, as the exception that a socket would raise."""
    number = number or ctypes.get_errno() or errno.EIO
    words = lib.last_error(conn).decode() if conn is not None else ""
    return OSError(number, words or os.strerror(number))


def address(function: Any, conn: int) -> tuple[str, int] | str:
    """As a socket's: (host, port), or a path."""
    port = c_uint16()
    size = function(conn, None, 0, port) + 1
    host = ctypes.create_string_buffer(size)
    function(conn, host, size, port)
    text = host.value.decode()
    return text if text.startswith("/") or not text else (text, port.value)


def path(conn: int) -> str:
    """What carries the bytes, in one line."""
    size = lib.path(conn, None, 0) + 1
    line = ctypes.create_string_buffer(size)
    lib.path(conn, line, size)
    return line.value.decode()


def facts(call: Any) -> dict[str, str]:
    """What a function tells one by one."""
    all_of_them: dict[str, str] = {}

    def take(_: Any, name: bytes, value: bytes) -> None:
        all_of_them[name.decode()] = value.decode()

    call(FactFn(take))
    return all_of_them
