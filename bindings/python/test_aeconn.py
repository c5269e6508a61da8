# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the package over transports that need no device, against kv-server.

    AECONN_LIBRARY=build/libaeconn-c.so python3 -m unittest bindings/python/test_*.py

KV_URLS: URLs of a kv-server, separated by spaces. REDIS_URLS: those of a redis-server, for features
that kv-server lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pathlib
import sys
import threading
import time
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402

URLS = os.environ.get("KV_URLS", "").split()
REDIS_URLS = os.environ.get("REDIS_URLS", "").split()
try:
    import redis
except ImportError:
    redis = None


def each_of(urls, variable):
    def decorate(test):
        def run(self):
            self.assertTrue(urls, f"{variable} names no server")
            for url in urls:
                with self.subTest(url=url):
                    test(self, url)

        return run

    return decorate


each_url = each_of(URLS, "KV_URLS")


def each_url_async(test):
    return each_url(lambda self, url: asyncio.run(test(self, url)))


class Blocking(unittest.TestCase):
    @each_url
    def test_echo(self, url):
        with aeconn.connect(url, timeout=10) as connection:
            connection.sendall(b"PING hello\r\n")
            self.assertEqual(connection.recv(100), b"$5\r\nhello\r\n")
            buffer = bytearray(3)
            connection.sendall(memoryview(bytearray(b"PING\r\n")))
            self.assertEqual(connection.recv_into(buffer), 3)
            self.assertEqual(bytes(buffer), b"+PO")
            self.assertTrue(connection.readable())
            self.assertEqual(connection.recv(100), b"NG\r\n")
            self.assertFalse(connection.readable())
            self.assertEqual(connection.transport(), url.split(":")[0])
            self.assertTrue(connection.info())
            self.assertIn(url.split("://")[0].split("+")[-1] + " ", connection.path())
            self.assertTrue(connection.getpeername())

    @each_url
    def test_large(self, url):
        value = os.urandom(5_000_000)
        with aeconn.connect(url, timeout=30) as connection:
            connection.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$5000000\r\n" + value + b"\r\n")
            self.assertEqual(connection.recv(100), b"+OK\r\n")
            connection.sendall(b"GET large\r\n")
            got = bytearray()
            while len(got) < len(value) + 12:
                got += connection.recv(1 << 20)
            self.assertEqual(bytes(got[10:-2]), value)

    @each_url
    def test_time_out(self, url):
        with aeconn.connect(url, timeout=10) as connection:
            connection.settimeout(0.01)
            self.assertRaises(TimeoutError, connection.recv, 1)
            connection.setblocking(False)
            self.assertRaises(BlockingIOError, connection.recv, 1)

    @each_url
    def test_end(self, url):
        connection = aeconn.connect(url, timeout=10)
        connection.sendall(b"QUIT\r\n")
        self.assertEqual(connection.recv(100), b"+OK\r\n")
        self.assertEqual(connection.recv(100), b"")
        connection.close()
        connection.close()
        self.assertRaises(OSError, connection.recv, 1)

    @each_url
    def test_threads(self, url):
        failures = []

        def work(number):
            try:
                with aeconn.connect(url, timeout=30) as connection:
                    for i in range(100):
                        text = f"{number}-{i}".encode()
                        connection.sendall(b"PING %s\r\n" % text)
                        expected = b"$%d\r\n%s\r\n" % (len(text), text)
                        got = b""
                        while len(got) < len(expected):
                            got += connection.recv(100)
                        assert got == expected, got
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failures, [])

    @each_url
    def test_fork(self, url):
        """A child's copies do not affect the parent's connection, as with a socket."""
        with aeconn.connect(url, timeout=10) as connection:
            child = os.fork()
            if child == 0:
                try:
                    connection.close()
                    gc.collect()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            connection.sendall(b"PING\r\n")
            self.assertEqual(connection.recv(100), b"+PONG\r\n")

    def test_keeper(self):
        """The garbage collector may close a connection while the keeper checks another."""
        keeper = aeconn._keeper._Keeper()

        class Kept:
            _kept_at = 1

            def __del__(self):
                keeper.drop(self)

        kept = Kept()
        keeper._kept[1] = weakref.ref(kept)
        ended = threading.Event()

        def collect():
            nonlocal kept
            with keeper._lock:
                del kept
            ended.set()

        threading.Thread(target=collect, daemon=True).start()
        self.assertTrue(ended.wait(10))
        self.assertFalse(keeper._kept)

    def test_mistakes(self):
        with self.assertRaisesRegex(OSError, "smoke"):
            aeconn.connect("smoke://127.0.0.1:1")
        with self.assertRaisesRegex(ConnectionRefusedError, "refused"):
            aeconn.connect("tcp://127.0.0.1:1")
        with self.assertRaisesRegex(OSError, "colour"):
            aeconn.configure("tcp", colour="red")
        self.assertTrue(aeconn.has_transport("tcp"))
        self.assertFalse(aeconn.has_transport("smoke"))


