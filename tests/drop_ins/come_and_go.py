# SPDX-License-Identifier: BSD-3-Clause
"""Short-lived connections, 20 at a time: come_and_go.py URL COUNT [URL COUNT...]

Each sends PING and SET, and ends: in turn closed by the client, by the client with a request under
way, and by the server (CLIENT KILL). Prints how many each URL served; a failed one is an error.
"""

import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bindings", "python"))
import aeconn  # noqa: E402


async def one(url, turn):
    reader, writer = await aeconn.open_connection(url)
    writer.write(b"PING\r\nSET come go\r\nCLIENT ID\r\n")
    answers = [await reader.readline() for _ in range(3)]
    assert answers[:2] == [b"+PONG\r\n", b"+OK\r\n"], answers
    if turn % 3 == 1:
        writer.write(b"PING\r\n")
    elif turn % 3 == 2:
        writer.write(b"CLIENT KILL SKIPME no ID " + answers[2][1:])
        try:
            rest = await reader.read()
        except ConnectionError:
            rest = b""
        assert rest in (b"", b":1\r\n"), rest
    writer.close()


async def many(url, count):
    served = 0

    async def some():
        nonlocal served
        while served < count:
            served += 1
            await asyncio.wait_for(one(url, served), 120)

    await asyncio.gather(*(some() for _ in range(20)))
    print(f"{served} came and went", flush=True)


async def main(arguments):
    for url, count in zip(arguments[::2], arguments[1::2]):
        await many(url, int(count))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
