# SPDX-License-Identifier: BSD-3-Clause
"""echo.py asyncio|uvloop|aeconn URL: an echo server with asyncio's streams, on one thread.

The handler is the same for all three; they differ in the event loop and in the function that starts
the server. URL: tcp://127.0.0.1:PORT.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(who: str, url: str) -> None:
    if who == "aeconn":
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/python"))
        import aeconn

        server: asyncio.AbstractServer = await aeconn.start_server(echo, url)
    else:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        server = await asyncio.start_server(echo, host, int(port))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    print(f"listening on {url}", flush=True)
    await stopped.wait()
    server.close()


def main() -> None:
    who, url = sys.argv[1:]
    if who == "uvloop":
        import uvloop

        uvloop.install()
    asyncio.run(serve(who, url))


main()
