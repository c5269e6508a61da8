# SPDX-License-Identifier: BSD-3-Clause
"""What a Socket tells of its connection, and the settings of the underlying socket."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _native, _tls
from ._connection import Connection
from ._native import Address, lib

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Facts(Connection):
    """The part of a Socket that tells facts and has settings."""

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
