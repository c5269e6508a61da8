# SPDX-License-Identifier: BSD-3-Clause
"""How the stop of asyncio servers begins: with clients that wait to be accepted, and with a program
that intervenes. Run like test_aeconn.py."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from aeconn._loop import Attached  # noqa: E402
from test_stop import LONG, Lines, send, until  # noqa: E402

MANY = 200  # clients; more than a loop accepts in one iteration


def dial(server, line):
    """A client of the kernel that has sent a line, while the server's loop does not run."""
    scheme, _, place = server.urls[0].partition("://")
    if scheme == "tcp":
        host, _, port = place.rpartition(":")
        client = socket.create_connection((host, int(port)), LONG)
    else:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(LONG)
        client.connect(place)
    client.sendall(line)
    return client


def answers(clients):
    """What each client gets until the end of its stream, or the number of its error."""
    got = []
    for each in clients:
        with each, each.makefile("rb") as file:
            try:
                got.append(file.read())
            except OSError as error:
                got.append(error.errno)
    return got


def each_backlog(test):
    """Runs a coroutine with a URL to listen on, for the transports whose clients wait in a backlog
    of the kernel with their first bytes."""

    @functools.wraps(test)
    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            for url in "tcp://127.0.0.1:0", f"unix://{folder}/unix":
                with self.subTest(url.partition(":")[0]):
                    asyncio.run(asyncio.wait_for(test(self, url), LONG))

    return run


