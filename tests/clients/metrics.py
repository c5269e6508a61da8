# SPDX-License-Identifier: BSD-3-Clause
"""Tests kv-server's GET /metrics with strict readers.

    metrics.py HOST PORT [CERTIFICATE]     over TCP, or over TLS with a certificate to trust
    metrics.py unix:PATH

Prints one line for each case: `ok ...` or `FAIL ...`.
"""

import http.client
import re
import socket
import ssl
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\d+(?:\.\d+)?)\Z")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def connect():
    if sys.argv[1].startswith("unix:"):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(20)
        plain.connect(sys.argv[1][5:])
        return plain
    plain = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
    if len(sys.argv) < 4:
        return plain
    context = ssl.create_default_context(cafile=sys.argv[3])
    return context.wrap_socket(plain, server_hostname=sys.argv[1])


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("kv")
    connection.sock = connect()
    connection.request(method, path, body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def raw(*pieces):
    with connect() as there:
        for piece in pieces:
            there.sendall(piece)
        got = b""
        try:
            while piece := there.recv(65536):
                got += piece
        except (ConnectionResetError, ssl.SSLError):
            pass
    return got.decode()


def parse(text):
    """Samples by name and labels; raises ValueError with the line that violates the format."""
    assert text.endswith("\n")
    samples, helped, kind, done = {}, None, None, set()
    for line in text[:-1].split("\n"):
        if match := re.match(rf"# HELP ({NAME}) \S", line):
            helped = match[1]
            if helped in done:
                raise ValueError(f"twice: {line}")
            done.add(helped)
            kind = None
        elif match := re.match(rf"# TYPE ({NAME}) (counter|gauge|histogram)\Z", line):
            if match[1] != helped or kind:
                raise ValueError(f"no help before: {line}")
            kind = match[2]
            if (kind == "counter") != helped.endswith("_total"):
                raise ValueError(f"name and type: {line}")
        elif match := SAMPLE.match(line):
            names = [helped + suffix for suffix in SUFFIXES.get(kind, ("",))]
            key = (match[1], match[2] or "")
            if kind is None or match[1] not in names or key in samples:
                raise ValueError(f"not a sample of {helped}: {line}")
            if "." in match[3] and not match[1].endswith("_sum"):
                raise ValueError(f"no whole number: {line}")
            samples[key] = float(match[3])
        else:
            raise ValueError(f"not the format: {line}")
    check_histograms(samples)
    return samples


def check_histograms(samples):
    last = {}
    for (name, labels), value in samples.items():
        if not name.endswith("_bucket"):
            continue
        rest, bound = re.fullmatch(r'(.*),le="([^"]+)"', labels).groups()
        bound = float(bound.replace("+Inf", "inf"))
        before = last.get((name, rest), (-1, 0))
        if bound <= before[0] or value < before[1]:
            raise ValueError(f"buckets do not rise: {name} {labels}")
        last[name, rest] = (bound, value)
    for (name, rest), (bound, value) in last.items():
        base = name[: -len("_bucket")]
        if bound != float("inf") or samples[base + "_count", rest] != value:
            raise ValueError(f"the last bucket of {base} is not its count")


def case(name, right, why=""):
    print(f"ok {name}" if right else f"FAIL {name}: {str(why)[:300]}")


answer, text = ask("GET", "/metrics")
content = answer.getheader("Content-Type")
case("200, the type of the text, and the end of the connection",
     answer.status == 200 and content == "text/plain; version=0.0.4; charset=utf-8"
     and answer.getheader("Connection") == "close", (answer.status, content))
try:
    samples = parse(text)
except ValueError as error:
    samples = {}
    case("the text is the format", False, error)
else:
    case("the text is the format", True)
found = {name for name, _ in samples}
wanted = {"kv_commands_processed_total", "kv_clients", "kv_memory_bytes", "kv_keys", "kv_loops",
          "kv_command_calls_total", "aeconn_connections_open", "aeconn_read_bytes_total"}
case("it has the server's figures and the transports'", wanted <= found, wanted - found)
case("they count: three keys, of five commands",
     samples.get(("kv_keys", "")) == 3
     and samples.get(("kv_command_calls_total", 'command="set"')) == 3
     and samples.get(("kv_command_failures_total", 'command="incr"')) == 1,
     {key: value for key, value in samples.items() if key[0].startswith("kv_")})
if len(sys.argv) == 4:
    count = samples.get(("aeconn_accept_seconds_count", 'scheme="tls"'), 0)
    case("handshakes are timed", count >= 1, count)
for path in "/", "/metric", "/metrics/":
    answer, text = ask("GET", path)
    case(f"404 for {path}", answer.status == 404 and "/metrics" in text, answer.status)
for method in "POST", "DELETE":
    answer, _ = ask(method, "/metrics", "x" * 100000 if method == "POST" else None)
    case(f"404 for {method}", answer.status == 404, answer.status)
got = raw(b"GET /metrics HTTP/1.0\r\n\r\n")
case("HTTP/1.0", got.startswith("HTTP/1.1 200 ") and got.endswith("\n"), got)
got = raw(*(bytes([byte]) for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))
case("a request byte by byte", got.startswith("HTTP/1.1 200 "), got)
got = raw(b"*1\r\n$4\r\nPING\r\n\r\n")
case("404 for RESP", got.startswith("HTTP/1.1 404 "), got)
got = raw(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000)
case("404 for a head without end", got.startswith("HTTP/1.1 404 "), got)
