# SPDX-License-Identifier: BSD-3-Clause
"""Support for redis-py over any transport."""

from __future__ import annotations

from typing import Any

import redis
from redis.connection import Connection

from ._socket import Socket


class AeconnConnection(Connection):
    """One connection of a pool, to the address and with the options of `url`."""

    description_format = "AeconnConnection<url=%(url)s,db=%(db)s>"

    def __init__(self, url: str = "", **settings: Any) -> None:
        self.url = url
        super().__init__(host=url, **settings)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return [("url", self.url), ("db", self.db)]

    def _connect(self) -> Any:
        connection = Socket(self.url, self.socket_connect_timeout)
        connection.settimeout(self.socket_timeout)
        return connection

    def _host_error(self) -> str:
        return self.url

    def can_read(self, timeout: float = 0) -> bool:
        """Whether a reply or the end of stream is available: readability of the descriptor is not
        sufficient."""
        if not self._sock:
            self.connect()
        try:
            return bool(self._parser.can_read(0)) or self._sock.readable(timeout)
        except OSError as error:
            self.disconnect()
            raise redis.ConnectionError(f"Error while reading from {self.url}: {error}") from error


def pool(url: str, **settings: Any) -> redis.ConnectionPool:
    return redis.ConnectionPool(connection_class=AeconnConnection, url=url, **settings)