class Beginning(unittest.TestCase):
    def setUp(self):
        self.handler = signal.getsignal(signal.SIGTERM)

    def tearDown(self):
        signal.signal(signal.SIGTERM, self.handler)

    @each_backlog
    async def test_the_backlog_is_answered(self, url):
        for way in "request", "signal", "twice":
            lines = Lines()
            with aeconn.Stop(None, signals=(signal.SIGTERM,) if way == "signal" else ()) as stop:
                server = await aeconn.start_server(lines, url)
                clients = [dial(server, b"hello\n") for _ in range(MANY)]
                send(signal.SIGTERM) if way == "signal" else stop.request()
                if way == "twice":
                    stop.request()
                self.assertEqual(await stop.wait(), 0)
                self.assertEqual((lines.taken, lines.errors), (MANY, []))
            self.assertEqual(answers(clients), [b"hello\n"] * MANY)
            self.tearDown()

    @each_backlog
    async def test_the_backlog_of_a_server_of_protocols(self, url):
        class Protocol(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport
                there.append(self)

            def data_received(self, data):
                asyncio.get_running_loop().call_later(0.01, self.answer, data)
                self.busy = True

            def answer(self, data):
                self.transport.write(data)
                self.busy = False
                if stop.phase != "serving":
                    self.transport.close()

            busy = False

        def begins():
            told.append((stop.phase, server.is_serving(), len(there)))
            for each in there:
                if not each.busy:
                    each.transport.close()

        there, told = [], []
        with aeconn.Stop(None, signals=(), begins=begins) as stop:
            server = await aeconn.aio.create_server(Protocol, url)
            clients = [dial(server, b"hello\n") for _ in range(MANY)]
            clients.append(dial(server, b""))
            stop.request()
            self.assertEqual(await stop.wait(), 0)
        self.assertEqual(told, [("draining", False, MANY + 1)])
        self.assertEqual(answers(clients), [b"hello\n"] * MANY + [b""])

    def test_the_backlog_of_a_group(self):
        inside, may_go_on = threading.Semaphore(0), threading.Event()

        async def handle(reader, writer):
            while await aeconn.next_request(reader):
                line = await reader.readline()
                if line == b"block\n":
                    inside.release()
                    may_go_on.wait(LONG)  # the loop does not run
                writer.write(line)
            writer.close()

        group = aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=1)
        clients = [dial(group, b"block\n")]
        self.assertTrue(inside.acquire(timeout=LONG))
        clients += [dial(group, b"hello\n") for _ in range(MANY)]
        stops = threading.Thread(target=group.stop, args=(None,))
        stops.start()
        may_go_on.set()
        stops.join()
        self.assertEqual(answers(clients), [b"block\n"] + [b"hello\n"] * MANY)

    @each_backlog
    async def test_closed_before_it_began(self, url):
        told = []
        with aeconn.Stop(0.01, signals=(), begins=lambda: told.append(True)) as stop:
            server = await aeconn.start_server(Lines(), url)
            clients = [dial(server, b"hello\n") for _ in range(3)]
            stop._request()
        self.assertEqual(stop.phase, "serving")
        await asyncio.sleep(0.05)
        self.assertEqual(told, [])
        self.assertTrue(server.is_serving())
        with aeconn.Stop(None, signals=()) as another:
            another.request()
            self.assertEqual(await another.wait(), 0)
        self.assertEqual(answers(clients), [b"hello\n"] * 3)

    @each_backlog
    async def test_closed_by_its_own_begins(self, url):
        def begins():
            stop.close()
            told.append(stop.phase)

        told, lines = [], Lines()
        with aeconn.Stop(0, signals=(), begins=begins) as stop:
            server = await aeconn.start_server(lines, url)
            client = await aeconn.open_connection(server.urls[0])
            await lines.ask(client, b"wait\n")
            stop.request()
            await until(lambda: told)
            with self.assertRaises(asyncio.CancelledError):
                await stop.wait()
        self.assertEqual((told, stop.phase, server.is_serving()), (["draining"], "draining", False))
        client[1].close()
        lines.may_answer.set()

    @each_backlog
    async def test_another_after_it(self, url):
        lines = Lines()
        server = await aeconn.start_server(lines, f"{url}1" if "unix" in url else url)
        client = await aeconn.open_connection(server.urls[0])
        await lines.ask(client, b"wait\n")
        with aeconn.Stop(None, signals=()) as first:
            first.request()
            await until(lambda: first.phase == "draining")
        told = []
        with aeconn.Stop(None, signals=(), begins=lambda: told.append(True)) as stop:
            server = await aeconn.start_server(lines, f"{url}2" if "unix" in url else url)
            await asyncio.sleep(0.02)
            self.assertEqual((stop.phase, server.is_serving(), told), ("serving", True, []))
            clients = [dial(server, b"hello\n") for _ in range(3)]
            stop.request()
            lines.may_answer.set()
            self.assertEqual((await stop.wait(), told), (0, [True]))
        self.assertEqual(answers(clients), [b"hello\n"] * 3)
        self.assertEqual(await client[0].read(), b"wait\n")
        client[1].close()

    def test_a_child_while_it_begins(self):
        async def serve():
            with aeconn.Stop(None, signals=()) as stop:
                server = await aeconn.start_server(Lines(), "tcp://127.0.0.1:0")
                clients = [dial(server, b"hello\n") for _ in range(MANY)]
                stop._request()
                child = os.fork()
                if child == 0:
                    stop.close()
                    server.close()
                    os._exit(0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                self.assertEqual(await stop.wait(), 0)
            self.assertEqual(answers(clients), [b"hello\n"] * MANY)

        asyncio.run(asyncio.wait_for(serve(), LONG))

    def test_freed_with_its_loop_on_another_thread(self):
        async def serve(requests):
            stop = aeconn.Stop(None, signals=())
            await aeconn.start_server(Lines(), "tcp://127.0.0.1:0")
            if requests:
                stop._request()
            kept.append(weakref.ref(Attached.to(asyncio.get_running_loop())))

        kept = []
        for requests in False, True:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_until_complete, args=(serve(requests),))
            thread.start()
            thread.join()
            loop.close()
            del loop, thread
            gc.collect()
            self.assertIsNone(kept.pop()())

    @each_backlog
    async def test_begins_before_it_ends(self, url):
        for limit in 0, 0.01, None:
            told = []
            with aeconn.Stop(limit, signals=(), begins=lambda: told.append(stop.phase)) as stop:
                server = await aeconn.start_server(Lines(), url)
                stop.request()
                stop.request()
                self.assertEqual(await stop.wait(), 0)
                self.assertEqual((told, server.is_serving()), (["draining"], False))

    def test_what_leaves_the_loop_while_it_begins(self):
        def close():
            del server.close
            raise SystemExit(3)

        async def serve():
            nonlocal stop, server
            stop = aeconn.Stop(None, signals=(), begins=lambda: told.append(stop.phase))
            server = await aeconn.start_server(Lines(), "tcp://127.0.0.1:0")
            server.close = close
            stop.request()
            await stop.wait()

        stop, server, told = None, None, []
        loop = asyncio.new_event_loop()
        with self.assertRaises(SystemExit):
            loop.run_until_complete(serve())
        loop.run_until_complete(asyncio.wait_for(stop.wait(), LONG))
        self.assertFalse(server.is_serving())
        self.assertEqual((stop.status, told), (0, ["draining"]))
        stop.close()
        loop.close()


if __name__ == "__main__":
    unittest.main()
