#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The servers of bench/peers, which `make bench-peers` compares: each echoes, answers requests as the
# others do, closes on one that is too long, and waits for a client that does not read.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v python3 >/dev/null || { echo 'skipped: python3 is not installed'; total; exit; }
config=release
case $build in */build/*) config=${build##*/} ;; esac
make bench-programs CONFIG="$config" >"$work/make.log" 2>&1 ||
  { echo "FAIL make bench-programs: $(tail -n 5 "$work/make.log")"; echo '0 passed, 1 failed'; exit 1; }
make -k bench-peers-programs CONFIG="$config" >"$work/make.log" 2>&1
bench=$build/bench
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -addext 'subjectAltName=IP:127.0.0.1' -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null

counts() { has "$1" "^\\{\"connections\": .*\"requests\": $2, \"elapsed_s\": .*\\}\$" \
  "$(timeout 60 "$bench/request-load" "${@:3}" 2>&1)"; }
free_port() { begin "$bench/epoll-echo" tcp://127.0.0.1:0 && stop "$server" && port=${at##*:}; }

cat >"$work/ask.py" <<'END'
"""ask.py PORT: what a server of frames does, in words that are the same for each server."""
import hashlib
import socket
import struct
import sys

def connect():
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
    connection.settimeout(20)
    return connection

def exactly(connection, size):
    got = b""
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            sys.exit(f"ended after {len(got)} of {size} bytes")
        got += piece
    return got

payloads = [bytes((i * 7 + j) % 256 for j in range(size)) for i, size in enumerate((0, 1, 7, 8, 9, 64, 65532, 65536, 300000))]
stream = b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)
replies = []
for piece in (3, 4096, len(stream)):
    connection = connect()
    if piece == 3:  # requests in small pieces, only the short ones
        for at in range(0, 300, 3):
            connection.sendall(stream[at:at + 3])
        connection.sendall(stream[300:])
    else:
        for at in range(0, len(stream), piece):
            connection.sendall(stream[at:at + piece])
    replies.append(exactly(connection, len(stream)))
assert replies[0] == replies[1] == replies[2], "replies depend on how requests are cut"
at = 0
for payload in payloads:
    size, = struct.unpack(">I", replies[0][at:at + 4])
    reply = replies[0][at + 4:at + 4 + size]
    assert size == len(payload) and reply[8:] == payload[8:], f"wrong reply to {len(payload)} bytes"
    assert (reply == payload) == (len(payload) < 8), f"no work for {len(payload)} bytes"
    at += 4 + size
connection = connect()
connection.sendall(struct.pack(">I", 1 << 30))
try:
    assert connection.recv(1) == b"", "a request that is too long is answered"
except ConnectionResetError:
    pass
print(hashlib.sha256(replies[0]).hexdigest())
END
cat >"$work/slow.py" <<'END'
"""slow.py PORT: sends until the server takes no more, and then reads it all."""
import os
import select
import socket
import sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
connection.setblocking(False)
block, sent, most = os.urandom(1 << 16) * 4, 0, 256 << 20
while sent < most and select.select([], [connection], [], 1)[1]:
    start = sent % len(block)
    sent += connection.send(block[start:])
assert sent < most, "the server reads without end"
connection.setblocking(True)
connection.settimeout(20)
got = 0
while got < sent:
    piece = connection.recv(1 << 18)
    assert piece, f"ended after {got} of {sent} bytes"
    at = got % len(block)
    assert piece == (block + block)[at:at + len(piece)], f"wrong bytes from {got} on"
    got += len(piece)
print("all of it")
END

first=''
for name in aeconn asio libuv libevent; do
  program=$bench/$name-server
  if [ ! -x "$program" ]; then
    if [ "${CI-}" = true ]; then fail "$name-server" "it was not built: $(grep -m 1 error "$work/make.log")"
    else echo "skipped $name-server: it could not be built (\`tools/packages bench\` installs what it needs)"
    fi
    continue
  fi
  free_port
  if begin "$program" "tcp://127.0.0.1:$port"; then
    counts "$name: echo, many small ones" 20000 "$at" --protocol echo --value-size 64 -c 16 -d 16 -n 20000
    counts "$name: echo, 300 KB" 60 "$at" --protocol echo --value-size 300000 -c 4 -d 4 -n 60
    is "$name: a client that does not read" 'all of it' "$(timeout 60 python3 "$work/slow.py" "$port" 2>&1 | tail -n 1)"
    stop "$server"
  fi
  free_port
  if begin "$program" "tcp://127.0.0.1:$port" --frames --work 10; then
    counts "$name: requests of 64 KiB" 500 "$at" --protocol frames --value-size 65536 -c 4 -d 4 -n 500
    answer=$(timeout 60 python3 "$work/ask.py" "$port" 2>&1 | tail -n 1)
    has "$name: replies, however requests are cut" '^[0-9a-f]{64}$' "$answer"
    is "$name: replies as the first server's" "${first:=$answer}" "$answer"
    stop "$server"
  fi
  for kind in echo frames; do
    free_port
    frames=()
    [ $kind = echo ] || frames=(--frames --work 10)
    begin "$program" "tls://127.0.0.1:$port" --cert "$work/cert.pem" --key "$work/key.pem" "${frames[@]}" || continue
    for size in 64 65536; do
      counts "$name: tls, $kind, $size bytes" 500 "$at?ca=$work/cert.pem" --protocol $kind --value-size $size -c 4 -d 16 -n 500
    done
    stop "$server"
  done
  refuses "$name: no URL" 'tcp://ADDRESS:PORT' "$program"
  refuses "$name: no such flag" 'unknown argument' "$program" --nonsense
done
total
