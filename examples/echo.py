#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An echo server with asyncio, and a blocking client, using the package aeconn.

    ./echo.py serve tcp://127.0.0.1:7000 unix:///tmp/echo.sock
    ./echo.py ask tcp://127.0.0.1:7000 hello

It needs libaeconn-c (AECONN_LIBRARY names the file if the loader does not find it) and the package's
folder in PYTHONPATH, unless both are installed.
"""

import asyncio
import contextlib
import sys

import aeconn


async def echo(reader, writer):
    """One session: an error of the peer ends only this session."""
    with contextlib.suppress(OSError):
        while await aeconn.next_request(reader):  # False also when the server stops
            writer.write(await reader.read(16384))
            await writer.drain()  # slows down a peer that does not read
    writer.close()


async def serve(urls):
    """Returns after SIGTERM or SIGINT, when each peer has its answers."""
    with aeconn.Stop(limit=10) as stop:
        for url in urls:
            server = await aeconn.start_server(echo, url)
            print(*server.urls, sep="\n", flush=True)
        return await stop.wait()


def ask(url, text):
    with aeconn.connect(url, timeout=10) as connection:
        connection.sendall(text.encode() + b"\n")
        print(connection.makefile("r").readline(), end="")


def main(arguments):
    match arguments:
        case ["serve", _, *_]:
            sys.exit(asyncio.run(serve(arguments[1:])))
        case ["ask", url, text]:
            ask(url, text)
        case _:
            raise ValueError("usage: echo.py serve URL... | ask URL TEXT")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
