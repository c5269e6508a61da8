# SPDX-License-Identifier: BSD-3-Clause
"""Facts of TLS in the form of the module ssl, made from those that Socket.info() has."""

from __future__ import annotations

import functools

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
