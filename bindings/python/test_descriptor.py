# SPDX-License-Identifier: BSD-3-Clause
"""Socket.detach(): a connection as a descriptor. Run like test_aeconn.py."""

from __future__ import annotations

import errno
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import aeconn  # noqa: E402
from aeconn import _native, _pump  # noqa: E402
from test_aeconn import each_url  # noqa: E402
from test_blocking import LONG, beside, pair, until, waits  # noqa: E402


def detached(connection):
    plain = socket.socket(fileno=connection.detach())
    plain.settimeout(LONG)
    return plain


class Descriptor(unittest.TestCase):
    @each_url
    def test_select_both_ways(self, url):
        value = os.urandom(5_000_000)
        request = b"*3\r\n$3\r\nSET\r\n$8\r\ndetached\r\n$5000000\r\n" + value + b"\r\nGET detached\r\n"
        connection = aeconn.connect(url, timeout=LONG)
        connection.setblocking(False)
        with socket.socket(fileno=connection.detach()) as plain:
            self.assertFalse(os.get_blocking(plain.fileno()))
            plain.setblocking(False)
            self.assertEqual(connection.fileno(), -1)
            self.assertRaises(OSError, connection.recv, 1)
            connection.close()
            sent, got, full = 0, bytearray(), 0
            while len(got) < 5 + 10 + len(value) + 2:
                writing = [plain] if sent < len(request) else []
                readable, writable, _ = select.select([plain], writing, [], LONG)
                self.assertTrue(readable or writable)
                if readable:
                    got += plain.recv(1 << 20)
                if writable:
                    try:
                        sent += plain.send(request[sent:])
                    except BlockingIOError:
                        full += 1
            self.assertEqual(bytes(got[:5]), b"+OK\r\n")
            self.assertEqual(bytes(got[15:-2]), value)

    @each_url
    def test_end(self, url):
        with detached(aeconn.connect(url, timeout=LONG)) as plain:
            plain.sendall(b"PING\r\n")
            self.assertEqual(plain.recv(100), b"+PONG\r\n")
            plain.sendall(b"QUIT\r\n")
            self.assertEqual(plain.recv(100), b"+OK\r\n")
            self.assertEqual(plain.recv(100), b"")
        until(lambda: not _pump.pumps._threads)

    def test_ends_pass_through(self):
        with pair() as (ours, theirs), detached(ours) as plain:
            plain.sendall(b"question")
            plain.shutdown(socket.SHUT_WR)
            self.assertEqual(theirs.recv(100), b"question")
            self.assertEqual(theirs.recv(100), b"")
            theirs.sendall(b"answer")
            theirs.close()
            self.assertEqual(plain.recv(100), b"answer")
            self.assertEqual(plain.recv(100), b"")
        until(lambda: not _pump.pumps._threads)

    def test_threads(self):
        with pair() as (ours, theirs), detached(ours) as plain:
            with beside(lambda: self.assertEqual(plain.recv(100), b"hello")):
                theirs.sendall(b"hello")

    def test_in_use(self):
        with pair() as (ours, theirs):

            def read():
                self.assertEqual(ours.recv(100), b"hello")

            with beside(read):
                until(lambda: waits(ours))
                with self.assertRaises(OSError) as caught:
                    ours.detach()
                self.assertEqual(caught.exception.errno, errno.EBUSY)
                theirs.sendall(b"hello")
            with detached(ours) as plain:
                plain.sendall(b"back")
                self.assertEqual(theirs.recv(100), b"back")

    def test_what_it_needs_is_not_there(self):
        until(lambda: not _pump.pumps._threads)  # those of other tests end on their own
        with pair() as (ours, theirs):

            def full(*_):
                _native.ctypes.set_errno(errno.EMFILE)
                return -1

            with mock.patch.object(_native.lib, "to_fd", full):
                with self.assertRaises(OSError) as caught:
                    ours.detach()
            self.assertEqual(caught.exception.errno, errno.EMFILE)
            theirs.sendall(b"still here")
            self.assertEqual(ours.recv(100), b"still here")
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no thread")):
                self.assertRaises(RuntimeError, ours.detach)
            self.assertEqual(theirs.recv(100), b"")
            self.assertEqual(_pump.pumps._threads, {})

    def test_what_was_written_leaves_before_the_interpreter_exits(self):
        code = (
            "import os, sys, aeconn\n"
            "fd = aeconn.connect(sys.argv[1]).detach()\n"
            "os.write(fd, b'last words')\n"
        )
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            url = "tcp://%s:%d" % listening.getsockname()
            path = str(pathlib.Path(aeconn.__file__).resolve().parent.parent)
            child = subprocess.Popen(
                [sys.executable, "-c", code, url], env={**os.environ, "PYTHONPATH": path}
            )
            theirs, _ = listening.accept()
            with theirs:
                theirs.settimeout(LONG)
                self.assertEqual(theirs.recv(100), b"last words")
                self.assertEqual(theirs.recv(100), b"")
            self.assertEqual(child.wait(LONG), 0)


if __name__ == "__main__":
    unittest.main()