class Asyncio(unittest.TestCase):
    @each_url_async
    async def test_echo(self, url):
        reader, writer = await aeconn.open_connection(url)
        writer.write(b"PING hello\r\n")
        self.assertEqual(await reader.readexactly(11), b"$5\r\nhello\r\n")
        self.assertEqual(writer.get_extra_info("transport"), url.split(":")[0])
        self.assertEqual(len(writer.get_extra_info("path").splitlines()), 1)
        writer.close()
        await writer.wait_closed()

    @each_url_async
    async def test_back_pressure(self, url):
        reader, writer = await aeconn.open_connection(url)
        value = os.urandom(3_000_000)
        writer.write(b"*3\r\n$3\r\nSET\r\n$4\r\nmuch\r\n$3000000\r\n")
        for at in range(0, len(value), 100_000):
            writer.write(value[at : at + 100_000])
            await writer.drain()
        writer.write(b"\r\nGET much\r\n")
        self.assertEqual(await reader.readexactly(5), b"+OK\r\n")
        self.assertEqual(await reader.readexactly(10), b"$3000000\r\n")
        self.assertEqual(await reader.readexactly(len(value)), value)
        writer.close()
        await writer.wait_closed()

    @each_url_async
    async def test_many(self, url):
        async def one(number):
            reader, writer = await aeconn.open_connection(url)
            for i in range(20):
                writer.write(b"PING %d\r\n" % (number * 100 + i))
                line = await reader.readuntil(b"\r\n")
                self.assertEqual(line[:1], b"$")
                self.assertEqual(await reader.readuntil(b"\r\n"), b"%d\r\n" % (number * 100 + i))
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(one(i) for i in range(30)))

    def test_server(self):
        async def serve():
            async def echo(reader, writer):
                while data := await reader.read(1000):
                    writer.write(data)
                    await writer.drain()
                writer.close()

            async with await aeconn.start_server(echo, "tcp://127.0.0.1:0") as server:
                self.assertTrue(server.is_serving())
                reader, writer = await aeconn.open_connection(server.urls[0])
                writer.write(b"x" * 1_000_000)
                writer.write_eof()
                self.assertEqual(len(await reader.read()), 1_000_000)
                writer.close()
            self.assertFalse(server.is_serving())

        for _ in range(3):  # a loop below each of asyncio's
            asyncio.run(serve())
        gc.collect()

    def test_nobody_else_refers_to_it(self):
        """The loop references objects that wait for bytes or clients, whatever the garbage
        collector does."""

        async def serve():
            async def echo(reader, writer):
                while data := await reader.read(1000):
                    writer.write(data)
                writer.close()

            url = (await aeconn.start_server(echo, "tcp://127.0.0.1:0")).urls[0]
            gc.collect()
            reader, writer = await aeconn.open_connection(url)
            for _ in range(3):
                writer.write(b"hello")
                self.assertEqual(await reader.readexactly(5), b"hello")
                gc.collect()
            return weakref.ref(writer.transport), weakref.ref(asyncio.get_running_loop())

        left = asyncio.run(serve())
        gc.collect()
        self.assertEqual([each() for each in left], [None, None])

    @each_url_async
    async def test_list(self, url):
        """Half-close is not available for a list of schemes that may use rdma."""
        if not url.startswith("tcp:"):
            return
        reader, writer = await aeconn.open_connection(url.replace("tcp:", "rdma|tcp:", 1))
        self.assertFalse(writer.can_write_eof())
        with self.assertRaises(NotImplementedError):
            writer.write_eof()
        writer.write(b"PING\r\n")
        self.assertEqual(await reader.readline(), b"+PONG\r\n")
        writer.close()
        await writer.wait_closed()

    def test_cancelled(self):
        async def run():
            server = await aeconn.start_server(lambda *_: None, "tcp://127.0.0.1:0")
            task = asyncio.ensure_future(aeconn.open_connection(server.urls[0]))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            server.close()
            with self.assertRaises(OSError):
                await aeconn.open_connection(server.urls[0])

        asyncio.run(run())


