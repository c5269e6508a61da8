# SPDX-License-Identifier: BSD-3-Clause
"""The graceful stop of asyncio servers. Run like test_aeconn.py."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from aeconn._loop import Attached  # noqa: E402

LONG = 60


def each_transport(test):
    """Runs a coroutine with a URL to listen on, for each transport that needs no device or file."""

    @functools.wraps(test)
    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            for url in "tcp://127.0.0.1:0", f"unix://{folder}/unix", f"shm://{folder}/shm":
                with self.subTest(url.partition(":")[0]):
                    asyncio.run(asyncio.wait_for(test(self, url), LONG))

    return run


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


class Lines:
    """Answers each line; b"wait" once it may."""

    def __init__(self):
        self.may_answer, self.taken, self.errors = asyncio.Event(), 0, []

    async def __call__(self, reader, writer):
        try:
            while await aeconn.next_request(reader):
                line = await reader.readline()
                self.taken += 1
                if line == b"wait\n":
                    await self.may_answer.wait()
                writer.write(line)
                await writer.drain()
        except OSError as error:
            self.errors.append(error.errno)
        writer.close()

    async def ask(self, client, line):
        taken = self.taken
        client[1].write(line)
        await until(lambda: self.taken > taken)


def send(number):
    os.kill(os.getpid(), number)


class Stopping(unittest.TestCase):
    def setUp(self):
        self.handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

    def tearDown(self):
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    @each_transport
    async def test_a_signal_ends_idle_sessions_and_waits_for_answers(self, url):
        for number in signal.SIGTERM, signal.SIGINT:
            lines = Lines()
            with aeconn.Stop(None) as stop:
                server = await aeconn.start_server(lines, url)
                idle, busy = [await aeconn.open_connection(server.urls[0]) for _ in range(2)]
                await lines.ask(idle, b"hello\n")
                await lines.ask(busy, b"wait\n")
                self.assertEqual(stop.phase, "serving")
                send(number)
                self.assertEqual(await idle[0].read(), b"hello\n")
                self.assertEqual(stop.phase, "draining")
                self.assertFalse(server.is_serving())
                with self.assertRaises(OSError):
                    await aeconn.open_connection(server.urls[0])
                ended = asyncio.ensure_future(stop.wait())
                await asyncio.sleep(0.01)
                self.assertFalse(ended.done())
                lines.may_answer.set()
                self.assertEqual(await busy[0].read(), b"wait\n")
                self.assertEqual(await ended, 0)
                self.assertEqual((stop.phase, stop.status, stop.left), ("ended", 0, (0, 0)))
                send(number)  # the program is about to end
                await asyncio.sleep(0.01)
            for each in idle, busy:
                each[1].close()
            self.assertIs(signal.getsignal(number), signal.SIG_IGN)
            self.tearDown()

    @each_transport
    async def test_the_limit(self, url):
        for limit in 0, 0.05:
            lines = Lines()
            with aeconn.Stop(limit, signals=()) as stop:
                server = await aeconn.start_server(lines, url)
                reader, writer = await aeconn.open_connection(server.urls[0])
                await lines.ask((reader, writer), b"wait\n")
                stop.request()
                self.assertEqual(await stop.wait(), 1)
                self.assertEqual(stop.left.connections, 1)
                lines.may_answer.set()
                await until(lambda: lines.errors)
                self.assertEqual(lines.errors, [errno.ECANCELED])
                try:
                    self.assertEqual(await reader.read(), b"")
                except ConnectionResetError:
                    pass
                writer.close()

    @each_transport
    async def test_a_second_signal(self, url):
        for together in False, True:
            lines = Lines()
            with aeconn.Stop(None) as stop:
                server = await aeconn.start_server(lines, url)
                client = await aeconn.open_connection(server.urls[0])
                await lines.ask(client, b"wait\n")
                send(signal.SIGTERM)
                if together:
                    send(signal.SIGINT)
                await asyncio.sleep(0.15)
                self.assertEqual(stop.phase, "draining")
                if together:
                    lines.may_answer.set()
                else:
                    send(signal.SIGTERM)
                self.assertEqual(await stop.wait(), 0 if together else 1)
                lines.may_answer.set()
                client[1].close()
            self.tearDown()

    @each_transport
    async def test_what_has_arrived_is_answered(self, url):
        lines = Lines()
        with aeconn.Stop(None, signals=()) as stop:
            server = await aeconn.start_server(lines, url)
            client = await aeconn.open_connection(server.urls[0])
            await lines.ask(client, b"wait\n")
            client[1].write(b"one\ntwo\nthree\n")
            lines.may_answer.set()
            stop.request()
            self.assertEqual(await stop.wait(), 0)
            self.assertEqual(await client[0].read(), b"wait\none\ntwo\nthree\n")
            client[1].close()

    def test_what_the_kernel_has_is_answered(self):
        async def serve():
            lines = Lines()
            with aeconn.Stop(None, signals=()) as stop:
                server = await aeconn.start_server(lines, "tcp://127.0.0.1:0")
                host, port = server.urls[0].removeprefix("tcp://").split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                await lines.ask((reader, writer), b"hello\n")
                writer.write(b"last\n")  # no iteration of the loop follows
                stop._request()
                self.assertEqual(await stop.wait(), 0)
                self.assertEqual(await reader.read(), b"hello\nlast\n")
                writer.close()

        asyncio.run(asyncio.wait_for(serve(), LONG))

    def test_the_handler_that_a_loop_had_returns(self):
        async def serve():
            got = []
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, got.append, "its own")
            try:
                aeconn.Stop(1).close()
                send(signal.SIGTERM)
                await until(lambda: got == ["its own"])
            finally:
                loop.remove_signal_handler(signal.SIGTERM)

        asyncio.run(asyncio.wait_for(serve(), LONG))

    @each_transport
    async def test_a_peer_that_never_pauses(self, url):
        lines = Lines()
        with aeconn.Stop(3, signals=()) as stop:
            server = await aeconn.start_server(lines, url)
            reader, writer = await aeconn.open_connection(server.urls[0])

            async def talk():
                with contextlib.suppress(OSError):
                    while await reader.readline() and not writer.is_closing():
                        writer.write(b"more\nmore\n")

            writer.write(b"more\n" * 10)
            talks = asyncio.ensure_future(talk())
            await until(lambda: lines.taken > 10)
            stop.request()
            self.assertEqual(await stop.wait(), 0)
            await talks
            writer.close()

    @each_transport
    async def test_closed_early(self, url):
        lines, told = Lines(), []
        before = signal.signal(signal.SIGTERM, lambda *_: told.append(True))
        with aeconn.Stop(0.01) as stop:
            server = await aeconn.start_server(lines, url)
            client = await aeconn.open_connection(server.urls[0])
            await lines.ask(client, b"wait\n")
            waits = asyncio.ensure_future(stop.wait())
            stop._request()
            await asyncio.sleep(0)
        with self.assertRaises(asyncio.CancelledError):
            await waits
        stop.close()
        stop.request()
        send(signal.SIGTERM)
        await until(lambda: told)
        signal.signal(signal.SIGTERM, before)
        await asyncio.sleep(0.05)
        lines.may_answer.set()
        self.assertEqual(await client[0].readline(), b"wait\n")
        client[1].write(b"on\n")
        self.assertEqual(await client[0].readline(), b"on\n")
        with aeconn.Stop(None) as another:
            another.request()
            self.assertEqual(await another.wait(), 0)
        self.assertEqual(await client[0].read(), b"")
        client[1].close()

    @each_transport
    async def test_protocols(self, url):
        class Protocol(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport, self.busy = transport, False
                there.append(self)

            def data_received(self, data):
                self.busy, self.data = True, data

            def answer(self):
                self.transport.write(self.data)
                self.busy = False
                if stop.phase != "serving":
                    self.transport.close()

        def begins():
            for each in there:
                if not each.busy:
                    each.transport.close()

        there = []
        with aeconn.Stop(None, begins=begins) as stop:
            server = await aeconn.aio.create_server(Protocol, url)
            idle, busy = [await aeconn.open_connection(server.urls[0]) for _ in range(2)]
            busy[1].write(b"hello")
            await until(lambda: any(each.busy for each in there))
            send(signal.SIGTERM)
            self.assertEqual(await idle[0].read(), b"")
            self.assertEqual(stop.phase, "draining")
            next(each for each in there if each.busy).answer()
            self.assertEqual(await stop.wait(), 0)
            self.assertEqual(await busy[0].read(), b"hello")
            for each in idle, busy:
                each[1].close()

    def test_accepted_at_that_moment(self):
        async def serve():
            lines = Lines()
            with aeconn.Stop(None, signals=()) as stop:
                server = await aeconn.start_server(lines, "tcp://127.0.0.1:0")
                on_accepted, server._on_accepted = server._on_accepted, lambda conn: (
                    stop._request(), on_accepted(conn))
                client = await aeconn.open_connection(server.urls[0])
                client[1].write(b"first\n")
                await until(lambda: stop.phase != "serving")
                await stop.wait()
                got = await client[0].read()
                self.assertIn(got, (b"", b"first\n"))
                client[1].close()

        asyncio.run(asyncio.wait_for(serve(), LONG))

    def test_other_threads(self):
        async def serve():
            lines = Lines()
            with aeconn.Stop(None, signals=()) as stop:
                server = await aeconn.start_server(lines, "tcp://127.0.0.1:0")
                client = await aeconn.open_connection(server.urls[0])
                await lines.ask(client, b"wait\n")
                threads = [threading.Thread(target=stop.request) for _ in range(2)]
                for each in threads:
                    each.start()
                for each in threads:  # both within one iteration of the loop
                    each.join()
                await until(lambda: stop.phase == "draining")
                lines.may_answer.set()
                self.assertEqual(await stop.wait(), 0)
                self.assertEqual(await client[0].read(), b"wait\n")
                client[1].close()

                def elsewhere():
                    try:
                        stop.close()
                    except RuntimeError as error:
                        refused.append(str(error))

                refused = []
                await asyncio.to_thread(elsewhere)
                self.assertIn("call_soon_threadsafe", refused[0])
            return stop

        asyncio.run(asyncio.wait_for(serve(), LONG)).request()  # its loop is closed

    def test_closed_elsewhere_while_its_loop_does_not_run(self):
        def elsewhere(step):
            def run():
                try:
                    step()
                except RuntimeError as error:
                    refused.append(str(error))

            refused = []
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(LONG)
            self.assertFalse(thread.is_alive(), "close() waits for ever")
            return refused

        async def make(signals=()):
            return aeconn.Stop(None, signals=signals)

        async def close():
            stop.close()

        loop = asyncio.new_event_loop()
        for step in (lambda: stop.close()), (lambda: loop.run_until_complete(close())):
            stop = loop.run_until_complete(make())
            self.assertEqual(elsewhere(step), [])
            stop.close()  # there is nothing left to do
        stop = loop.run_until_complete(make([signal.SIGUSR1]))
        for step in stop.close, lambda: loop.run_until_complete(close()):
            self.assertRegex("".join(elsewhere(step)), "on the main thread")
        self.assertNotEqual(signal.getsignal(signal.SIGUSR1), signal.SIG_DFL)
        stop.close()
        self.assertEqual(signal.getsignal(signal.SIGUSR1), signal.SIG_DFL)
        stop = loop.run_until_complete(make())
        loop.close()
        self.assertEqual(elsewhere(stop.close), [])

    def test_a_loop_that_another_thread_goes_on_to_run(self):
        async def make():
            stop = aeconn.Stop(None, signals=())
            lines = Lines()
            server = await aeconn.start_server(lines, "tcp://127.0.0.1:0")
            client = await aeconn.open_connection(server.urls[0])
            await lines.ask(client, b"wait\n")
            return stop, lines, client

        async def go_on():
            stop.close()
            lines.may_answer.set()
            client[1].write(b"hello\n")
            answers.append(await client[0].readexactly(11))
            client[1].close()
            with aeconn.Stop(None, signals=()) as second:
                second.request()
                answers.append(await second.wait())

        answers = []
        loop = asyncio.new_event_loop()
        stop, lines, client = loop.run_until_complete(make())
        run = asyncio.wait_for(go_on(), LONG)
        thread = threading.Thread(target=lambda: loop.run_until_complete(run), daemon=True)
        thread.start()
        thread.join(LONG)
        self.assertEqual(answers, [b"wait\nhello\n", 0])
        loop.close()

    def test_a_group(self):
        taken = threading.Semaphore(0)
        may_answer = threading.Event()

        async def handle(reader, writer):
            with contextlib.suppress(OSError):
                while await aeconn.next_request(reader):
                    line = await reader.readline()
                    taken.release()
                    while line == b"wait\n" and not may_answer.is_set():
                        await asyncio.sleep(0.001)
                    writer.write(line)
            writer.close()

        for cut in False, True:
            may_answer.clear()
            group = aeconn.LoopGroup(handle, "tcp://127.0.0.1:0", loops=3)
            clients = [aeconn.connect(group.urls[0], timeout=LONG) for _ in range(12)]
            for each in clients[:6]:
                each.sendall(b"wait\n")
            for each in clients[6:]:
                each.sendall(b"hello\n")
            for _ in clients:
                self.assertTrue(taken.acquire(timeout=LONG))
            left = []
            stops = threading.Thread(target=lambda: left.append(group.stop(0.05 if cut else None)))
            stops.start()
            for each in clients[6:]:
                self.assertEqual(each.makefile("rb").read(), b"hello\n")
            if not cut:
                may_answer.set()
            stops.join()
            self.assertEqual(left[0].connections, 6 if cut else 0)
            for each in clients[:6]:
                if cut:
                    with self.assertRaises(ConnectionResetError):
                        each.makefile("rb").read()
                else:
                    self.assertEqual(each.makefile("rb").read(), b"wait\n")
            for each in clients:
                each.close()

    def test_never_closed(self):
        async def serve():
            stop = aeconn.Stop(signals=())
            stop.request()
            await stop.wait()
            return weakref.ref(Attached.to(asyncio.get_running_loop()))

        attached = asyncio.run(serve())
        gc.collect()
        self.assertIsNone(attached())

    def test_a_child(self):
        async def serve():
            lines = Lines()
            with aeconn.Stop(None) as stop:
                server = await aeconn.start_server(lines, "tcp://127.0.0.1:0")
                child = os.fork()
                if child == 0:
                    stop.close()
                    os._exit(0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                client = await aeconn.open_connection(server.urls[0])
                await lines.ask(client, b"hello\n")
                send(signal.SIGTERM)
                self.assertEqual(await stop.wait(), 0)
                self.assertEqual(await client[0].read(), b"hello\n")
                client[1].close()

        asyncio.run(asyncio.wait_for(serve(), LONG))

    def test_the_example_of_the_page(self):
        page = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
        if not page.exists():
            self.skipTest("there is no docs/")
        code = next(each for each in page.read_text(encoding="utf-8").split("```")
                    if "aeconn.Stop(" in each).removeprefix("python\n")
        got = []

        def ask(url):
            for _ in range(LONG * 100):
                with contextlib.suppress(OSError):
                    client = aeconn.connect(url, timeout=LONG)
                    break
                time.sleep(0.01)
            with client, client.makefile("rb") as file:
                client.sendall(b"hello\n")
                got.append(file.readline())
                send(signal.SIGTERM)
                got.append(file.read())

        with tempfile.TemporaryDirectory() as folder:
            url = f"unix://{folder}/socket"
            client = threading.Thread(target=ask, args=(url,))
            client.start()
            with self.assertRaises(SystemExit) as ended:
                exec(
                    code.replace("rdma://10.0.0.1:7000", url),
                    {"aeconn": aeconn, "asyncio": asyncio, "sys": sys, "answer": bytes},
                )
            client.join()
        self.assertEqual(ended.exception.code, 0)
        self.assertEqual(got, [b"hello\n", b""])

    def test_mistakes(self):
        with self.assertRaises(RuntimeError):
            aeconn.Stop()  # no loop

        async def mistakes():
            for wrong in -1, "1", float("nan"):
                with self.assertRaises((ValueError, TypeError)):
                    aeconn.Stop(wrong, signals=())
            with aeconn.Stop(signals=()) as stop:
                with self.assertRaisesRegex(RuntimeError, "has a Stop already"):
                    aeconn.Stop(signals=())
                stop.request()
                await stop.wait()
                late = await aeconn.start_server(Lines(), "tcp://127.0.0.1:0")
                self.assertFalse(late.is_serving())
            with self.assertRaises((RuntimeError, ValueError)):
                aeconn.Stop(signals=(signal.SIGKILL,))
            aeconn.Stop(signals=()).close()  # the one that failed is gone
            reader, writer = None, None

            async def both(its_reader, its_writer):
                nonlocal reader, writer
                reader, writer = its_reader, its_writer

            server = await aeconn.start_server(both, "tcp://127.0.0.1:0")
            client = await aeconn.open_connection(server.urls[0])
            await until(lambda: reader)
            first = asyncio.ensure_future(aeconn.next_request(reader))
            await asyncio.sleep(0)
            with self.assertRaisesRegex(RuntimeError, "already waiting"):
                await aeconn.next_request(reader)
            client[1].write(b"x")
            self.assertTrue(await first)
            self.assertEqual(await reader.read(1), b"x")
            client[1].close()
            self.assertFalse(await aeconn.next_request(reader))  # the end of the stream
            writer.close()
            server.close()

        asyncio.run(asyncio.wait_for(mistakes(), LONG))

        async def elsewhere():
            with self.assertRaisesRegex(RuntimeError, "signals reach the main thread alone"):
                aeconn.Stop()

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        thread.join()


if __name__ == "__main__":
    unittest.main()
