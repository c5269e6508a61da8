# SPDX-License-Identifier: BSD-3-Clause
"""Facts of TLS in the form of the module ssl, made from those that Socket.info() has."""

from __future__ import annotations

import binascii
import functools
import importlib
import os
from typing import Any, Literal, overload

Cipher = tuple[str, str, int]


@functools.cache
def _known() -> dict[str, Cipher]:
    """All cipher suites of this Python's OpenSSL by name."""
    try:
        import ssl
    except ImportError:  # a Python without it
        return {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL")
    return {
        each["name"]: (each["name"], each["protocol"], each["strength_bits"])
        for each in context.get_ciphers()
    }


def cipher(facts: dict[str, str]) -> Cipher | None:
    """As ssl.SSLSocket.cipher(): the name, the oldest protocol that has it, and secret bits (0: the
    module ssl does not know the cipher suite)."""
    name = facts.get("cipher")
    if name is None:
        return None
    return _known().get(name, (name, facts.get("tls", ""), 0))


class Session:
    """A TLS connection's facts, by the names that ssl.SSLObject gives them."""

    def __init__(self, facts: dict[str, str], certificate: str) -> None:
        self._facts, self._certificate = facts, certificate

    def version(self) -> str | None:
        return self._facts.get("tls")

    def cipher(self) -> Cipher | None:
        return cipher(self._facts)

    def selected_alpn_protocol(self) -> str | None:
        return self._facts.get("alpn")

    @property
    def session_reused(self) -> bool:
        return self._facts.get("resumed") == "yes"

    def compression(self) -> None:
        """None: the library never compresses."""

    @overload
    def getpeercert(self, binary_form: Literal[False] = False) -> dict[str, Any] | None: ...
    @overload
    def getpeercert(self, binary_form: Literal[True]) -> bytes | None: ...
    @overload
    def getpeercert(self, binary_form: bool) -> dict[str, Any] | bytes | None: ...
    def getpeercert(self, binary_form: bool = False) -> dict[str, Any] | bytes | None:
        """The peer's certificate as a dict, which is empty if it was not verified, or as DER; None
        if there is none."""
        if not self._certificate:
            return None
        if binary_form:
            return binascii.a2b_base64("".join(self._certificate.strip().splitlines()[1:-1]))
        return _decoded(self._certificate) if self._facts.get("verified") == "yes" else {}


def _decoded(certificate: str) -> dict[str, Any]:
    """By the function of CPython that getpeercert() uses, which takes a certificate that is not a
    connection's only from a file."""
    _ssl = importlib.import_module("_ssl")
    file = os.memfd_create("certificate")
    try:
        os.write(file, certificate.encode())
        decoded: dict[str, Any] = _ssl._test_decode_cert(f"/proc/self/fd/{file}")
        return decoded
    finally:
        os.close(file)