@unittest.skipIf(redis is None, "redis-py is not there")
class RedisPy(unittest.TestCase):
    @each_url
    def test_commands(self, url):
        client = redis.Redis(connection_pool=aeconn.pool(url, socket_timeout=10))
        self.assertTrue(client.set("py", b"\x00\r\n"))
        self.assertEqual(client.get("py"), b"\x00\r\n")
        with client.pipeline(transaction=False) as pipeline:
            for i in range(1000):
                pipeline.set(f"p{i}", i)
            self.assertEqual(pipeline.execute(), [True] * 1000)
        self.assertEqual(client.mget("p1", "p999"), [b"1", b"999"])
        value = os.urandom(5_000_000)
        client.set("big", value)
        self.assertEqual(client.get("big"), value)
        client.connection_pool.disconnect()
        self.assertTrue(client.ping())
        self.assertIn(url, repr(client.connection_pool))

    @each_url
    def test_killed(self, url):
        client = redis.Redis(connection_pool=aeconn.pool(url, socket_timeout=10))
        other = redis.Redis(connection_pool=aeconn.pool(url, socket_timeout=10))
        number = client.client_id()
        self.assertTrue(other.client_kill_filter(_id=number))
        # Over rdma, the end may arrive after the answer to the client that requested it.
        with contextlib.suppress(redis.ConnectionError):
            client.connection_pool._available_connections[0].can_read(10)
        self.assertTrue(client.ping())  # on a new connection
        self.assertNotEqual(client.client_id(), number)

    def test_nobody_there(self):
        client = redis.Redis(connection_pool=aeconn.pool("tcp://127.0.0.1:1"))
        with self.assertRaisesRegex(redis.ConnectionError, "tcp://127.0.0.1:1"):
            client.ping()


@unittest.skipIf(redis is None, "redis-py is not there")
@unittest.skipUnless(REDIS_URLS, "REDIS_URLS names no server")
class RedisServer(unittest.TestCase):
    def client(self, url, **settings):
        return redis.Redis(connection_pool=aeconn.pool(url, socket_timeout=10, **settings))

    def pings(self, client):
        return client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]

    def next_of(self, pubsub):
        """The next message: get_message() also returns without one for messages it handles
        internally."""
        end = time.monotonic() + 60
        while (message := pubsub.get_message(timeout=10)) is None:
            self.assertLess(time.monotonic(), end)
        return message["type"], message["channel"], message["data"]

    @each_of(REDIS_URLS, "REDIS_URLS")
    def test_pub_sub(self, url):
        client = self.client(url)
        with client.pubsub() as pubsub:
            pubsub.subscribe("news")
            self.assertEqual(self.next_of(pubsub), ("subscribe", b"news", 1))
            pubsub.psubscribe("w*")
            self.assertEqual(self.next_of(pubsub), ("psubscribe", b"w*", 2))
            self.assertIsNone(pubsub.get_message(timeout=0))
            for text in b"\x00\r\n", os.urandom(2_000_000):
                self.assertEqual(client.publish("news", text), 1)
                self.assertEqual(client.publish("weather", b"fine"), 1)
                self.assertEqual(self.next_of(pubsub), ("message", b"news", text))
                self.assertEqual(self.next_of(pubsub), ("pmessage", b"weather", b"fine"))
            # Loss of the connection is reported; it is re-established with its subscriptions.
            self.assertEqual(client.client_kill_filter(_type="pubsub"), 1)
            self.assertRaises(redis.ConnectionError, pubsub.get_message, timeout=60)
            subscribed = {self.next_of(pubsub)[:2] for _ in range(2)}
            self.assertEqual(subscribed, {("subscribe", b"news"), ("psubscribe", b"w*")})
            self.assertEqual(client.publish("news", b"on"), 1)
            self.assertEqual(self.next_of(pubsub), ("message", b"news", b"on"))
            pubsub.punsubscribe()
            self.assertEqual(self.next_of(pubsub), ("punsubscribe", b"w*", 1))
            self.assertEqual(client.publish("weather", b"fine"), 0)

    @each_of(REDIS_URLS, "REDIS_URLS")
    def test_health_check(self, url):
        client, other = self.client(url, health_check_interval=3600), self.client(url)
        with client.pubsub() as pubsub:
            pubsub.subscribe("news")
            self.assertEqual(self.next_of(pubsub), ("subscribe", b"news", 1))
            self.assertTrue(client.set("checked", 1))
            (idle,) = client.connection_pool._available_connections
            before = self.pings(other)
            self.assertEqual(client.get("checked"), b"1")
            self.assertEqual(self.pings(other), before)
            # Simulates the end of the hour.
            idle.next_health_check = 0
            self.assertEqual(client.get("checked"), b"1")
            self.assertEqual(self.pings(other), before + 1)
            pubsub.connection.next_health_check = 0
            self.assertIsNone(pubsub.get_message(timeout=60))  # the reply is handled internally
            self.assertEqual(self.pings(other), before + 2)
            self.assertEqual(other.publish("news", b"hello"), 1)
            self.assertEqual(self.next_of(pubsub), ("message", b"news", b"hello"))


if __name__ == "__main__":
    unittest.main()
