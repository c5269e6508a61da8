# SPDX-License-Identifier: BSD-3-Clause
"""Facts of TLS, beside those that the module ssl reports at the other end. Run like test_aeconn.py;
it needs no server.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

import aeconn
import aeconn._tls
import aeconn.aio


class _Peer:
    """A server of the module ssl for one connection, which it answers with one line, and holds."""

    def __init__(self, certificate: str, key: str, alpn: list[str]) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        if alpn:
            self.context.set_alpn_protocols(alpn)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tls://127.0.0.1:{self.listener.getsockname()[1]}?ca={certificate}"
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with self.context.wrap_socket(connected, server_side=True) as secured:
            self.facts = secured.version(), secured.cipher(), secured.selected_alpn_protocol()
            secured.sendall(b"here\n")  # what is above is there once this has arrived
            self.done.wait(60)

    def __enter__(self) -> _Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self.listener.close()


@unittest.skipUnless(aeconn.has_transport("tls"), "built without TLS")
class Facts(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.certificate, cls.key = f"{folder.name}/cert.pem", f"{folder.name}/key.pem"
        subprocess.run(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3"
            " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1".split()
            + ["-keyout", cls.key, "-out", cls.certificate],
            check=True,
            stderr=subprocess.DEVNULL,
        )

    def test_a_socket(self) -> None:
        der = ssl.PEM_cert_to_DER_cert(pathlib.Path(self.certificate).read_text())
        for options, alpn in (
            ("", []),
            ("&max-version=1.2", []),
            ("&max-version=1.2&ciphers=ECDHE-ECDSA-CHACHA20-POLY1305", []),
            ("&alpn=a,b", ["b"]),
        ):
            with self.subTest(options), _Peer(self.certificate, self.key, alpn) as peer:
                with aeconn.connect(peer.url + options, 30) as ours:
                    self.assertEqual(ours.recv(5), b"here\n")
                    facts = ours.version(), ours.cipher(), ours.selected_alpn_protocol()
                    self.assertEqual(facts, peer.facts)
                    self.assertEqual(ours.getpeercert(True), der)
                    name = (("IP Address", "127.0.0.1"),)
                    self.assertEqual(ours.getpeercert()["subjectAltName"], name)

    def test_asyncio(self) -> None:
        async def main(peer: _Peer) -> None:
            reader, writer = await aeconn.open_connection(peer.url)
            self.assertEqual(await reader.readline(), b"here\n")
            self.assertEqual(writer.get_extra_info("cipher"), peer.facts[1])
            writer.transport.abort()
            self.assertEqual(writer.get_extra_info("cipher"), peer.facts[1])

        with _Peer(self.certificate, self.key, []) as peer:
            asyncio.run(main(peer))

    def test_the_files_of_a_client(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ca = pathlib.Path(folder.name) / "ca.pem"
        ca.write_bytes(pathlib.Path(self.certificate).read_bytes())
        with _Peer(self.certificate, self.key, []) as peer:
            url = peer.url.replace(self.certificate, str(ca))
            aeconn.prepare_client(url)
            ca.unlink()
            with aeconn.connect(url, 30) as ours:
                self.assertEqual(ours.recv(5), b"here\n")
            with self.assertRaisesRegex(FileNotFoundError, "ca.pem"):
                aeconn.reload_tls()
            ca.write_bytes(pathlib.Path(self.certificate).read_bytes())
            aeconn.reload_tls()
        with self.assertRaisesRegex(FileNotFoundError, "/nonexistent"):
            aeconn.prepare_client("tls://127.0.0.1:1?ca=/nonexistent")
        with self.assertRaisesRegex(OSError, "colour"):
            aeconn.prepare_client("tls://127.0.0.1:1?colour=red")

    def test_without_tls(self) -> None:
        one, other = socket.socketpair()
        with other, aeconn.adopt(one) as ours:
            self.assertEqual((ours.version(), ours.cipher()), (None, None))
            self.assertEqual((ours.selected_alpn_protocol(), ours.getpeercert(True)), (None, None))

        async def main() -> None:
            listener = socket.create_server(("127.0.0.1", 0))
            with listener:
                url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
                _, writer = await aeconn.open_connection(url)
                self.assertIsNone(writer.get_extra_info("cipher"))
                self.assertEqual(writer.get_extra_info("cipher", "none"), "none")
                writer.close()

        asyncio.run(main())

    def test_a_cipher_suite_that_ssl_does_not_know(self) -> None:
        facts = {"tls": "TLSv1.3", "cipher": "TLS_OF_TOMORROW"}
        self.assertEqual(aeconn._tls.cipher(facts), ("TLS_OF_TOMORROW", "TLSv1.3", 0))


if __name__ == "__main__":
    unittest.main()
